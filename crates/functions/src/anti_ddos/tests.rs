use core::net::Ipv4Addr;
use std::vec::Vec;

use memory::{Local, LocalDistributed, LocalTx};
use packet::Seq;

use super::*;
use crate::testing::report_of;

type State = LocalDistributed<Counts>;

fn segment(number: u8) -> Segment {
    Segment(FiveTuple::v4(Ipv4Addr::new(10, 0, 0, number), Ipv4Addr::new(192, 0, 2, 1), 1_024, 80, protocol::TCP))
}

fn configured(text: &str) -> (AntiDdos, State) {
    let function = AntiDdos::new(&toml::from_str(text).expect("the test's own configuration"));
    let state = function.shared(&Local::default());
    (function, state)
}

fn context(state: &State) -> Context<'_, AntiDdos, Local> {
    Context::new(state, LocalTx::default(), Nanos::from_secs(9), Seq(0))
}

fn counts(state: &State) -> (i64, i64) {
    let Ok(Counts { flows, one_packet }) = state.read(&mut LocalTx::default(), Nanos(0));
    (flows, one_packet)
}

fn packet(function: &AntiDdos, state: &State, packets: &mut Packets) -> (Verdict, bool) {
    let mut cx = context(state);
    let Ok(verdict) = function.packet(&mut cx, packets, &segment(1));
    assert_eq!(cx.effects().deadline, Some(Nanos::from_secs(9) + function.idle));
    (verdict, cx.effects().assured)
}

#[test]
fn a_flow_is_counted_once_and_gives_back_what_it_was_counted_for() {
    let (function, state) = configured("minimum = 100");
    let mut flow = Packets::None;
    assert_eq!(packet(&function, &state, &mut flow), (Verdict::FORWARD, false));
    assert_eq!((flow, counts(&state)), (Packets::One, (1, 1)));
    let Ok(()) = function.expire(&mut context(&state), &flow);
    assert_eq!(counts(&state), (0, 0));

    let mut flow = Packets::None;
    for _ in 0..3 {
        packet(&function, &state, &mut flow);
    }
    assert_eq!((flow, counts(&state)), (Packets::More, (1, 0)));
    assert_eq!(packet(&function, &state, &mut flow), (Verdict::FORWARD, true));
    let Ok(()) = function.expire(&mut context(&state), &flow);
    assert_eq!(counts(&state), (0, 0));
}

#[test]
fn a_flow_that_found_no_room_was_never_counted() {
    let (function, state) = configured("minimum = 0");
    let mut cx = context(&state);
    let Ok(Opened::Flow(flow)) = function.open(&mut cx, &segment(1)) else { panic!("every flow is let in") };
    let Ok(()) = function.expire(&mut context(&state), &flow);
    assert_eq!(counts(&state), (0, 0));
}

#[test]
fn first_packets_are_dropped_above_the_share_and_later_ones_pass() {
    let (function, state) = configured("minimum = 5");
    let mut flows = [Packets::None; 7];
    let verdicts: Vec<bool> =
        flows.iter_mut().map(|flow| packet(&function, &state, flow).0 == Verdict::FORWARD).collect();
    assert_eq!(verdicts, [true, true, true, true, false, false, false], "from the fifth on all have had one packet");
    let (verdict, assured) = packet(&function, &state, &mut flows[6]);
    assert_eq!((verdict, assured), (Verdict::FORWARD, true), "who sends again passes");
    // Six of eight are 0.75; at exactly 0.8 (eight of ten) there is no attack yet.
    assert_eq!(packet(&function, &state, &mut Packets::None).0, Verdict::Drop(ATTACK));
    packet(&function, &state, &mut flows[5]);
    assert_eq!(counts(&state), (8, 6));
    for expected in [Verdict::FORWARD, Verdict::FORWARD, Verdict::Drop(ATTACK)] {
        assert_eq!(packet(&function, &state, &mut Packets::None).0, expected);
    }
}

#[test]
fn counts_that_do_not_fit_each_other_are_no_attack() {
    let (function, _) = configured("minimum = 0");
    assert!(!function.is_attack(Counts { flows: -3, one_packet: 0 }));
    assert!(!function.is_attack(Counts { flows: 10, one_packet: -1 }));
    assert!(function.is_attack(Counts { flows: 1, one_packet: 1 }));
    assert!(function.is_attack(Counts { flows: i64::MAX, one_packet: i64::MAX }));
}

#[test]
fn other_protocols_are_not_its_records() {
    let mut record = [0; Segment::RECORD_BYTES];
    let udp = FiveTuple::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1, 2, protocol::UDP);
    for (segment, expected) in [(segment(1), Some(segment(1))), (Segment(udp), None)] {
        segment.write(&mut record);
        assert_eq!(Segment::read(&record), expected);
    }
}

#[test]
fn the_report_counts_flows() {
    let (function, _) = configured("");
    let flows = [Packets::One, Packets::More, Packets::One].map(|packets| (segment(1).0, packets));
    let report = report_of(&function, flows).unwrap();
    assert_eq!(report.rows, [["one", "2"], ["more", "1"]]);
}
