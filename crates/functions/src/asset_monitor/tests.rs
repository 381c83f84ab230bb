use core::net::Ipv4Addr;

use memory::{Local, LocalTx};
use nf::{Meta, local_fingerprint};
use packet::{FiveTuple, Seq, protocol};

use super::systems::System;
use super::*;
use crate::testing::report_at;

struct Bench {
    function: AssetMonitor,
    assets: Assets<Local>,
    session: Session,
    now: Nanos,
}

impl Bench {
    fn new(text: &str) -> Self {
        let function = AssetMonitor::new(toml::from_str(text).expect("the test's own configuration"));
        let assets = function.shared(&Local::default());
        Self { function, assets, session: Session::default(), now: Nanos::from_secs(1_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn give(&mut self, protocol: u8, from_client: bool, look: Look) {
        let tuple = FiveTuple::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 4_000, 22, protocol);
        let tuple = if from_client { tuple } else { tuple.reversed() };
        let mut cx = Context::<AssetMonitor, Local>::new(&self.assets, LocalTx::default(), self.now, Seq(0));
        let Ok(verdict) = self.function.packet(&mut cx, &mut self.session, &Sighting::new(tuple, 100, look));
        assert_eq!(verdict, Verdict::FORWARD);
    }

    fn told(&self) -> ([Option<System>; 2], Option<(u8, &str)>) {
        let (assets, service) = self.session.told();
        let named = service.map(|(server, service)| (server, self.function.service_name(service)));
        (assets.map(|asset| asset.map(|asset| asset.told.system)), named)
    }
}

fn ssh() -> Look {
    let Protocol(number) = Signatures::shared().find("ssh").expect("it is known");
    Look::Speaks(number + 1)
}

#[test]
fn a_connection_tells_of_both_ends() {
    let mut bench = Bench::new("");
    bench.give(protocol::TCP, true, Look::Asks(System::Windows));
    assert_eq!(bench.told(), ([Some(System::Windows), None], None));
    bench.give(protocol::TCP, false, Look::Grants(System::Linux));
    bench.give(protocol::TCP, true, ssh());
    assert_eq!(
        bench.told(),
        ([Some(System::Windows), Some(System::Linux)], Some((1, "unknown"))),
        "the server's words count"
    );
    bench.give(protocol::TCP, false, ssh());
    assert_eq!(bench.told().1, Some((1, "ssh")));
    let [client, server] = bench.session.assets.map(|asset| asset.expect("both are known").services);
    assert_eq!((client, server), (0, 1));
}

#[test]
fn a_session_comes_back_from_its_words() {
    let mut bench = Bench::new("refresh_interval = 1");
    let mut seen = vec![Session::default()];
    for (protocol, from_client, look) in [
        (protocol::UDP, false, Look::Speaks(0)),
        (protocol::UDP, true, Look::Speaks(0)),
        (protocol::TCP, true, Look::Asks(System::Scanner)),
        (protocol::TCP, false, Look::Grants(System::Linux)),
        (protocol::TCP, false, ssh()),
    ] {
        bench.wait(2);
        bench.give(protocol, from_client, look);
        seen.push(bench.session);
    }
    seen.extend([Some(0), Some(1)].map(|side| Session {
        server: side,
        opener: None,
        service: u16::MAX,
        ..bench.session
    }));
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "each is another one");
    for session in seen {
        assert_eq!(<Session as packet::Words>::from_words(packet::Words::to_words(&session)), session);
    }
}

#[test]
fn who_answers_a_datagram_offers_a_service() {
    let mut bench = Bench::new("");
    for _ in 0..2 {
        bench.give(protocol::UDP, true, Look::Speaks(0));
        assert_eq!(bench.told().1, None);
    }
    bench.give(protocol::UDP, false, Look::Speaks(0));
    bench.give(protocol::UDP, true, Look::Speaks(0));
    assert_eq!(bench.told().1, Some((1, "unknown")));
}

#[test]
fn a_syn_tells_more_than_a_syn_ack() {
    let mut bench = Bench::new("refresh_interval = 1");
    let client = |bench: &Bench| bench.told().0[0];
    bench.give(protocol::TCP, true, Look::Grants(System::Device));
    bench.give(protocol::TCP, true, Look::Asks(System::Linux));
    bench.wait(2);
    bench.give(protocol::TCP, true, Look::Grants(System::Device));
    assert_eq!(client(&bench), Some(System::Linux));
    bench.wait(2);
    bench.give(protocol::TCP, true, Look::Asks(System::Windows));
    assert_eq!(client(&bench), Some(System::Windows), "the address has changed hands");
}

#[test]
fn a_host_is_written_again_only_when_it_is_due() {
    let mut bench = Bench::new("refresh_interval = 10");
    bench.give(protocol::TCP, true, Look::Quiet);
    let first = bench.session;
    bench.wait(9);
    bench.give(protocol::TCP, true, Look::Quiet);
    assert_eq!(bench.session, first);
    bench.wait(1);
    bench.give(protocol::TCP, true, Look::Quiet);
    let asset = bench.session.assets[0].expect("it is known");
    assert_eq!((asset.last, asset.last.since(asset.first)), (bench.now, Nanos::from_secs(10)));
}

/// Steps of other cores are not in time order.
#[test]
fn what_was_seen_first_and_last_goes_by_time() {
    let mut bench = Bench::new("");
    let times = |bench: &Bench| {
        bench.session.told().0[0].map(|asset| (asset.first.0 / 1_000_000_000, asset.last.0 / 1_000_000_000))
    };
    bench.give(protocol::TCP, true, Look::Asks(System::Windows));
    assert_eq!(times(&bench), Some((1_000, 1_000)));
    // Another session of the same hosts.
    for (now, want) in [(990, (990, 1_000)), (1_020, (990, 1_020)), (1_010, (990, 1_020))] {
        (bench.session, bench.now) = (Session::default(), Nanos::from_secs(now));
        bench.give(protocol::TCP, true, Look::Asks(System::Windows));
        assert_eq!(times(&bench), Some(want));
    }
}

#[test]
fn silence_is_forgotten_and_makes_room() {
    let mut bench = Bench::new("hosts = 2\nservices = 1\nasset_timeout = 20\nrefresh_interval = 1");
    let grants = Look::Grants(System::Linux);
    bench.give(protocol::TCP, true, Look::Quiet);
    bench.give(protocol::TCP, false, grants);
    let digest = |bench: &Bench| local_fingerprint(&bench.function, &bench.assets);
    let full = digest(&bench);
    bench.session = Session::default();
    let third = FiveTuple::v4(Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 2), 9, 9, protocol::TCP);
    let give_third = |bench: &mut Bench| {
        let mut cx = Context::<AssetMonitor, Local>::new(&bench.assets, LocalTx::default(), bench.now, Seq(0));
        let Ok(_) = bench.function.packet(&mut cx, &mut bench.session, &Sighting::new(third, 100, grants));
        bench.session.assets[1].is_some()
    };
    assert!(!give_third(&mut bench), "there is room for two");
    assert_ne!(digest(&bench), full, "traffic is summed all the same");
    bench.wait(21);
    assert!(give_third(&mut bench));
    bench.session = Session::default();
    bench.give(protocol::TCP, true, Look::Quiet);
    let asset = bench.session.assets[0].expect("there is room again");
    assert_eq!((asset.first, asset.services), (bench.now, 0), "it is known anew");
}

#[test]
fn records_of_no_packet_are_refused() {
    let tuple = FiveTuple::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 2, 1, protocol::TCP);
    let mut record = [0; Sighting::RECORD_BYTES];
    for look in [Look::Quiet, Look::Asks(System::Scanner), Look::Speaks(0), ssh(), Look::Grants(System::Linux)] {
        let sighting = Sighting::new(tuple, 1_500, look);
        sighting.write(&mut record);
        assert_eq!(Sighting::read(&record), Some(sighting));
    }
    let last = record.len() - 1;
    for (at, byte) in [(0, 8), (0, 0), (last, 200), (nf::ENDS_BYTES, protocol::ICMP)] {
        let mut wrong = record;
        wrong[at] = byte;
        assert_eq!(Sighting::read(&wrong), None, "byte {at} is {byte}");
    }
}

#[test]
fn the_report_lists_hosts_with_their_services() {
    let mut bench = Bench::new("");
    bench.give(protocol::TCP, true, Look::Asks(System::Windows));
    bench.give(protocol::TCP, false, Look::Grants(System::Linux));
    bench.give(protocol::TCP, false, ssh());
    bench.wait(5);
    bench.give(protocol::TCP, true, Look::Quiet);
    let report = report_at(&bench.function, &[], &bench.assets, bench.now).expect("it has a report");
    assert_eq!(report.title, "2 hosts; 4 packets, 400 bytes");
    assert_eq!(report.rows[0], ["10.0.0.1", "Windows", "1000", "1000", "0", ""]);
    assert_eq!(report.rows[1], ["10.0.0.2", "Linux", "1000", "1000", "1", "22/tcp ssh"]);
    let later = bench.now + Nanos::from_secs(86_400);
    let report = report_at(&bench.function, &[], &bench.assets, later).expect("it has a report");
    assert_eq!((report.title.as_str(), report.rows.len()), ("0 hosts; 4 packets, 400 bytes", 0));
}
