//! DPDK's rte_hash, through the shim in `shim.c`.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::traffic::Part;

/// A running DPDK environment. Tables borrow it.
pub(crate) struct Dpdk(());

impl Dpdk {
    /// Starts DPDK, which pins this thread to its core. Call it once in a process.
    pub(crate) fn start() -> Result<Self, String> {
        // SAFETY: called once, by `main`, before any other thread is there.
        if unsafe { shim_start() } { Ok(Self(())) } else { Err(format!("DPDK doesn't start: {}", error())) }
    }

    /// DPDK's name and version.
    pub(crate) fn version() -> String {
        // SAFETY: a static string.
        unsafe { CStr::from_ptr(shim_version()) }.to_string_lossy().into_owned()
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        // SAFETY: it was started, and the tables borrow it.
        unsafe { shim_stop() };
    }
}

fn error() -> String {
    // SAFETY: a static string, or one of this thread's that lasts until the next call.
    unsafe { CStr::from_ptr(shim_error()) }.to_string_lossy().into_owned()
}

/// How the state of a key is reached.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// `rte_hash_lookup_bulk` and an array of states by position, prefetched.
    Array,
    /// `rte_hash_lookup_bulk_data`: the data is the state if that has 8 bytes, else it points at it, prefetched.
    Data,
    /// `rte_hash_lookup_bulk` alone: less work than the others do.
    Nothing,
}

/// The parameters of a table, laid out as `struct shim_plan`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) entries: u32,
    /// The key length: 13, or 16 with three zeros, which rte_hash compares faster.
    pub(crate) key_len: u32,
    pub(crate) state_bytes: u32,
    pub(crate) read: Read,
    /// Jenkins' hash instead of CRC32.
    pub(crate) jhash: bool,
    /// Full buckets get extension buckets (`RTE_HASH_EXTRA_FLAGS_EXT_TABLE`).
    pub(crate) extendable: bool,
}

/// An rte_hash and the states of its keys.
pub(crate) struct RteHash<'a> {
    table: NonNull<Shim>,
    dpdk: PhantomData<&'a Dpdk>,
}

#[repr(C)]
struct Shim {
    _opaque: [u8; 0],
}

impl<'a> RteHash<'a> {
    /// An empty table.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub(crate) fn new(_: &'a Dpdk, plan: Plan) -> Self {
        // SAFETY: DPDK is running; the plan is read during the call only.
        let table = unsafe { shim_new(&raw const plan) };
        let Some(table) = NonNull::new(table) else { panic!("rte_hash of {} entries: {}", plan.entries, error()) };
        Self { table, dpdk: PhantomData }
    }

    /// Its memory in bytes, as DPDK's heap counts it.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: the table is there until it is dropped.
        unsafe { shim_bytes(self.table.as_ptr()) }
    }

    /// Inserts keys; returns how many found a place.
    pub(crate) fn insert(&mut self, keys: Part<'_>) -> usize {
        // SAFETY: as above; the slices are of one length, which `Part` keeps.
        unsafe { shim_insert(self.table.as_ptr(), keys.bytes.as_ptr().cast(), keys.words.as_ptr(), keys.len()) }
    }

    /// Removes keys; returns how many were present.
    pub(crate) fn remove(&mut self, keys: Part<'_>) -> usize {
        // SAFETY: as above.
        unsafe { shim_remove(self.table.as_ptr(), keys.bytes.as_ptr().cast(), keys.len()) }
    }

    /// Removes an old key and inserts a new one, in turn; returns how many of these operations succeeded.
    pub(crate) fn churn(&mut self, old: Part<'_>, new: Part<'_>) -> usize {
        let count = old.len().min(new.len());
        let (out, into) = (old.bytes.as_ptr().cast(), new.bytes.as_ptr().cast());
        // SAFETY: as above; neither slice is shorter than the count.
        unsafe { shim_churn(self.table.as_ptr(), out, into, new.words.as_ptr(), count) }
    }

    /// Looks keys up; returns how many are present, and the sum of their states' first words.
    pub(crate) fn look(&self, keys: Part<'_>) -> (usize, u64) {
        let mut sum = 0;
        // SAFETY: as above.
        let hits = unsafe { shim_look(self.table.as_ptr(), keys.bytes.as_ptr().cast(), keys.len(), &raw mut sum) };
        (hits, sum)
    }
}

impl Drop for RteHash<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `shim_new`, and nobody else has it.
        unsafe { shim_free(self.table.as_ptr()) };
    }
}

unsafe extern "C" {
    fn shim_version() -> *const c_char;
    fn shim_error() -> *const c_char;
    fn shim_start() -> bool;
    fn shim_stop();
    fn shim_new(plan: *const Plan) -> *mut Shim;
    fn shim_free(table: *mut Shim);
    fn shim_bytes(table: *const Shim) -> usize;
    fn shim_insert(table: *const Shim, keys: *const u8, words: *const u64, count: usize) -> usize;
    fn shim_remove(table: *const Shim, keys: *const u8, count: usize) -> usize;
    fn shim_churn(table: *const Shim, old: *const u8, new: *const u8, words: *const u64, count: usize) -> usize;
    fn shim_look(table: *const Shim, keys: *const u8, count: usize, sum: *mut u64) -> usize;
}
