//! Tests that the function is right, and that every engine agrees.

use std::io::Cursor;
use std::sync::Arc;

use crate::skeleton::{Config, Skeleton};
use millrace::cases;
use millrace::catalogue::CatalogueEntry;
use millrace::engine::{EngineKind, Options};
use millrace::packet::LinkType;
use millrace::port::Trace;
use millrace::port::pcap::Reader;
use millrace::prelude::*;
use millrace::testkit::conformance::{Plan, verify};
use millrace::testkit::{Build, Driver};

#[test]
fn a_host_sends_as_much_as_it_may() {
    let mut driver = Driver::new(Skeleton::new(Config { limit: 2, ..Config::default() }));
    let packet = Build::udp("192.0.2.1:1000", "198.51.100.1:53").bytes();
    let mut verdict = |second| driver.frame(Nanos::from_secs(second), LinkType::Ethernet, &packet);
    assert_eq!([1, 2, 3].map(&mut verdict), [Verdict::FORWARD, Verdict::FORWARD, Verdict::Drop(Reason::own(0))]);
    assert_eq!(verdict(100), Verdict::FORWARD, "it was quiet for longer than a minute");
}

/// `cases.toml` has packets and their expected outcomes.
#[test]
fn cases_come_out_as_they_should() {
    let outcome = cases::check(&CatalogueEntry::of(Skeleton::new), include_str!("cases.toml"));
    assert_eq!(outcome, Ok(()));
}

#[test]
fn every_engine_agrees() {
    let function = Arc::new(Skeleton::new(Config { limit: 20, ..Config::default() }));
    let capture = Reader::from_read(Cursor::new(millrace::DEMO_CAPTURE), "the demo's capture");
    let trace = Trace::load(&mut capture.expect("it is a capture"), 5000).expect("it can be read");
    let engines = EngineKind::ALL.to_vec();
    let plan = Plan { engines, cores: 1..=3, seeds: 0..3, threads: true, options: Options::default() };
    let verified = verify(&function, &trace, &plan, &mut |_, _| {});
    assert_eq!(verified.mismatch, None, "{}", Skeleton::DESCRIPTION.name);
}
