//! The configuration keys and recipes of `nat`, as the catalogue prints them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn config_key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    config_key("inside", r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]"#, "prefixes of the inside hosts"),
    config_key("external", r#"["203.0.113.1"]"#, "external addresses or prefixes, up to 256 addresses"),
    config_key(
        "forward",
        "[]",
        "port forwarding, external ports to an inside host: { external = \"203.0.113.1:80\", internal = \"10.0.0.8:8080\", protocol = \"tcp\" }, or equally long ranges (8000-8010); up to 256 entries",
    ),
    config_key(
        "static",
        "[]",
        "one-to-one mappings, an external address that is not in `external` to an inside host: { external = \"203.0.113.7\", internal = \"10.0.0.7\" }; up to 256 entries",
    ),
    config_key("ports", r#""1024-65535""#, "external ports, also used as identifiers of ICMP queries"),
    config_key("mapping", r#""endpoint-independent""#, "the only value"),
    config_key(
        "filtering",
        r#""endpoint-independent""#,
        "who may send in: anyone, or only remote endpoints sent to before, with \"address-dependent\" or \"address-and-port-dependent\"",
    ),
    config_key(
        "pooling",
        r#""paired""#,
        "a host always uses one external address (\"paired\"), or the next one when that has no free port (\"arbitrary\")",
    ),
    config_key("hairpinning", "true", "inside hosts can reach each other at their external endpoints"),
    config_key("port_parity", "true", "an even UDP port is mapped to an even one, an odd port to an odd one"),
    config_key("port_preservation", "true", "an inside port is mapped to the same external port if that is free"),
    config_key("inbound_refresh", "false", "packets from outside also extend UDP and ICMP sessions"),
    config_key("loose", "true", "a segment from inside may pick up a TCP connection midstream"),
    config_key("mappings", "65536", "maximum number of mappings at a time"),
    config_key("sessions", "65536", "maximum number of sessions at a time"),
    config_key("list", "0", "number of mappings in the report, instead of the usage by address; 0 to 1000000"),
    config_key(
        "pool.overprovision",
        "0",
        "extra share of mappings, sessions and, as far as there are any, ports: 0.05 for 5 %; 0 to 1",
    ),
    config_key("timeouts.udp", "300", "idle seconds of a UDP session; RFC 4787 requires 120 or more"),
    config_key(
        "timeouts.tcp_established",
        "7440",
        "idle seconds of an open connection; RFC 5382 requires 7440 or more",
    ),
    config_key(
        "timeouts.tcp_transitory",
        "240",
        "idle seconds of a connection that is opening or closing; RFC 5382 requires 240 or more",
    ),
    config_key("timeouts.icmp", "60", "idle seconds of an ICMP query; RFC 5508 requires 60 or more"),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::ForeignPool,
        key: "port_preservation",
        help: "false: a core takes any port of its own pool, not the inside port, which another core may hold",
    },
    Recipe {
        cause: Cause::SameIndex,
        key: "port_preservation",
        help: "false: hosts with the same inside port don't compete for the same external port",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "pool.overprovision, external, ports",
        help: "more than needed: a core then doesn't use up its share. 5 % more of all, another address, or more ports",
    },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "pool.overprovision, mappings, sessions",
        help: "larger than needed: a core then doesn't use up its share",
    },
    Recipe { cause: Cause::SameBucket, key: "mappings, sessions", help: "larger: their maps have more buckets" },
];
