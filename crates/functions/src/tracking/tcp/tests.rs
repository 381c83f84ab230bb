//! The short ways against the long one: where [`Tracker::flow`] or [`Tracker::flow_on`] follows a segment, [`Tracker::step`] does the
//! very same.

use packet::{Tcp, TcpFlags, TcpOptions};
use proptest::prelude::*;

use super::{Direction, Outcome, Segment, State, Tracker};
use crate::config::Count;
use crate::tracking::rules::Timeouts;
use crate::tracking::{Rules, TcpRules};

const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);

/// Numbers so small that segments mostly fit, and now and then don't.
fn any_segment() -> impl Strategy<Value = Segment> {
    let flags = prop_oneof![
        1 => Just(TcpFlags::SYN),
        1 => Just(SYN_ACK),
        8 => Just(TcpFlags::ACK),
        3 => Just(FIN_ACK),
        1 => Just(TcpFlags::RST),
    ];
    let number = || prop_oneof![8 => 0_u32..3, 1 => Just(70_000_u32), 1 => Just(u32::MAX - 1)];
    let window = prop_oneof![1 => Just(0_u16), 4 => Just(1000_u16)];
    let edge = prop_oneof![4 => Just(None), 1 => (0_u32..4).prop_map(Some)];
    (flags, number(), number(), window, 0_u32..3, any::<bool>(), edge).prop_map(
        |(flags, seq, ack, window, len, sack_permitted, sack_edge)| {
            let options = TcpOptions { sack_permitted, sack_edge, ..TcpOptions::default() };
            let tcp = Tcp { src_port: 1, dst_port: 2, seq, ack, flags, window, options };
            Segment::new(&tcp, len).expect("the flags go together")
        },
    )
}

fn segment(flags: TcpFlags, seq: u32, ack: u32, len: u32) -> Segment {
    let tcp = Tcp { src_port: 1, dst_port: 2, seq, ack, flags, window: 1000, options: TcpOptions::default() };
    Segment::new(&tcp, len).expect("the flags go together")
}

fn rules(loose: bool) -> TcpRules {
    TcpRules { loose, ..Rules::strict(&Timeouts::default(), Count::new(2)).tcp }
}

fn side(replies: bool) -> Direction {
    if replies { Direction::Reply } else { Direction::Original }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_flows_is_what_would_have_been_judged(
        segments in proptest::collection::vec((any_segment(), any::<bool>()), 1..40),
        opens in 0_usize..8,
        loose: bool,
    ) {
        let rules = rules(loose);
        // Most begin as connections do, so that they come far.
        let handshake = [
            (TcpFlags::SYN, 0, 0, false), (SYN_ACK, 0, 1, true), (TcpFlags::ACK, 1, 1, false),
        ];
        let handshake = handshake.into_iter().take(opens);
        let handshake = handshake.map(|(flags, seq, ack, replies)| (segment(flags, seq, ack, 0), replies));
        let mut tracker: Option<Tracker> = None;
        for (segment, replies) in handshake.chain(segments) {
            let (known, direction) = match &mut tracker {
                Some(known) => (known, side(replies)),
                none => match Tracker::open(&segment.sent_by(true), &rules) {
                    Ok(opened) => (none.insert(opened), Direction::Original),
                    Err(_) => continue,
                },
            };
            let segment = segment.sent_by(direction == Direction::Original);
            let before = *known;
            let outcome = known.step(&segment, direction, &rules);
            for short_way in [Tracker::flow, Tracker::flow_on] {
                let mut short = before;
                match short_way(&mut short, &segment, direction, &rules) {
                    Some(idle) => {
                        prop_assert_eq!(outcome, Outcome::Valid(idle), "{:?} by {:?}", before, segment);
                        prop_assert_eq!(&short, &*known, "{:?} by {:?}", before, segment);
                    }
                    None => prop_assert_eq!(short, before, "nothing has changed"),
                }
            }
            if matches!(outcome, Outcome::Ends | Outcome::Reopens) {
                tracker = None;
            }
        }
    }
}

/// After the opening, all segments of a connection take a fast path, and while it is open the fastest.
#[test]
fn what_a_connection_carries_flows() {
    let rules = rules(false);
    let (ack, syn) = (TcpFlags::ACK, TcpFlags::SYN);
    let mut tracker = Tracker::open(&segment(syn, 0, 0, 0).sent_by(true), &rules).expect("it opens");
    let (judged, on, flows) = ((false, false), (false, true), (true, true));
    for (segment, replies, short, then) in [
        (segment(syn, 0, 0, 0), false, judged, State::SynSent),
        (segment(SYN_ACK, 0, 1, 0), true, judged, State::SynRecv),
        (segment(ack, 1, 1, 0), false, on, State::Established),
        (segment(ack, 1, 1, 5), false, flows, State::Established),
        (segment(ack, 1, 6, 9), true, flows, State::Established),
        (segment(ack, 6, 10, 0), false, flows, State::Established),
        (segment(FIN_ACK, 6, 10, 0), false, on, State::FinWait),
        (segment(ack, 10, 7, 0), true, on, State::CloseWait),
        (segment(FIN_ACK, 10, 7, 0), true, on, State::LastAck),
        (segment(ack, 7, 11, 0), false, on, State::TimeWait),
    ] {
        let (mut one, mut other) = (tracker, tracker);
        let (direction, segment) = (side(replies), segment.sent_by(!replies));
        let ways = (one.flow(&segment, direction, &rules), other.flow_on(&segment, direction, &rules));
        assert_eq!((ways.0.is_some(), ways.1.is_some()), short, "to {then:?}");
        assert!(matches!(tracker.step(&segment, direction, &rules), Outcome::Valid(_)));
        assert_eq!(tracker.state(), then);
    }
}
