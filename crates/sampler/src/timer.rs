//! The timer, and its signal handler.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::resolve::{Resolver, Stack};
use crate::store::{Sample, Store};

/// Processor time between samples. The kernel looks only at its clock's ticks, which are at least as far apart.
const PERIOD: Duration = Duration::from_millis(1);

static STATE: OnceLock<State> = OnceLock::new();

struct State {
    store: Store,
    /// Code that a stack is not unwound from.
    not_unwound: Vec<Range<usize>>,
}

/// Takes samples until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    /// The process's time when it started.
    since: Duration,
}

/// The samples taken.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Stacks with the number of their samples.
    pub stacks: Vec<(Stack, u64)>,
    /// How many samples were taken on each processor.
    pub by_cpu: BTreeMap<u32, u64>,
    /// Samples that did not fit.
    pub lost: u64,
    /// Processor time of all threads while sampling.
    pub cpu_time: Duration,
}

impl Sampler {
    /// Starts the timer. From then on the signal SIGPROF belongs to this crate, even after sampling: a late signal would end a program
    /// that doesn't handle it.
    ///
    /// # Errors
    /// There is a sampler already, the kind of processor is not supported, or the system refuses.
    pub fn start() -> io::Result<Self> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "not supported on this kind of processor"));
        }
        let state = STATE.get_or_init(|| State { store: Store::new(), not_unwound: not_unwound() });
        if !state.store.open() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "sampling is already running"));
        }
        // What the unwinder prepares at its first use is prepared here, and not in a thread that was interrupted.
        backtrace::trace(|_| true);
        let sampler = Self { since: process_time() };
        handle_signal()?;
        set_timer(PERIOD)?;
        Ok(sampler)
    }

    /// Number of samples so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        STATE.get().map_or(0, |state| state.store.taken() as u64)
    }

    /// Stops the timer and resolves the samples to lines. Reading the line tables takes a second or two.
    #[must_use]
    pub fn stop(self) -> Samples {
        let cpu_time = process_time().saturating_sub(self.since);
        drop(self);
        let store = &STATE.get().expect("who was started has a state").store;
        let mut by_cpu = BTreeMap::new();
        let mut counts: HashMap<Sample, u64> = HashMap::new();
        for (cpu, sample) in store.samples() {
            *by_cpu.entry(cpu).or_default() += 1;
            *counts.entry(sample).or_default() += 1;
        }
        let mut resolver = Resolver::default();
        let stacks = counts.into_iter().map(|(sample, count)| (resolver.stack(&sample), count)).collect();
        Samples { stacks, by_cpu, lost: store.lost() as u64, cpu_time }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // What is set to zero can't be refused.
        let _ = set_timer(Duration::ZERO);
        if let Some(state) = STATE.get() {
            state.store.close();
        }
    }
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn handle_signal() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros is a value of this structure: no flags, nothing blocked, the default action.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = on_signal as *const () as usize;
    // System calls go on after the signal.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler has the signature that SA_SIGINFO wants, lives as long as the program, and does nothing but what
    // is allowed in a signal handler: see `on_signal`.
    match unsafe { libc::sigaction(libc::SIGPROF, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the timer be due each time that threads have run for so long together; never for zero.
fn set_timer(period: Duration) -> io::Result<()> {
    let every = libc::timeval { tv_sec: 0, tv_usec: period.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the structure is read during the call alone, and nobody asks for the old one.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Notes the stack of the thread that runs. It neither allocates nor waits nor makes a system call: the store has its room, and
/// the unwinder finds tables by the C library's list of what is loaded. That is read without a lock (before glibc 2.35, under
/// one that a thread may take again while it has it).
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(State { store, not_unwound }) = STATE.get() else { return };
    // SAFETY: the kernel passes the interrupted thread's context to a handler that was installed with SA_SIGINFO.
    let at = unsafe { program_counter(context) };
    // SAFETY: it reads a number that the kernel keeps for the thread.
    let cpu = unsafe { libc::sched_getcpu() };
    store.take(cpu.try_into().unwrap_or(u32::MAX), |note| {
        if not_unwound.iter().any(|range| range.contains(&at)) {
            note(at);
            return false;
        }
        // The handler's own frames come first.
        let (mut found, mut fits) = (false, true);
        // SAFETY: nothing here is unsynchronised on systems with unwind tables; the lock that the safe function takes is for
        // others, and would be waited for by a thread that holds it.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                let address = frame.ip() as usize;
                found |= address == at;
                fits = !found || address == 0 || note(address);
                fits
            });
        }
        if !found {
            note(at);
        }
        found && fits
    });
}

/// Where the thread was when it was interrupted.
///
/// # Safety
/// `context` is what the kernel passed to a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn program_counter(context: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
}

/// Where the thread was when it was interrupted.
///
/// # Safety
/// `context` is what the kernel passed to a signal handler.
#[cfg(target_arch = "aarch64")]
unsafe fn program_counter(context: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize }
}

/// Not supported on other processors yet.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn program_counter(_: *mut c_void) -> usize {
    0
}

/// The unwinder itself, the loader whose list it reads, and the kernel's code in every process, whose tables are wrong on
/// some systems.
fn not_unwound() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter(|line| ["libgcc_s", "/ld-", "[vdso]"].iter().any(|name| line.contains(name)))
        .filter_map(range)
        .collect()
}

/// The addresses of a line of `/proc/self/maps`.
fn range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_not_unwound_is_found() {
        let line = "7f3b5c9f1000-7f3b5ca17000 r-xp 00002000 08:01 1234   /lib64/ld-linux-x86-64.so.2";
        assert_eq!(range(line), Some(0x7f3b_5c9f_1000..0x7f3b_5ca1_7000));
        assert_eq!(range(""), None);
        let here = handle_signal as *const () as usize;
        assert!(!not_unwound().is_empty());
        assert!(not_unwound().iter().all(|range| !range.contains(&here)), "the program's own code is unwound");
    }
}
