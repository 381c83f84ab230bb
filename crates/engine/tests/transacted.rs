//! Shared state by transactions, on more cores than a machine has, with the engine's own threads and queues. Also run under a thread
//! sanitizer (`cargo xtask check`).
#![cfg(not(loom))]

use std::sync::Arc;

use memory::{Allocator, Distributed, Map, Memory, Portion, Vector};
use millrace_engine::{Control, EngineKind, Options, run};
use nf::{
    Cell, Context, Description, Flow, FlowList, NetworkFunction, Opened, PacketSet, Plain, Reason, RecordReader,
    RecordWriter, Report, Sharing, Sizing, Step, Verdict,
};
use packet::{Family, FlowKey, Headers, Host, Host4, LinkType, Nanos, Seq};
use port::{Batch, Packet, Port, PortError, Queue, Receive, Received, Transmit};

const DESKS: usize = 24;
const SOURCES: u8 = 40;
const PACKETS: u64 = 20_000;

/// Gives each source a desk while it is alive, and counts packets twice: in one number, and in one number for each core.
struct Desks;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Source(Host4);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Visit {
    source: Host4,
    desk: u32,
}

/// The packets counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count(u64);

packet::words! { Count: [1], count => [count.0], words => Self(words[0]); }

impl Portion for Count {
    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }
}

struct Shared<M: Memory> {
    total: M::Vector<Count>,
    desks: M::Allocator,
    by_source: M::Map<Host4, Count>,
    each: M::Distributed<Count>,
}

impl nf::Meta for Source {
    type Key = Host;
    const RECORD_BYTES: usize = nf::HOST_BYTES;
    fn key(&self) -> Host {
        Host::from_v4(self.0)
    }
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.key()).end();
    }
    fn read(record: &[u8]) -> Option<Self> {
        v4(RecordReader::new(record).host()?).map(Self)
    }
}

fn v4(host: Host) -> Option<Host4> {
    match host.family() {
        Family::V4(host) => Some(host),
        Family::V6(_) => None,
    }
}

impl Flow for Visit {}

impl NetworkFunction for Desks {
    type Meta = Source;
    type Flow = Visit;
    type Shared<M: Memory> = Shared<M>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "desks",
        summary: "gives each source a desk",
        state: "the desk",
        sharing: Sharing::Shares("the desks"),
        keys: &[],
        drop_reasons: &["no-desk"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Shared<M> {
        Shared {
            total: memory.vector(1, Count(0)),
            desks: memory.allocator(DESKS),
            by_source: memory.map(DESKS),
            each: memory.distributed(Count(0), Nanos(0)),
        }
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Source> {
        headers.source().and_then(v4).map(Source)
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Source) -> Step<Opened<Visit>, M> {
        cx.expire_after(Nanos::from_micros(30));
        let Some(desk) = cx.shared.desks.allocate(&mut cx.tx, Nanos::NEVER)? else {
            return Ok(Opened::Refused(Verdict::Drop(Reason::own(0))));
        };
        assert!(cx.shared.by_source.insert(&mut cx.tx, meta.0, Count(desk as u64))?, "as many as desks");
        Ok(Opened::Flow(Visit { source: meta.0, desk: desk as u32 }))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, visit: &mut Visit, meta: &Source) -> Step<Verdict, M> {
        let desk = cx.shared.by_source.get(&mut cx.tx, &meta.0)?;
        assert_eq!(desk, Some(Count(visit.desk.into())), "the desk is the source's own");
        let Count(total) = cx.shared.total.read(&mut cx.tx, 0)?;
        cx.shared.total.write(&mut cx.tx, 0, Count(total + 1))?;
        cx.shared.each.update(&mut cx.tx, |count| count.0 += 1)?;
        Ok(Verdict::FORWARD)
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, visit: &Visit) -> Step<(), M> {
        assert!(cx.shared.by_source.remove(&mut cx.tx, &visit.source)?.is_some(), "it had one");
        cx.shared.desks.free(&mut cx.tx, visit.desk as usize)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, tx) = (cx.shared, &mut cx.tx);
        let mut taken = 0_u64;
        for desk in 0..DESKS {
            taken += u64::from(shared.desks.is_allocated(tx, desk)?);
        }
        let numbers = [shared.total.read(tx, 0)?.0, shared.each.read(tx, Nanos::NEVER)?.0, taken];
        let rows = vec![numbers.map(Cell::from).to_vec()];
        Ok(Some(Report { title: "desks".into(), columns: vec!["total", "each", "taken"], rows }))
    }
}

/// Packets of many sources, which expire now and then. Each source comes by one queue, as from a card, so cores share nothing but the
/// sources' shared state.
struct Visitors;

struct VisitorsOf {
    core: u64,
    cores: u64,
    next: u64,
}

impl Port for Visitors {
    fn open(&mut self, cores: usize) -> Result<port::Opened<'_>, PortError> {
        let queue = |core| Box::new(VisitorsOf { core, cores: cores as u64, next: 0 }) as Box<dyn Queue>;
        Ok(port::Opened::Queues((0..cores as u64).map(queue).collect()))
    }
}

impl Transmit for VisitorsOf {
    fn transmit(&mut self, _: &mut Batch) -> Result<(), PortError> {
        Ok(())
    }
}

impl Receive for VisitorsOf {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        while batch.len() < 32 && self.next < PACKETS {
            let seq = self.next;
            self.next += 1;
            let source = (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8 % SOURCES;
            if u64::from(source) % self.cores != self.core {
                continue;
            }
            let bytes = frame(source);
            let packet = Packet {
                seq: Seq(seq),
                time: Nanos(seq * 1_000),
                offset: 0,
                len: 0,
                wire_len: bytes.len() as u32,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: port::Fate::Pending,
            };
            batch.push(packet, &bytes);
        }
        Ok(if batch.is_empty() { Received::End } else { Received::Packets })
    }
}

/// A UDP datagram from 10.0.0.`source`.
fn frame(source: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, source, 192, 0, 2, 1]);
    frame[34..42].copy_from_slice(&[0, 53, 0, 53, 0, 26, 0, 0]);
    frame
}

#[test]
fn four_cores_count_every_packet_once_and_give_every_desk_back() {
    let outcome =
        run(Arc::new(Desks), EngineKind::Transactional, 4, &Options::default(), &mut Visitors, &Control::default())
            .expect("the engine takes it");
    let counters = &outcome.counters;
    assert_eq!(counters.received, PACKETS);
    let refused = counters.dropped_total();
    assert!(refused > 0 && counters.forwarded > refused, "some find no desk, most do: {refused}");
    let report = outcome.report.expect("the function tells what is shared");
    let alive = outcome.flows_alive as u64;
    // Expired flows keep their desks until they are reclaimed.
    let [total, each, taken] = &report.rows[0][..] else { panic!("three numbers") };
    assert_eq!([total, each], [&Cell::from(counters.forwarded); 2]);
    assert!((alive..=DESKS as u64).any(|desks| *taken == Cell::from(desks)), "{taken:?} of {alive}");
    let transactions = outcome.transactions.expect("there were some");
    assert!(transactions.committed >= PACKETS, "a step is a transaction");
}
