//! The keys of the detector's configuration file, as the catalogue prints them, and which to turn when.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "threshold",
        "0.8",
        "under attack when more than this share of the flows has had one packet only; above 0, below 1",
    ),
    key("minimum", "1000", "flows from which on the share counts; 0 to 4294967295"),
    key("staleness_us", "0", "microseconds for which a core may go by counts that it has read before; 0 to 1000000"),
    key("idle_timeout", "60", "seconds of silence after which a flow is forgotten"),
    key("flows", "1048576", "IPv4 flows that are remembered"),
    key("flows_v6", "65536", "IPv6 flows that are remembered"),
];

pub(super) const RECIPES: &[Recipe] = &[Recipe {
    cause: Cause::MergeDuringUpdate,
    key: "staleness_us",
    help: "longer: an attack is noticed, and its end, by as much later",
}];
