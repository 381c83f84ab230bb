//! A network function that counts a source's packets, with a place for a forbidden line.
#![no_std]
#![forbid(unsafe_code)]

use memory::Memory;
use nf::{Context, Description, Flow, HOST_BYTES, Meta, NetworkFunction, Opened, PacketSet, Plain, RecordReader, RecordWriter, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host};

pub struct Counter;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Source(Host);

impl Meta for Source {
    type Key = Host;
    const RECORD_BYTES: usize = HOST_BYTES;
    fn key(&self) -> Host {
        self.0
    }
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.0).end();
    }
    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).host().map(Self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count(u64);

impl Flow for Count {}

impl NetworkFunction for Counter {
    type Meta = Source;
    type Flow = Count;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "counter",
        summary: "counts",
        state: "a count",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 64 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Source> {
        headers.source().map(Source)
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Source) -> Step<Opened<Count>, M> {
        Ok(Opened::Flow(Count(0)))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _: &Source) -> Step<Verdict, M> {
        // REACHES
        count.0 += 1;
        let _now = cx.now();
        Ok(Verdict::forward())
    }
}
