//! The translator with mappings that the configuration fixes, under every engine.

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::nat::Nat;
use lab::conformance::{Plan, verify};
use packet::{Nanos, TcpFlags};
use testkit::{Build, Driver, Frames};

const SECOND: u64 = 1_000_000_000;

const FIXED: &str = "external = [\"203.0.113.1\"]\nports = \"1024-1055\"\nmappings = 64\nsessions = 128\n\
    timeouts.udp = 2\ntimeouts.tcp_transitory = 3\n\
    static = [{ external = \"203.0.113.7\", internal = \"10.0.0.7\" }]\n\
    forward = [{ external = \"203.0.113.1:1030\", internal = \"10.0.0.8:80\", protocol = \"tcp\" },\n\
    { external = \"203.0.113.1:1040-1043\", internal = \"10.0.0.8:5000-5003\", protocol = \"udp\" }]";

/// Strangers at forwarded ports and at a host with an address of its own, among hosts that take all other ports.
fn traffic() -> Frames {
    let mut frames = Frames::default();
    for number in 0..600_u64 {
        let now = Nanos(SECOND + number * SECOND / 100);
        let (far, host) = (format!("198.51.100.{}:{}", number % 7, 9_000 + number % 11), number % 40);
        let inside = format!("10.0.1.{host}:{}", 1_020 + host);
        frames.build(
            now,
            &match number % 10 {
                0 => Build::tcp(&*far, "203.0.113.1:1030").flags(TcpFlags::SYN),
                1 => Build::tcp("10.0.0.8:80", &*far).flags(TcpFlags::SYN.with(TcpFlags::ACK)),
                2 => Build::udp(&*far, &*format!("203.0.113.1:{}", 1_040 + number % 5)),
                3 => Build::udp(&*format!("10.0.0.8:{}", 5_000 + number % 5), &*far),
                4 => Build::udp(&*far, "203.0.113.7:53"),
                5 => Build::tcp("10.0.0.7:22", &*far).flags(TcpFlags::SYN),
                6 => Build::tcp(&*inside, "203.0.113.1:1030").flags(TcpFlags::SYN),
                7 => Build::udp(&*inside, &*far),
                8 => Build::echo(&*format!("10.0.1.{host}"), "203.0.113.7", number as u16, 1),
                _ => Build::echo_reply("10.0.0.7", "203.0.113.1", 1_024 + host as u16, 1),
            },
        );
    }
    frames
}

#[test]
fn every_engine_keeps_what_is_fixed() {
    let config = |text: &str| Nat::new(toml::from_str(text).expect("the test's own configuration"));
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..3,
        threads: true,
        options: Options::default(),
    };
    let trace = traffic().trace();
    for text in ["", "\nfiltering = \"address-dependent\"", "\nport_preservation = false\npooling = \"arbitrary\""] {
        let text = format!("{FIXED}{text}");
        let mut driver = Driver::new(config(&format!("{text}\nlist = 1000")));
        driver.run(&traffic());
        let report = driver.report().expect("it has a report");
        let given = |row: &[nf::Cell]| (row[4] != "fixed" && row[0] != "icmp").then(|| row[2].to_string());
        let is_fixed = |end: &String| {
            end.starts_with("203.0.113.7:") || ["1030", "1040", "1043"].iter().any(|port| end.ends_with(port))
        };
        assert!(
            report.rows.len() > 10 && !report.rows.iter().filter_map(|row| given(row)).any(|end| is_fixed(&end)),
            "{report:#?}"
        );
        let verified = verify(&Arc::new(config(&text)), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
    }
}
