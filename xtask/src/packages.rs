//! System packages that some tests need as a reference. They are installed from Debian if possible. A test whose program is missing says so
//! and counts as skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::bench::without_dpdk;

/// Programs and the Debian packages that contain them.
const PROGRAMS: &[(&str, &str)] = &[
    ("tshark", "tshark"),
    ("capinfos", "wireshark-common"),
    ("tcpdump", "tcpdump"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("conntrack", "conntrack"),
    ("iptables-legacy-restore", "iptables"),
    ("ipset", "ipset"),
    ("zstd", "zstd"),
    ("spin", "spin"),
    ("gcc", "gcc"),
    ("verilator", "verilator"),
    ("clang", "clang"),
    ("ping", "iputils-ping"),
    ("nfcapd", "nfdump"),
    ("chromium", "chromium"),
    ("promtool", "prometheus"),
    ("iperf3", "iperf3"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("curl", "curl"),
];

/// Programs that `cargo xtask rtl` needs, and their Debian packages.
const FOR_RTL: &[(&str, &str)] = &[("verilator", "verilator"), ("yosys", "yosys"), ("g++", "g++"), ("make", "make")];

/// Installs missing programs for the tests, if it has the rights.
pub(crate) fn install() -> Result<()> {
    let dpdk = without_dpdk().map_or(&[][..], |_| &["pkg-config", "libdpdk-dev"]);
    install_missing(PROGRAMS, dpdk)
}

/// Installs missing programs for the sequencer in hardware, if it has the rights.
pub(crate) fn install_for_rtl() -> Result<()> {
    install_missing(FOR_RTL, &[])
}

/// Installs the packages of missing programs, and `packages`, which are missing too.
fn install_missing(programs: &[(&str, &'static str)], packages: &[&'static str]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package);
    let missing: Vec<&str> = missing.chain(packages.iter().copied()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root || !exists("apt-get") {
        println!("   not installed: {}; the tests that need them will be skipped", missing.join(", "));
        return Ok(());
    }
    println!("   installing {}", missing.join(", "));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let updated = apt(&["update"]);
    let installed = apt(&[&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat());
    if !updated || !installed {
        println!("   some could not be installed; the tests that need them will be skipped");
    }
    Ok(())
}

pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    std::env::split_paths(&path).map(|folder| folder.join(program)).chain(sbin).any(|file| file.is_file())
}
