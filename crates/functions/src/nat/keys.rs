//! The translator's keys and recipes, as the catalogue shows them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn config_key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    config_key(
        "inside",
        r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]"#,
        "prefixes whose packets are translated",
    ),
    config_key("external", r#"["203.0.113.1"]"#, "external addresses or prefixes, up to 256 addresses"),
    config_key(
        "forward",
        "[]",
        "external ports that are an inside host's: { external = \"203.0.113.1:80\", internal = \"10.0.0.8:8080\", protocol = \"tcp\" }, or as many of both (8000-8010); up to 256",
    ),
    config_key(
        "static",
        "[]",
        "external addresses that are an inside host's, not among `external`: { external = \"203.0.113.7\", internal = \"10.0.0.7\" }; up to 256",
    ),
    config_key("ports", r#""1024-65535""#, "external ports, and identifiers of ICMP queries"),
    config_key("mapping", r#""endpoint-independent""#, "the one mapping there is"),
    config_key(
        "filtering",
        r#""endpoint-independent""#,
        "who may send in: that, \"address-dependent\" or \"address-and-port-dependent\"",
    ),
    config_key(
        "pooling",
        r#""paired""#,
        "whether a host keeps to one external address (\"paired\") or not (\"arbitrary\")",
    ),
    config_key("hairpinning", "true", "inside hosts reach each other by their external endpoints"),
    config_key("port_parity", "true", "an even UDP port becomes an even one, an odd one odd"),
    config_key("port_preservation", "true", "an inside port becomes the same external one if it is free"),
    config_key("inbound_refresh", "false", "packets from outside keep UDP and ICMP sessions alive, too"),
    config_key("loose", "true", "whether TCP connections may be picked up half-way, from inside"),
    config_key("mappings", "65536", "how many inside endpoints at a time"),
    config_key("sessions", "65536", "how many sessions at a time"),
    config_key("list", "0", "how many mappings the report lists, in place of what is in use by address; 0 to 1000000"),
    config_key(
        "pool.overprovision",
        "0",
        "how much more mappings, sessions and, as far as there are any, ports than that: 0.05 for 5 %; 0 to 1",
    ),
    config_key("timeouts.udp", "300", "idle seconds of a UDP session; RFC 4787 asks for 120 or more"),
    config_key(
        "timeouts.tcp_established",
        "7440",
        "idle seconds of an open connection; RFC 5382 asks for 7440 or more",
    ),
    config_key(
        "timeouts.tcp_transitory",
        "240",
        "idle seconds of one that opens or closes; RFC 5382 asks for 240 or more",
    ),
    config_key("timeouts.icmp", "60", "idle seconds of an ICMP query; RFC 5508 asks for 60 or more"),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::ForeignPool,
        key: "port_preservation",
        help: "false: a core takes any port of its own pool in place of the inside port, which others may hold",
    },
    Recipe {
        cause: Cause::SameIndex,
        key: "port_preservation",
        help: "false: hosts that use the same inside port don't ask for the same external one",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "pool.overprovision, external, ports",
        help: "more than are needed at once, so that no core runs out of its share: 5 % more of all, another address, or more ports",
    },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "pool.overprovision, mappings, sessions",
        help: "more than are needed at once, so that no core runs out of its share",
    },
    Recipe {
        cause: Cause::SameBucket,
        key: "mappings, sessions",
        help: "more of them: their maps have half as many buckets again",
    },
];
