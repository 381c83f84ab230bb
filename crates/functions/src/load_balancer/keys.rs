//! The configuration keys and recipes of `load-balancer`, as the catalogue prints them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "services",
        "[]",
        "the services and their backends: { address = \"192.0.2.1:80\", protocol = \"tcp\", backends = [\"10.0.0.1:80\"] }, protocol tcp or udp",
    ),
    key(
        "table_size",
        "65537",
        "entries of each look-up table: a prime, at least a hundred times the number of backends; 101 to 1048573",
    ),
    key("seed", "0", "hash seed; use the same on all balancers of a service"),
    key("down_after", "3", "unanswered TCP connections in a row after which a backend is down; 0 to 255, 0 for never"),
    key("answer_timeout", "3", "seconds within which a backend must answer"),
    key("retry_after", "10", "seconds after which one connection tries a backend that is down again"),
    key("transitory_timeout", "60", "idle seconds of a connection that is opening or closing"),
    key("idle_timeout", "900", "idle seconds of an open connection"),
    key("flows", "1048576", "maximum number of IPv4 connections"),
    key("flows_v6", "65536", "maximum number of IPv6 connections"),
];

pub(super) const RECIPES: &[Recipe] = &[Recipe {
    cause: Cause::SameElement,
    key: "retry_after",
    help: "longer: a backend that is down is tried less often, and found to be back that much later",
}];
