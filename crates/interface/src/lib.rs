//! Network interfaces as ports on live traffic need them: facts asked of the kernel ([`Probe`], [`netlink`]), memory mapped for rings
//! ([`Area`]), waiting for sockets ([`wait`]), and the list of a port's open interfaces that any thread may read ([`Watched`]).
//!
//! ```
//! use millrace_interface::{Presence, Probe};
//!
//! let probe = Probe::new()?;
//! let index = probe.require("lo")?;
//! assert_ne!(probe.presence("lo", index), Presence::Gone);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod area;
mod error;
pub mod netlink;
mod probe;
mod wait;
mod watched;

pub use area::Area;
pub use error::InterfaceError;
pub use probe::{Presence, Probe, names};
pub use wait::wait;
pub use watched::Watched;

/// Interfaces of a port at most.
pub const INTERFACES_MAX: usize = 16;

/// Refuses a list of interfaces that is empty or too long, or that names one twice.
///
/// # Errors
/// The reason, in words.
pub fn check_names(names: &[String]) -> Result<(), String> {
    if names.is_empty() || names.len() > INTERFACES_MAX {
        return Err(format!("a port has 1 to {INTERFACES_MAX} interfaces, not {}", names.len()));
    }
    match names.iter().enumerate().find(|(nth, name)| names[..*nth].contains(name)) {
        Some((_, name)) => Err(format!("interface {name} is named twice")),
        None => Ok(()),
    }
}
