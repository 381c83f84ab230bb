//! Matches and targets that iptables has and Millrace hasn't, each with the reason.

/// Matches: names and reasons.
const MATCHES: &[(&str, &str)] = &[
    ("owner", "it tests sockets of the host, and a router has none"),
    ("cgroup", "it tests processes of the host, and a router has none"),
    ("socket", "it tests sockets of the host, and a router has none"),
    ("policy", "it tests IPsec of the host"),
    ("realm", "it tests routes of the host"),
    ("devgroup", "it tests groups of the host's interfaces"),
    ("cpu", "it tests which core has the packet, and that must not change the outcome"),
    ("rateest", "it tests estimators of the host's kernel"),
    ("nfacct", "it counts in objects of the host's kernel"),
    ("osf", "it guesses operating systems by a file of fingerprints"),
    ("bpf", "it runs a program in the kernel"),
    ("ipvs", "it tests the host's load balancer"),
    ("cluster", "it divides flows among hosts"),
    ("connlabel", "labels have names in a file of the host"),
    ("srh", "segment routing headers are not parsed"),
    ("geoip", "it comes from xtables-addons, with a database of countries"),
    ("condition", "it comes from xtables-addons, and tests files of the host"),
    ("account", "it comes from xtables-addons"),
    ("fuzzy", "it comes from xtables-addons"),
    ("iface", "it comes from xtables-addons, and tests the host's interfaces"),
    ("ipp2p", "it comes from xtables-addons"),
    ("ipv4options", "it comes from xtables-addons"),
    ("length2", "it comes from xtables-addons"),
    ("lscan", "it comes from xtables-addons"),
    ("psd", "it comes from xtables-addons"),
    ("quota2", "it comes from xtables-addons"),
    ("layer7", "it is a patch of the kernel"),
    ("ndpi", "it comes from another project"),
];

/// Targets: names and reasons.
const TARGETS: &[(&str, &str)] = &[
    ("TPROXY", "it hands packets to sockets of the host"),
    ("NFQUEUE", "it hands packets to a program of the host"),
    ("QUEUE", "it hands packets to a program of the host"),
    ("SYNPROXY", "it answers TCP handshakes for the host behind it"),
    ("SECMARK", "it sets labels of the host's security module"),
    ("CONNSECMARK", "it sets labels of the host's security module"),
    ("AUDIT", "it writes to the audit log of the host"),
    ("IDLETIMER", "it reports to files of the host"),
    ("LED", "it switches lamps of the host"),
    ("RATEEST", "it feeds estimators of the host's kernel"),
    ("HMARK", "its hash is that of the kernel"),
    ("CLUSTERIP", "it divides flows among hosts"),
    ("ULOG", "newer kernels don't have it"),
    ("SNPT", "prefixes of IPv6 are not translated"),
    ("DNPT", "prefixes of IPv6 are not translated"),
    ("MIRROR", "newer kernels don't have it"),
    ("SAME", "newer kernels don't have it"),
    ("FLOWOFFLOAD", "it comes from another project"),
    ("TARPIT", "it comes from xtables-addons"),
    ("DELUDE", "it comes from xtables-addons"),
    ("CHAOS", "it comes from xtables-addons"),
    ("ECHO", "it comes from xtables-addons"),
    ("RAWNAT", "it comes from xtables-addons"),
    ("RAWSNAT", "it comes from xtables-addons"),
    ("RAWDNAT", "it comes from xtables-addons"),
    ("SYSRQ", "it comes from xtables-addons"),
    ("ACCOUNT", "it comes from xtables-addons"),
];

/// Why there is no match of this name, if iptables has one.
pub(crate) fn of_match(name: &str) -> Option<&'static str> {
    MATCHES.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason)
}

/// Why there is no target of this name, if iptables has one.
pub(crate) fn of_target(name: &str) -> Option<&'static str> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason)
}
