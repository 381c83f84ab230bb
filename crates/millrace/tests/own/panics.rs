//! A bug in a function: the run stops with the packet's number and a capture of the packet, and loses nothing that was
//! forwarded before.

use millrace::port::pcap::Reader;
use millrace::port::{Batch, Packet, Received, Trace};
use millrace::prelude::*;

use super::{demo, millrace};

/// Forwards everything, and stumbles over one UDP port.
pub(crate) struct Stumbling;

const PORT: u16 = 53;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen(FiveTuple);

impl Meta for Seen {
    type Key = FiveTuple;
    const RECORD_BYTES: usize = TUPLE_BYTES;

    fn key(&self) -> FiveTuple {
        self.0
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.0).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).tuple().map(Self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Count(u32);

impl Flow for Count {}

impl NetworkFunction for Stumbling {
    type Meta = Seen;
    type Flow = Count;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "stumbling",
        summary: "has a bug",
        state: "a count",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::FiveTuple
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 1 << 14, flows_v6: 1 << 10 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Seen> {
        headers.five_tuple().map(Seen)
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Seen) -> Step<Opened<Count>, M> {
        Ok(Opened::Flow(Count(0)))
    }

    fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, flow: &mut Count, seen: &Seen) -> Step<Verdict, M> {
        flow.0 += 1;
        assert_ne!((seen.0.protocol(), seen.0.destination().port), (17, PORT), "nobody asks for names here");
        Ok(Verdict::FORWARD)
    }
}

pub(crate) fn a_panic_names_its_packet(engine: &str, cores: usize) {
    let folder = demo();
    let trace = Trace::load(&mut Reader::open(folder.path().join("demo.pcap.zst")).unwrap(), usize::MAX).unwrap();
    let asks = |(packet, bytes): &(&Packet, &[u8])| {
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).unwrap();
        headers.protocol == protocol::UDP && headers.ports().1 == PORT
    };
    let (stumbled, bytes) = trace.iter().find(asks).expect("the demo's hosts ask for names");

    let output = millrace(
        &folder,
        &format!("run stumbling --in demo.pcap.zst --out out.pcap --engine {engine} --cores {cores}"),
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let at = stumbled.seq;
    assert!(error.contains(&format!("panicked at packet {at} on core")), "{error}");
    assert!(error.contains("nobody asks for names here") && error.contains("panics.rs:"), "{error}");
    assert!(error.contains(&format!("millrace-panic-{at}.pcap")), "{error}");

    let mut saved = Reader::open(folder.path().join(format!("millrace-panic-{at}.pcap"))).unwrap();
    let saved = Trace::load(&mut saved, usize::MAX).unwrap();
    assert_eq!((saved.len(), saved.bytes(0)), (1, bytes), "the packet as it came in");

    // What was forwarded before is there, in order, and the file is whole.
    let mut reader = Reader::open(folder.path().join("out.pcap")).unwrap();
    let mut batch = Batch::default();
    let mut written = Vec::new();
    while reader.read(&mut batch).unwrap() != Received::End {
        written.extend((0..batch.len()).map(|index| batch.bytes(index).to_vec()));
    }
    let before = trace.iter().take_while(|(packet, _)| packet.seq < at);
    let before: Vec<&[u8]> = before.map(|(_, bytes)| bytes).collect();
    assert!(written.len() >= before.len(), "{} of {} packets ahead of it were forwarded", written.len(), before.len());
    assert!(before.iter().zip(&written).all(|(sent, kept)| sent == kept), "{engine}");
}

pub(crate) fn an_own_function_is_in_the_catalogue() {
    let folder = demo();
    let output = millrace(&folder, "functions stumbling");
    assert!(String::from_utf8(output.stdout).unwrap().contains("has a bug"));
    let output = millrace(&folder, "run stumblin --in demo.pcap.zst");
    assert!(String::from_utf8(output.stderr).unwrap().contains("'stumbling'"));
}
