//! Samples call stacks of the threads of this program, to show where processor time goes, by source line and with inlined functions.
//!
//! A timer counts the processor time of all threads. When it expires, the kernel interrupts a running thread, and the thread records its
//! own stack. This needs no other program, no privilege and no frame pointers. The kernel checks such timers at its clock ticks, so the
//! rate is limited to 100 to 1000 samples per second of processor time.
//!
//! Samples are addresses. They are resolved to functions, files and lines later, with the program's line tables.
//!
//! ```no_run
//! let sampler = millrace_sampler::Sampler::start()?;
//! // ... work ...
//! let samples = sampler.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]

mod resolve;
mod store;
mod timer;

pub use resolve::{Frame, Stack, has_lines};
pub use timer::{Sampler, Samples};
