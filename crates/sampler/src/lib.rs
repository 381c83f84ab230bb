//! Where a program's threads spend their time: samples of call stacks, told by line with inlined functions apart.
//!
//! A timer counts the processor time of all threads together. When it is due, the kernel interrupts a thread that runs, and
//! that thread notes its own stack: no other program, no privilege, no frame pointers. The kernel looks at such timers at
//! its clock's ticks, so there are at most as many samples a second and processor as that has (100 to 1000).
//!
//! What is noted are addresses. They become functions, files and lines afterwards, by the program's line tables.
#![deny(unsafe_code)]

mod resolve;
mod store;
mod timer;

pub use resolve::{Frame, Stack, has_lines};
pub use timer::{Sampler, Samples};
