use memory::Memory;
use nf::{Description, PacketSet, Plain, RecordReader, RecordWriter, Sharing, Step};
use packet::{FiveTuple, Headers, Host};

use super::*;
use crate::placement::{Ticket, hash_of};

/// Remembers which hosts talk to each other, until one of them hangs up.
struct Calls;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    /// The smaller endpoint first.
    key: FiveTuple,
    from_first: bool,
    hangs_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Call;

impl Flow for Call {}

impl Meta for Said {
    type Key = FiveTuple;
    const TELLS_SOURCE: bool = true;
    const RECORD_BYTES: usize = 0;

    fn key(&self) -> FiveTuple {
        self.key
    }

    fn source(&self) -> Option<Host> {
        let end = if self.from_first { self.key.source() } else { self.key.destination() };
        Some(Host::from(end.address))
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).end()?;
        None
    }
}

impl NetworkFunction for Calls {
    type Meta = Said;
    type Flow = Call;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "calls",
        summary: "remembers calls",
        state: "nothing more",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::None
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 8, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, _: &Headers, _frame: &[u8]) -> Option<Said> {
        None
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Said) -> Step<Opened<Call>, M> {
        Ok(Opened::Flow(Call))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &mut Call, said: &Said) -> Step<Verdict, M> {
        if said.hangs_up {
            cx.close();
        }
        Ok(Verdict::FORWARD)
    }
}

const SEED: u64 = 7;

/// A table in which a source may have two flows.
fn table() -> Private<Calls> {
    let tables = Tables { per_source: Some(2), ..Tables::default() };
    Private::with_options(&Calls, Calls.sizing(), SEED, tables)
}

/// Call number `call` of host `caller` to the switchboard, whose address is larger.
fn said(caller: u8, call: u16) -> Said {
    let key = FiveTuple::v4([10, 0, 0, caller].into(), [192, 0, 2, 1].into(), call, 53, 17);
    Said { key, from_first: true, hangs_up: false }
}

/// Takes a step and returns true if the packet is forwarded.
fn step(place: &mut Private<Calls>, meta: Said) -> bool {
    let hash = hash_of::<Calls>(&meta.key, SEED);
    let (seq, now) = (Seq(0), Nanos(1));
    let ticket = Ticket { hash, seq, now, hint: Hint::default(), bucket: 0, replayed: false };
    let lane = Lane { meta: &meta, ticket: &ticket, frame: &[] };
    let mut passes = false;
    place.step(&Calls, lane, |verdict| passes = !matches!(verdict, Verdict::Drop(_)));
    passes
}

fn carry(meta: Said, from: &mut Private<Calls>, to: &mut [&mut Private<Calls>]) {
    let hash = hash_of::<Calls>(&meta.key, SEED);
    let carried = from.take_out(&meta.key, hash).expect("it is there");
    to.iter_mut().for_each(|to| to.put_in(&meta.key, hash, &carried, Nanos(1)));
}

fn hangs_up(meta: Said) -> Said {
    Said { hangs_up: true, ..meta }
}

#[test]
fn a_flow_that_comes_and_ends_is_nobody_elses() {
    let (mut from, mut to) = (table(), table());
    assert!(step(&mut to, said(1, 1)) && step(&mut to, said(1, 2)));
    // The free place was one of host 1's.
    assert!(step(&mut to, hangs_up(said(1, 2))));
    assert!(step(&mut from, said(2, 1)));
    carry(said(2, 1), &mut from, &mut [&mut to]);
    assert!(step(&mut to, hangs_up(said(2, 1))));
    assert!(step(&mut to, said(1, 3)));
    assert!(!step(&mut to, said(1, 4)), "host 1 has two flows still");
    assert_eq!(to.tables.ledger.counters.limited, 1);
}

#[test]
fn a_flow_that_comes_counts_for_who_opened_it() {
    let (mut from, mut to) = (table(), table());
    assert!(step(&mut from, said(2, 1)));
    // The answer from the other end, by which the flow may be found heavy, changes nothing.
    let answer = Said { from_first: false, ..said(2, 1) };
    assert!(step(&mut from, answer));
    carry(answer, &mut from, &mut [&mut to]);
    assert!(step(&mut to, said(2, 2)));
    assert!(!step(&mut to, said(2, 3)), "one came and one was opened");
    assert!(step(&mut to, hangs_up(said(2, 1))));
    assert!(step(&mut to, said(2, 3)));
    assert!(step(&mut from, said(2, 4)) && step(&mut from, said(2, 5)), "where it left it counts no more");
}

#[test]
fn replicas_agree_on_limits_in_whatever_order_flows_come() {
    let (mut first, mut second) = (table(), table());
    for call in 1..=2 {
        assert!(step(&mut first, said(3, call)) && step(&mut second, said(3, 10 + call)));
    }
    let (mut one, mut other) = (table(), table());
    carry(said(3, 1), &mut first, &mut [&mut one]);
    carry(said(3, 11), &mut second, &mut [&mut one, &mut other]);
    carry(said(3, 12), &mut second, &mut [&mut one, &mut other]);
    assert!(step(&mut first, said(3, 1)));
    carry(said(3, 1), &mut first, &mut [&mut other]);
    for replica in [&mut one, &mut other] {
        // Three came in, so two must end before a new one is opened.
        for ends in [11, 1] {
            assert!(!step(replica, said(3, 20)));
            assert!(step(replica, hangs_up(said(3, ends))));
        }
        assert!(step(replica, said(3, 20)));
        assert_eq!(replica.tables.ledger.counters.limited, 2);
    }
}

#[test]
fn a_flow_that_finds_no_room_counts_for_nobody() {
    let (mut from, mut to) = (table(), table());
    for caller in 11..19 {
        assert!(step(&mut to, said(caller, 1)));
    }
    assert!(step(&mut from, said(4, 1)));
    carry(said(4, 1), &mut from, &mut [&mut to]);
    assert_eq!(to.tables.ledger.counters.evicted, 1);
    for caller in 11..13 {
        assert!(step(&mut to, hangs_up(said(caller, 1))));
    }
    assert!(step(&mut to, said(4, 2)) && step(&mut to, said(4, 3)));
}
