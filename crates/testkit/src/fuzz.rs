//! What holds for any bytes at all. Each function takes an input as a fuzzer makes it and panics where something does not
//! hold; the targets in `fuzz/` and the test that replays their corpora call the same ones.

mod capture;
mod carrier;
mod cases;
mod config;
mod functions;
mod parse;
mod rss;
pub mod seeds;

pub use self::rss::rss;
pub use capture::capture;
pub use carrier::carrier;
pub use cases::cases;
pub use config::config;
pub use functions::functions;
pub use parse::parse;

/// A check.
pub type Check = fn(&[u8]);

/// All checks, by the names of their targets.
pub const CHECKS: [(&str, Check); 7] = [
    ("parse", parse),
    ("capture", capture),
    ("functions", functions),
    ("config", config),
    ("carrier", carrier),
    ("rss", rss),
    ("cases", cases),
];
