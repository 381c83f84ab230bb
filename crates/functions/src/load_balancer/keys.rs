//! The keys of the balancer's configuration file, as the catalogue prints them, and which to turn when.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "services",
        "[]",
        "who is balanced: { address = \"192.0.2.1:80\", protocol = \"tcp\", backends = [\"10.0.0.1:80\"] }, protocol tcp or udp",
    ),
    key(
        "table_size",
        "65537",
        "entries of a look-up table: a prime, a hundred times the backends or more; 101 to 1048573",
    ),
    key("seed", "0", "what connections are hashed by: the same on balancers that share their services"),
    key(
        "down_after",
        "3",
        "TCP connections in a row that a backend leaves unanswered until it is down; 0 to 255, 0 for never",
    ),
    key("answer_timeout", "3", "seconds within which a backend has to answer"),
    key("retry_after", "10", "seconds after which a backend that is down is tried again, by one connection"),
    key("transitory_timeout", "60", "idle seconds of a connection that opens or closes"),
    key("idle_timeout", "900", "idle seconds of an open connection"),
    key("flows", "1048576", "IPv4 connections that are remembered"),
    key("flows_v6", "65536", "IPv6 connections that are remembered"),
];

pub(super) const RECIPES: &[Recipe] = &[Recipe {
    cause: Cause::SameElement,
    key: "retry_after",
    help: "longer: who is down is tried more seldom, and found to be back by as much later",
}];
