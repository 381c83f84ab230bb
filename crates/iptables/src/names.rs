//! Names that iptables takes for numbers.

pub(crate) mod icmp;
pub(crate) mod protocols;
pub(crate) mod services;

/// Classes of DSCP.
pub(crate) const DSCP_CLASSES: &[(&str, u8)] = &[
    ("CS0", 0x00),
    ("CS1", 0x08),
    ("CS2", 0x10),
    ("CS3", 0x18),
    ("CS4", 0x20),
    ("CS5", 0x28),
    ("CS6", 0x30),
    ("CS7", 0x38),
    ("BE", 0x00),
    ("AF11", 0x0a),
    ("AF12", 0x0c),
    ("AF13", 0x0e),
    ("AF21", 0x12),
    ("AF22", 0x14),
    ("AF23", 0x16),
    ("AF31", 0x1a),
    ("AF32", 0x1c),
    ("AF33", 0x1e),
    ("AF41", 0x22),
    ("AF42", 0x24),
    ("AF43", 0x26),
    ("EF", 0x2e),
];

/// Names of the type of service.
pub(crate) const TOS: &[(&str, u8)] = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];

/// Levels of syslog.
pub(crate) const LOG_LEVELS: &[(&str, u8)] = &[
    ("alert", 1),
    ("crit", 2),
    ("debug", 7),
    ("emerg", 0),
    ("error", 3),
    ("info", 6),
    ("notice", 5),
    ("panic", 0),
    ("warning", 4),
];

/// Options of TCP that TCPOPTSTRIP knows by name.
pub(crate) const TCP_OPTIONS: &[(&str, u8)] =
    &[("wscale", 3), ("mss", 2), ("sack-permitted", 4), ("sack", 5), ("timestamp", 8), ("md5", 19)];
