//! The configuration keys and recipes of `anti-ddos`, as the catalogue prints them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("threshold", "0.8", "share of one-packet flows above which there is an attack; above 0, below 1"),
    key("minimum", "1000", "number of flows from which the share counts; 0 to 4294967295"),
    key("staleness_us", "0", "microseconds for which a core may use counts that it has read before; 0 to 1000000"),
    key("idle_timeout", "60", "seconds of silence after which a flow is forgotten"),
    key("flows", "1048576", "maximum number of IPv4 flows"),
    key("flows_v6", "65536", "maximum number of IPv6 flows"),
];

pub(super) const RECIPES: &[Recipe] = &[Recipe {
    cause: Cause::MergeDuringUpdate,
    key: "staleness_us",
    help: "longer: an attack, and its end, is noticed that much later",
}];
