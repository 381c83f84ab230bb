//! Memory shared with the kernel: rings, and frames.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use locality::pages;

/// A mapping that other parties write too: the kernel, or the other half of a port. It is reached by pointers alone.
#[derive(Debug)]
pub struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Who reads and writes what in it is settled where its pointers are used.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Maps zeroed memory, on huge pages if possible: packets lie everywhere in it, and with small pages the processor would look
    /// up the page of nearly every one.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let area = Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        pages::advise(area.start.as_ptr(), len);
        // SAFETY: the mapping is new and nobody has pointers into it. Writing makes its pages.
        unsafe { area.start.as_ptr().write_bytes(0, len) };
        Ok(area)
    }

    /// Maps `len` bytes that the kernel shares by a descriptor, such as a socket's rings, from `offset` on.
    ///
    /// # Errors
    /// There is nothing to share at that place, or the kernel has no memory.
    pub fn of_file(file: RawFd, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, file, offset)
    }

    fn map(len: usize, flags: c_int, file: RawFd, offset: i64) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory that there is.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, file, offset as libc::off_t)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { start, len })
    }

    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "the kernel maps nothing of no length")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The first byte.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of `count` values `T` at `offset`.
    ///
    /// # Panics
    /// It exceeds the mapping, or isn't aligned.
    #[must_use]
    pub fn at<T>(&self, offset: usize, count: usize) -> NonNull<T> {
        let end = count.checked_mul(size_of::<T>()).and_then(|len| len.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len), "offset {offset} exceeds a mapping of {} bytes", self.len);
        // SAFETY: within the mapping, as just checked.
        let at = unsafe { self.start.add(offset) }.cast::<T>();
        assert!(at.is_aligned(), "offset {offset} is not aligned");
        at
    }

    /// A part of the mapping.
    ///
    /// # Panics
    /// It exceeds the mapping.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.at(start, len), len)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and whoever has pointers into it holds it too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
