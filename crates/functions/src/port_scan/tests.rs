use core::net::Ipv4Addr;

use memory::{Local, LocalTx};
use packet::{Nanos, Seq};

use super::walk::PEERS;
use super::*;
use crate::testing::report_of;

struct Bench {
    function: PortScan,
    suspect: Suspect,
    now: Nanos,
}

impl Bench {
    fn new(text: &str) -> Self {
        let function = PortScan::new(toml::from_str(text).expect("the test's own configuration"));
        Self { function, suspect: Suspect::default(), now: Nanos::from_secs(1_000) }
    }

    fn give(&mut self, event: Event, peer: u8) -> bool {
        self.at(event, peer, 80)
    }

    fn at(&mut self, event: Event, peer: u8, port: u16) -> bool {
        let [host, peer] = [1, peer].map(|last| Host::v4(Ipv4Addr::new(10, 0, 0, last)));
        let mut cx = Context::<PortScan, Local>::new(&(), LocalTx::default(), self.now, Seq(0));
        let Ok(verdict) = self.function.packet(&mut cx, &mut self.suspect, &Contact { host, peer, port, event });
        assert_eq!(cx.effects().assured, self.suspect.standing == Standing::Scanner);
        let is_kept =
            matches!(event, Event::Attempt | Event::Probe | Event::Data) || self.suspect.standing != Standing::Open;
        assert!(cx.effects().deadline.is_some() || !is_kept);
        verdict == Verdict::FORWARD
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn judged(&self) -> (u32, u32) {
        (self.suspect.attempts.failed, self.suspect.attempts.succeeded)
    }
}

#[test]
fn four_failures_in_a_row_make_a_scanner() {
    let mut bench = Bench::new("");
    for peer in 2..5 {
        assert!(bench.give(Event::Attempt, peer) && bench.give(Event::Reset, peer));
    }
    assert!(bench.give(Event::Attempt, 5), "64 is less than 99");
    assert!(bench.give(Event::Reset, 5), "what others send passes");
    assert!(!bench.give(Event::Attempt, 6) && !bench.give(Event::Data, 6), "256 is not");
    assert_eq!(bench.judged(), (4, 0));
}

#[test]
fn a_success_takes_a_failure_back() {
    let mut bench = Bench::new("");
    for peer in 2..60 {
        bench.give(Event::Attempt, peer);
        assert!(bench.give(if peer % 2 == 0 { Event::Reset } else { Event::Granted }, peer));
    }
    assert_eq!((bench.judged(), bench.suspect.standing), ((29, 29), Standing::Open));
}

#[test]
fn a_harmless_past_is_no_capital() {
    let mut bench = Bench::new("");
    for peer in 2..102 {
        bench.give(Event::Attempt, peer);
        bench.give(Event::Granted, peer);
    }
    for peer in 102..106 {
        assert!(bench.give(Event::Attempt, peer));
        bench.give(Event::Reset, peer);
    }
    assert!(!bench.give(Event::Data, 2), "a walk began anew after each four successes");
}

#[test]
fn silence_is_a_failure_once_its_time_is_over() {
    let mut bench = Bench::new("");
    for peer in 2..6 {
        assert!(bench.give(Event::Attempt, peer));
    }
    bench.now = bench.now + Nanos::from_secs(3) - Nanos(1);
    assert!(bench.give(Event::Data, 2));
    assert_eq!(bench.judged(), (0, 0));
    bench.now = bench.now + Nanos(1);
    assert!(!bench.give(Event::Attempt, 9), "the packet that shows it is the first that is dropped");
    assert_eq!(bench.judged(), (4, 0));
    bench.give(Event::Granted, 3);
    assert_eq!(bench.judged(), (4, 0), "too late");
}

#[test]
fn a_contact_counts_once_and_answers_need_a_question() {
    let mut bench = Bench::new("");
    bench.give(Event::Reset, 2);
    bench.give(Event::Granted, 2);
    assert_eq!(bench.judged(), (0, 0));
    for _ in 0..5 {
        bench.give(Event::Attempt, 2);
        bench.give(Event::Reset, 2);
    }
    assert_eq!(bench.judged(), (1, 0), "a port that is closed is tried again and again by harmless hosts");
}

#[test]
fn the_oldest_that_is_settled_is_forgotten() {
    let mut bench = Bench::new("block = false");
    let last = 1 + PEERS as u8;
    for peer in 2..=last {
        bench.give(Event::Attempt, peer);
    }
    bench.give(Event::Attempt, 100);
    bench.give(Event::Granted, 100);
    assert_eq!(bench.judged(), (0, 0), "where all are open, one more isn't judged");
    assert_eq!(usize::from(bench.suspect.most_ports()), 0);
    bench.give(Event::Granted, 3);
    bench.give(Event::Attempt, 100);
    bench.give(Event::Granted, 100);
    bench.give(Event::Granted, 2);
    assert_eq!(bench.judged(), (0, 3));
    bench.give(Event::Attempt, 3);
    bench.give(Event::Granted, 3);
    assert_eq!(bench.judged(), (0, 4), "3 made room, so that it is a first contact again");
    bench.wait(3);
    bench.give(Event::Data, 2);
    assert_eq!(bench.judged(), (PEERS as u32 - 2, 4));
    assert!(bench.give(Event::Data, 2), "it is reported, not blocked");
    assert_eq!(bench.suspect.standing, Standing::Scanner);
}

#[test]
fn what_is_open_at_the_end_has_failed() {
    let mut bench = Bench::new("");
    for peer in 2..6 {
        assert!(bench.give(Event::Attempt, peer));
    }
    let host = Host::v4(Ipv4Addr::new(10, 0, 0, 1));
    let rows = |bench: &Bench| report_of(&bench.function, [(host, bench.suspect)]).unwrap().rows;
    assert_eq!(rows(&bench), [["10.0.0.1", "4", "0", "1"]]);
    bench.give(Event::Granted, 2);
    assert!(rows(&bench).is_empty(), "three of four");
}

#[test]
fn a_scanner_that_falls_silent_is_named_and_not_blocked() {
    let mut bench = Bench::new("idle_timeout = 60\nremember = 600");
    for peer in 2..6 {
        bench.give(Event::Attempt, peer);
        bench.give(Event::Reset, peer);
    }
    assert!(!bench.give(Event::Data, 2));
    bench.wait(59);
    assert!(!bench.give(Event::Data, 2));
    bench.wait(60);
    assert!(bench.give(Event::Data, 2), "it begins anew");
    assert_eq!((bench.suspect.standing, bench.judged()), (Standing::Former, (4, 0)));
    let host = Host::v4(Ipv4Addr::new(10, 0, 0, 1));
    let report = report_of(&bench.function, [(host, bench.suspect)]).unwrap();
    assert_eq!(report.rows, [["10.0.0.1", "4", "0", "1"]]);
    for peer in 12..16 {
        bench.give(Event::Attempt, peer);
        bench.give(Event::Reset, peer);
    }
    assert!(!bench.give(Event::Data, 2), "and scans again");
}

#[test]
fn many_ports_of_one_host_are_a_scan() {
    let mut bench = Bench::new("");
    for port in 1..15 {
        assert!(bench.at(Event::Attempt, 2, port) && bench.at(Event::Attempt, 2, port));
        assert!(bench.at(Event::Reset, 2, port) && bench.at(Event::Reset, 2, port));
        assert!(bench.at(Event::Attempt, 2, 1_000 + port));
        assert!(bench.at(Event::Granted, 2, 1_000 + port), "what opens is no failure");
    }
    assert!(bench.at(Event::Attempt, 2, 15) && bench.at(Event::Reset, 2, 15));
    assert!(!bench.at(Event::Attempt, 2, 16), "fifteen were");
    assert_eq!((bench.suspect.most_ports(), bench.judged()), (15, (1, 0)));
}

#[test]
fn ports_that_say_nothing_have_failed_and_acknowledgements_have_not() {
    for (event, is_scan) in [(Event::Attempt, true), (Event::Probe, false)] {
        let mut bench = Bench::new("ports = 3");
        for port in 1..=3 {
            assert!(bench.at(event, 2, port));
        }
        bench.wait(3);
        assert_eq!(bench.give(Event::Data, 2), !is_scan);
    }
    let mut bench = Bench::new("ports = 3");
    for port in 1..=3 {
        assert!(bench.at(Event::Probe, 2, port) && bench.at(Event::Reset, 2, port));
    }
    assert!(!bench.give(Event::Data, 2), "a scan that asks for resets");
}

#[test]
fn ports_count_for_a_time_and_for_one_host() {
    let mut bench = Bench::new("ports = 3\nports_within = 10");
    for port in 1..=6 {
        assert!(bench.at(Event::Attempt, 2, port) && bench.at(Event::Reset, 2, port));
        bench.wait(5);
    }
    for (host, port) in [(2, 11), (3, 11), (2, 12), (3, 12)] {
        assert!(bench.at(Event::Attempt, host, port) && bench.at(Event::Reset, host, port));
    }
    assert_eq!(bench.suspect.most_ports(), 2);
}

#[test]
fn only_those_who_ask_are_suspects() {
    let bench = Bench::new("");
    let host = Host::v4(Ipv4Addr::LOCALHOST);
    for event in [Event::Attempt, Event::Probe, Event::Data, Event::Granted, Event::Reset] {
        let contact = Contact { host, peer: host, port: 80, event };
        let mut cx = Context::<PortScan, Local>::new(&(), LocalTx::default(), bench.now, Seq(0));
        let Ok(opened) = bench.function.open(&mut cx, &contact);
        assert_eq!(matches!(opened, Opened::Refused(Verdict::FORWARD)), PortScan::refuses(&bench.function, &contact));
        assert_eq!(PortScan::refuses(&bench.function, &contact), !matches!(event, Event::Attempt | Event::Probe));
    }
}

#[test]
fn the_report_lists_scanners_alone() {
    let mut bench = Bench::new("");
    for peer in 2..6 {
        bench.give(Event::Attempt, peer);
        bench.give(Event::Reset, peer);
    }
    let host = |last| Host::v4(Ipv4Addr::new(10, 0, 0, last));
    let report = |flows: &[(Host, Suspect)]| report_of(&bench.function, flows.iter().copied()).unwrap();
    let mut harmless = Suspect::default();
    let unanswered = report(&[(host(1), bench.suspect), (host(2), harmless)]);
    assert_eq!(unanswered.rows, [["10.0.0.1", "4", "0", "1"]]);
    assert!(unanswered.title.contains("another path"), "{}", unanswered.title);
    harmless.attempts.succeeded = 1;
    assert_eq!(report(&[(host(1), bench.suspect), (host(2), harmless)]).title, "hosts that scan");
    assert_eq!(report(&[(host(2), Suspect::default())]).title, "hosts that scan");
}
