//! Fuzz checks: properties that hold for any bytes. Each function takes a fuzzer's input and panics if a property fails. The targets in
//! `fuzz/` and the test that replays their corpora call the same functions.

mod capture;
mod carrier;
mod cases;
mod config;
mod defrag;
mod efsm;
mod functions;
mod identify;
mod iptables;
mod parse;
mod rss;
pub mod seeds;
mod split;
mod stream;

pub use self::rss::rss;
pub use capture::capture;
pub use carrier::carrier;
pub use cases::cases;
pub use config::config;
pub use defrag::defrag;
pub use efsm::efsm;
pub use functions::functions;
pub use identify::identify;
pub use iptables::iptables;
pub use parse::parse;

pub use self::split::split;
pub use self::stream::stream;

/// A fuzz check.
pub type Check = fn(&[u8]);

/// All checks with the names of their targets.
pub const CHECKS: [(&str, Check); 13] = [
    ("parse", parse),
    ("capture", capture),
    ("functions", functions),
    ("config", config),
    ("carrier", carrier),
    ("rss", rss),
    ("cases", cases),
    ("efsm", efsm),
    ("iptables", iptables),
    ("defrag", defrag),
    ("identify", identify),
    ("stream", stream),
    ("split", split),
];
