use core::net::Ipv4Addr;

use memory::{Local, LocalTx};
use packet::Seq;

use super::*;
use crate::testing::report_of;

/// Classifies by the first byte: 1 needs one packet, 2 needs three, everything else is unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Toy;

impl Classifier for Toy {
    const APPLICATIONS: &'static [Label] = &[Label { name: "sure", evidence: 1 }, Label { name: "maybe", evidence: 3 }];

    fn classify(&self, payload: &Payload<'_>) -> Option<Application> {
        match payload.u8(0)? {
            1 => Some(Application(0)),
            2 => Some(Application(1)),
            // An index outside of the classifier's list is ignored.
            3 => Some(Application(2)),
            _ => None,
        }
    }
}

fn tuple() -> FiveTuple {
    FiveTuple::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 4_000, 80, protocol::TCP)
}

fn give(function: &AppClassifier<Toy>, session: &mut Session, look: Look) -> bool {
    let mut cx = Context::<AppClassifier<Toy>, Local>::new(&(), LocalTx::default(), Nanos(1), Seq(0));
    let Ok(verdict) = function.packet(&mut cx, session, &Seen { tuple: tuple(), bytes: 100, look });
    assert_eq!(cx.effects().assured, session.class > 0);
    verdict == Verdict::FORWARD
}

fn configured(text: &str) -> AppClassifier<Toy> {
    AppClassifier::new(&toml::from_str(text).expect("the test's own configuration"))
}

const SURE: Look = Look::Of(Application(0));
const MAYBE: Look = Look::Of(Application(1));

#[test]
fn the_first_that_is_sure_decides_for_good() {
    let (function, mut session) = (configured("drop = [\"maybe\"]"), Session::default());
    for look in [Look::Strange, SURE, MAYBE, MAYBE, MAYBE, MAYBE] {
        assert!(give(&function, &mut session, look));
    }
    assert_eq!((function.application(&session), session.packets, session.bytes), (Some("sure"), 6, 600));
}

#[test]
fn weak_evidence_has_to_come_in_a_row() {
    let (function, mut session) = (configured("drop = [\"maybe\"]"), Session::default());
    let looks = [MAYBE, MAYBE, Look::Strange, MAYBE, Look::Empty, MAYBE];
    assert!(looks.into_iter().all(|look| give(&function, &mut session, look)));
    assert!(!give(&function, &mut session, MAYBE), "the third in a row, empty ones apart");
    assert!(!give(&function, &mut session, Look::Empty));
}

#[test]
fn who_stays_unknown_is_given_up_on() {
    let (function, mut session) = (configured("drop = [\"unknown\"]\ngive_up = 3"), Session::default());
    assert!(give(&function, &mut session, Look::Empty) && give(&function, &mut session, Look::Strange));
    assert!(give(&function, &mut session, Look::Strange));
    assert!(!give(&function, &mut session, Look::Strange), "the third with payload");
    assert!(!give(&function, &mut session, SURE), "too late");
    assert_eq!((function.application(&session), session.tried), (None, 3));
}

#[test]
fn another_connection_begins_anew() {
    let (function, mut session) = (configured("drop = [\"sure\"]"), Session::default());
    assert!(!give(&function, &mut session, SURE));
    assert!(give(&function, &mut session, Look::Begins) && give(&function, &mut session, Look::Strange));
    assert_eq!((session.class, session.packets), (0, 2));
}

#[test]
fn a_full_table_is_no_way_round_a_ban() {
    let seen = Seen { tuple: tuple(), bytes: 1, look: SURE };
    for (text, expected) in [("", Verdict::FORWARD), ("drop = [\"sure\"]", Verdict::Drop(Reason::TABLE_FULL))] {
        let mut cx = Context::<AppClassifier<Toy>, Local>::new(&(), LocalTx::default(), Nanos(1), Seq(0));
        let Ok(verdict) = configured(text).orphan(&mut cx, &seen);
        assert_eq!(verdict, expected);
    }
}

#[test]
fn records_of_no_packet_are_refused() {
    let mut record = [0; Seen::RECORD_BYTES];
    for look in [Look::Empty, Look::Begins, Look::Strange, SURE] {
        let seen = Seen { tuple: tuple(), bytes: 1_500, look };
        seen.write(&mut record);
        assert_eq!(Seen::read(&record), Some(seen));
    }
    let last = record.len() - 1;
    for (at, byte) in [(0, 4 << LOOK_SHIFT), (0, 0), (last, 255), (ENDS_BYTES, protocol::ICMP)] {
        let mut wrong = record;
        wrong[at] = byte;
        wrong[last] |= 1;
        assert_eq!(Seen::read(&wrong), None, "byte {at} is {byte}");
    }
}

#[test]
fn the_report_sums_by_application() {
    let function = configured("");
    let session = |class, packets| Session { class, packets, bytes: 10 * packets, ..Session::default() };
    let sessions = [session(2, 3), session(0, 4), session(2, 5)];
    let report = report_of(&function, sessions.into_iter().map(|session| (tuple(), session))).unwrap();
    assert_eq!(report.rows, [["maybe", "2", "8", "80"], ["unknown", "1", "4", "40"]]);
}
