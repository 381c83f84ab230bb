use core::net::Ipv4Addr;

use memory::{Local, LocalTx};
use nf::Meta;
use packet::{Nanos, Seq, Tcp, TcpOptions, protocol};

use super::*;
use crate::testing::report_of;

struct Bench {
    function: FlowBuffer,
    session: Session,
    now: Nanos,
    /// Deadline of the session.
    lasts: Option<Nanos>,
}

impl Bench {
    fn new(text: &str) -> Self {
        let function = FlowBuffer::new(toml::from_str(text).expect("the test's own configuration"));
        Self { function, session: Session::default(), now: Nanos::from_secs(1_000), lasts: None }
    }

    fn give(&mut self, from_client: bool, flags: TcpFlags, seq: u32, payload: &[u8]) -> Verdict {
        self.answer(from_client, flags, seq, 0, payload)
    }

    fn answer(&mut self, from_client: bool, flags: TcpFlags, seq: u32, ack: u32, payload: &[u8]) -> Verdict {
        let segment = segment(from_client, flags, seq, ack, payload, self.function.config.head_len());
        let mut cx = Context::<FlowBuffer, Local>::new(&(), LocalTx::default(), self.now, Seq(0));
        let Ok(verdict) = self.function.packet(&mut cx, &mut self.session, &segment);
        self.lasts = cx.effects().deadline;
        verdict
    }

    fn says(&mut self, seq: u32, payload: &[u8]) -> bool {
        self.give(true, TcpFlags::ACK, seq, payload) == Verdict::FORWARD
    }

    fn head(&self) -> &[u8] {
        self.session.heads()[0]
    }
}

fn segment(from_client: bool, flags: TcpFlags, seq: u32, ack: u32, payload: &[u8], carry: usize) -> Segment {
    let tuple = FiveTuple::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 4_000, 80, protocol::TCP);
    let tuple = if from_client { tuple } else { tuple.reversed() };
    let tcp = Tcp { src_port: 4_000, dst_port: 80, seq, ack, flags, window: 0, options: TcpOptions::default() };
    Segment::new(tuple, &tcp, payload.len() as u32, payload, carry).expect("it is whole")
}

#[test]
fn gaps_are_filled_and_numbers_wrap() {
    let mut bench = Bench::new("bytes = 8");
    bench.give(true, TcpFlags::SYN, u32::MAX - 2, b"");
    assert!(bench.says(2, b"efghij") && bench.head().is_empty());
    assert!(bench.says(u32::MAX - 1, b"ab") && bench.head() == b"ab");
    assert!(bench.says(0, b"cd") && bench.head() == b"abcdefgh", "{:?}", bench.head());
    assert!(bench.says(1_000, b"later") && bench.says(u32::MAX - 9, b"before"));
    assert_eq!((bench.head(), bench.session.payload), (&b"abcdefgh"[..], 21));
    assert_eq!(bench.session.contradictions, 0, "what lies outside says nothing against it");
}

#[test]
fn what_came_first_stays_and_contradictions_are_told() {
    let mut bench = Bench::new("drop_contradictions = true");
    bench.give(true, TcpFlags::SYN, 9, b"");
    assert!(bench.says(10, b"attack") && bench.says(12, b"tack"), "a repetition is none");
    let dropped = bench.give(true, TcpFlags::ACK, 12, b"TACKle");
    assert_eq!((dropped, bench.head()), (Verdict::Drop(CONTRADICTION), &b"attackle"[..]));
    assert_eq!(bench.session.contradictions, 1);
    let mut lenient = Bench::new("");
    lenient.give(true, TcpFlags::SYN, 9, b"");
    assert!(lenient.says(10, b"a") && lenient.says(10, b"b"));
    assert_eq!(lenient.session.contradictions, 1);
}

#[test]
fn a_pattern_is_found_once_the_gap_ahead_is_filled() {
    for (text, passes) in [("patterns = [\"GET \"]", false), ("patterns = [\"GET \"]\nblock = false", true)] {
        let mut bench = Bench::new(text);
        bench.give(true, TcpFlags::SYN, 9, b"");
        assert!(bench.says(12, b"T / HTTP/1.1"));
        assert_eq!(bench.says(10, b"GE"), passes);
        assert_eq!(bench.says(99, b"more"), passes);
        assert_eq!(bench.give(false, TcpFlags::ACK, 5, b"200") == Verdict::FORWARD, passes);
        let report = report_of(&bench.function, [(segment(true, TcpFlags::ACK, 0, 0, b"", 9).key(), bench.session)]);
        assert_eq!(report.unwrap().rows[0][2..5], ["GET ", "0", "GET / HTTP/1.1"]);
    }
}

#[test]
fn another_connection_begins_anew_once_the_first_is_over() {
    let mut bench = Bench::new("");
    bench.give(true, TcpFlags::SYN, 9, b"");
    bench.says(10, b"one");
    bench.give(true, TcpFlags::SYN, 70_000, b"");
    assert_eq!(bench.head(), b"one", "it isn't over");
    bench.give(true, TcpFlags::FIN, 13, b"");
    bench.give(false, TcpFlags::FIN, 50, b"");
    assert!(bench.session.is_whole(64));
    bench.give(true, TcpFlags::SYN, 70_000, b"");
    bench.says(70_001, b"two");
    assert_eq!(bench.head(), b"two");
}

#[test]
fn a_session_that_began_as_listed_is_named_and_not_blocked_behind_a_silence() {
    let mut bench = Bench::new("patterns = [\"GET \"]\nidle_timeout = 10\nremember = 100");
    assert!(!bench.says(10, b"GET /"));
    bench.now = bench.now + Nanos::from_secs(10);
    assert!(bench.says(70, b"hello") && bench.head() == b"hello", "it begins anew");
    let key = segment(true, TcpFlags::ACK, 0, 0, b"", 9).key();
    let report = report_of(&bench.function, [(key, bench.session)]).unwrap();
    assert_eq!(report.rows[0][2], "GET ");
    assert_eq!(bench.lasts, Some(bench.now + Nanos::from_secs(100)));
}

const SYN: TcpFlags = TcpFlags::SYN;
const SYN_ACK: TcpFlags = TcpFlags::SYN.with(TcpFlags::ACK);
const ACK: TcpFlags = TcpFlags::ACK;

/// A forged SYN, SYN-ACK or reset with other sequence numbers doesn't hide data.
#[test]
fn strays_turn_no_pattern_off() {
    let stray: &[(bool, TcpFlags, u32, u32)] = &[
        (true, SYN, 7_000, 0),
        (false, SYN_ACK, 8_000, 7_001),
        (false, SYN_ACK, 8_000, 101),
        (true, TcpFlags::RST, 9, 0),
    ];
    let handshake = [(true, SYN, 100, 0), (false, SYN_ACK, 500, 101), (true, ACK, 101, 501)];
    for place in 0..=handshake.len() {
        for (number, strays) in [&stray[..1], &stray[1..2], &stray[2..3], &[stray[3], stray[0]]].into_iter().enumerate()
        {
            let mut bench = Bench::new("patterns = [\"EVIL\"]");
            let mut packets = handshake.to_vec();
            packets.splice(place..place, strays.iter().copied());
            for (from_client, flags, seq, ack) in packets {
                assert_eq!(bench.answer(from_client, flags, seq, ack, b""), Verdict::FORWARD);
            }
            let said = bench.answer(true, ACK, 101, 501, b"EVIL");
            assert_eq!(said, Verdict::Drop(PATTERN), "stray {number} ahead of packet {place}: {:?}", bench.session);
        }
    }
}

#[test]
fn what_is_said_to_a_syn_ack_of_other_numbers_begins_anew() {
    let mut bench = Bench::new("");
    let mut connection = |client: u32, server: u32, says: &[u8], is_told: &[u8]| {
        bench.answer(true, SYN, client, 0, b"");
        bench.answer(false, SYN_ACK, server, client + 1, b"");
        bench.answer(true, ACK, client + 1, server + 1, says);
        bench.answer(false, ACK, server + 1, client + 1, is_told);
        assert_eq!(bench.session.heads(), [says, is_told]);
        assert_eq!(bench.session.payload, (says.len() + is_told.len()) as u64);
    };
    connection(100, 500, b"one", b"first");
    connection(9_000_000, 700, b"two", b"second");
    connection(4_000_000_000, 3_000_000_000, b"three", b"third");
    // Data in the SYN is acknowledged with it.
    let mut fast = Bench::new("");
    fast.give(true, SYN, 20, b"");
    fast.give(true, SYN, 100, b"GET");
    fast.answer(false, SYN_ACK, 500, 104, b"");
    fast.answer(true, ACK, 104, 501, b" /");
    assert_eq!(fast.head(), b"GET /");
}

#[test]
fn an_attempt_that_nobody_answers_is_forgotten_for_the_next_one() {
    let mut bench = Bench::new("");
    bench.give(true, SYN, 100, b"");
    bench.give(true, SYN, 9_000_000, b"");
    bench.give(true, ACK, 9_000_001, b"hello");
    assert_eq!(bench.head(), b"hello", "only this direction is seen");
}

#[test]
fn a_side_is_whole_when_it_is_full_or_has_ended_without_a_gap() {
    let mut bench = Bench::new("bytes = 4");
    for from_client in [true, false] {
        bench.give(from_client, TcpFlags::SYN, 9, b"");
    }
    bench.give(true, TcpFlags::FIN, 12, b"");
    assert!(!bench.session.is_whole(4), "two bytes are missing");
    bench.says(10, b"ab");
    bench.give(false, TcpFlags::ACK, 10, b"abcde");
    assert!(bench.session.is_whole(4));
}

#[test]
fn records_of_no_segment_are_refused() {
    let mut record = [0; Segment::RECORD_BYTES];
    let segment = segment(true, TcpFlags::SYN, 7, 0, b"abc", 64);
    segment.write(&mut record);
    assert_eq!(Segment::read(&record), Some(segment));
    let last = record.len() - 1;
    let ack = last - HEAD_MAX - 8;
    for (at, byte) in [(0, 4), (1, 0x20), (ack, 1), (last, 1), (last - HEAD_MAX, 4), (last - HEAD_MAX, 65)] {
        let mut wrong = record;
        wrong[at] = byte;
        assert_eq!(Segment::read(&wrong), None, "byte {at} is {byte}");
    }
}

#[test]
fn digests_are_fnv_1a() {
    assert_eq!(FlowBuffer::digest(b"foobar"), "85944171f73967e8");
    assert_eq!((FlowBuffer::digest(b""), FlowBuffer::legible(b"a\r\n\xff~")), ("-".into(), "a...~".into()));
}
