use std::string::ToString;

use memory::{Local, LocalTx};
use nf::local_fingerprint;
use packet::Seq;

use super::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);
const C: Mac = Mac([2, 0, 0, 0, 0, 0xc]);
const ALL: Mac = Mac([0xff; 6]);

struct Bench {
    bridge: Bridge,
    stations: Stations<Local>,
    now: Nanos,
}

impl Bench {
    fn new(text: &str) -> Self {
        let bridge = Bridge::new(&toml::from_str(text).expect("the test's own configuration"));
        Self { stations: bridge.shared(&Local::default()), bridge, now: Nanos::from_secs(1_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn send(&mut self, source: Mac, destination: Mac, port: u16) -> Verdict {
        let mut cx = Context::new(&self.stations, LocalTx::default(), self.now, Seq(0));
        let Ok(verdict) = self.bridge.packet(&mut cx, &mut (), &Frame { source, destination, port });
        verdict
    }

    fn known(&self) -> usize {
        let is_known = |index: &usize| self.stations.pool.deadline(&mut LocalTx::default(), *index) != Ok(None);
        (0..self.stations.pool.capacity()).filter(is_known).count()
    }
}

const fn to(port: u16) -> Verdict {
    Verdict::Forward(PortId(port))
}

#[test]
fn a_station_is_found_once_it_has_spoken() {
    let mut bench = Bench::new("");
    assert_eq!(bench.send(A, B, 0), Verdict::FORWARD, "nobody knows where B is");
    assert_eq!(bench.send(B, A, 1), to(0));
    assert_eq!(bench.send(A, B, 0), to(1));
    assert_eq!(bench.send(C, A, 0), Verdict::Drop(SAME_SIDE));
    assert_eq!(bench.send(A, ALL, 0), Verdict::FORWARD);
    assert_eq!(bench.send(A, Mac([1, 0, 0x5e, 0, 0, 1]), 0), Verdict::FORWARD);
}

#[test]
fn a_station_that_moves_is_found_where_it_is() {
    let mut bench = Bench::new("refresh_interval = 10");
    bench.send(A, ALL, 0);
    assert_eq!(bench.send(B, A, 1), to(0));
    bench.send(A, ALL, 1);
    assert_eq!(bench.send(B, A, 1), Verdict::Drop(SAME_SIDE), "a move is written at once, whatever the interval");
    assert_eq!(bench.send(B, A, 0), to(1));
}

#[test]
fn reserved_addresses_stay_on_their_side_and_are_learnt_from() {
    let mut bench = Bench::new("");
    for last in 0..=0x0f {
        assert_eq!(bench.send(A, Mac([1, 0x80, 0xc2, 0, 0, last]), 0), Verdict::Drop(RESERVED));
    }
    assert_eq!(bench.send(A, Mac([1, 0x80, 0xc2, 0, 0, 0x10]), 0), Verdict::FORWARD);
    assert_eq!(bench.send(B, A, 1), to(0));
}

#[test]
fn silence_is_forgotten_after_its_time_and_not_before() {
    let mut bench = Bench::new("ageing = 20");
    bench.send(A, ALL, 0);
    bench.now = bench.now + Nanos::from_secs(20) - Nanos(1);
    assert_eq!(bench.send(B, A, 1), to(0));
    bench.now = bench.now + Nanos(1);
    assert_eq!(bench.send(B, A, 1), Verdict::FORWARD, "to the nanosecond, whenever its place is taken back");
    bench.wait(1);
    bench.send(B, ALL, 1);
    assert_eq!(bench.known(), 1);
}

#[test]
fn an_entry_is_written_again_only_when_it_is_older_than_the_interval() {
    let mut bench = Bench::new("ageing = 20\nrefresh_interval = 5");
    bench.send(A, ALL, 0);
    let digest = |bench: &Bench| local_fingerprint(&bench.bridge, &bench.stations);
    let first = digest(&bench);
    bench.wait(5);
    bench.send(A, ALL, 0);
    assert_eq!(digest(&bench), first, "five seconds are not more than five");
    bench.now = bench.now + Nanos(1);
    bench.send(A, ALL, 0);
    assert_ne!(digest(&bench), first);
    bench.now = bench.now + Nanos::from_secs(20) - Nanos(1);
    assert_eq!(bench.send(B, A, 1), to(0), "twenty seconds count from the second writing");
}

#[test]
fn a_full_table_learns_nobody_and_loses_nobody() {
    let mut bench = Bench::new("stations = 2\nageing = 20");
    bench.send(A, ALL, 0);
    bench.send(B, ALL, 1);
    assert_eq!(bench.send(C, B, 0), to(1), "who is unknown is served as well");
    assert_eq!(bench.send(A, C, 1), Verdict::FORWARD);
    bench.wait(21);
    bench.send(C, ALL, 0);
    assert_eq!(bench.send(B, C, 1), to(0), "those who fell silent have made room");
}

#[test]
fn the_index_is_no_part_of_the_fingerprint() {
    let digest = |order: &[Mac]| {
        let mut bench = Bench::new("");
        for mac in order {
            bench.send(*mac, ALL, 0);
        }
        local_fingerprint(&bench.bridge, &bench.stations)
    };
    assert_eq!(digest(&[A, B, C]), digest(&[C, A, B]));
    assert_ne!(digest(&[A, B]), digest(&[A, C]));
}

#[test]
fn a_record_comes_back_unless_nobody_can_have_sent_it() {
    let frame = Frame { source: A, destination: ALL, port: 513 };
    let mut record = [0; Frame::RECORD_BYTES];
    frame.write(&mut record);
    assert_eq!(Frame::read(&record), Some(frame));
    record[0] |= 1;
    assert_eq!(Frame::read(&record), None);
    assert_eq!(Frame::read(&[0; Frame::RECORD_BYTES]), None);
}

#[test]
fn an_interval_beyond_the_age_is_refused() {
    let error = toml::from_str::<Config>("ageing = 60\nrefresh_interval = 60").unwrap_err().to_string();
    assert!(error.contains("`refresh_interval` (60) must be less than `ageing` (60)"), "{error}");
    assert!(toml::from_str::<Config>("ageing = 60\nrefresh_interval = 59").is_ok());
    for (text, says) in [("stations = 0", "from 1 to 16777216"), ("\nageing = 0", "line 2, column 10")] {
        let error = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
