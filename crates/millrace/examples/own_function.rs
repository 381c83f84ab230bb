//! A network function of your own under every engine: `cargo run --release --example own_function`.
//!
//! `scan-guard` limits the number of TCP ports that a host may open connections to, until it has been quiet for a minute. The function
//! has no code for cores, locks or clocks.

#![allow(clippy::print_stdout)]

use std::io::Cursor;
use std::sync::Arc;

use millrace::engine::{Control, EngineKind, Guarantee, Options, run};
use millrace::port::pcap::{Capture, Reader};
use millrace::port::{MemoryQueue, Trace};
use millrace::prelude::*;
use millrace::testkit::conformance::{Plan, verify};

struct ScanGuard {
    ports_max: u32,
}

/// The metadata of a packet: the host that opens a connection, and the port.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Opening {
    host: Host,
    port: u16,
}

impl Meta for Opening {
    type Key = Host;

    const RECORD_BYTES: usize = HOST_BYTES + 2;

    fn key(&self) -> Host {
        self.host
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.host).u16(self.port).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let opening = Self { host: fields.host()?, port: fields.u16()? };
        fields.end().map(|()| opening)
    }
}

/// The state of a host: the ports that it has opened, one bit for each of 64 groups.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ports(u64);

impl Flow for Ports {}

impl NetworkFunction for ScanGuard {
    type Meta = Opening;
    type Flow = Ports;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "scan-guard",
        summary: "drops the connections of hosts that open too many different ports",
        state: "the ports that the host has opened, in 64 groups",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["scan"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 65_536, flows_v6: 65_536 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Opening> {
        match headers.transport {
            Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags::SYN) && !tcp.flags.contains(TcpFlags::ACK) => {
                Some(Opening { host: headers.source()?, port: tcp.dst_port })
            }
            _ => None,
        }
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Opening) -> Step<Opened<Ports>, M> {
        Ok(Opened::Flow(Ports(0)))
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        ports: &mut Ports,
        opening: &Opening,
    ) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(60));
        ports.0 |= 1 << (opening.port % 64);
        let scans = ports.0.count_ones() > self.ports_max;
        Ok(if scans { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Arc::new(ScanGuard { ports_max: 16 });
    let capture = || Reader::from_read(Cursor::new(millrace::DEMO_CAPTURE), "the demo's capture");

    // Run the function over the capture as a stream.
    let mut queue = Capture::new(capture()?, None);
    let outcome = run(Arc::clone(&guard), EngineKind::Scr, 2, &Options::default(), &mut queue, &Control::default())?;
    let counters = &outcome.counters;
    println!("{} packets: {} forwarded, {} dropped", counters.received, counters.forwarded, counters.dropped_total());

    // Verify every engine. All engines except the serializable ones give exactly the same counts.
    let trace = Arc::new(Trace::load(&mut capture()?, usize::MAX)?);
    for engine in EngineKind::ALL {
        let cores = if engine == EngineKind::Sequential { 1 } else { 2 };
        let mut queue = MemoryQueue::new(Arc::clone(&trace), 256);
        let own =
            run(Arc::clone(&guard), engine, cores, &Options::default(), &mut queue, &Control::default())?.counters;
        let plan =
            Plan { engines: vec![engine], cores: 1..=4, seeds: 0..5, threads: true, options: Options::default() };
        let verified = verify(&guard, &trace, &plan, &mut |_, _| {});
        if engine.guarantee(ScanGuard::DESCRIPTION.sharing) != Guarantee::Serializable {
            assert_eq!((own.forwarded, own.dropped_total()), (counters.forwarded, counters.dropped_total()));
        }
        assert_eq!(verified.mismatch, None);
        println!("{engine:>13}: {} forwarded, equal in {} runs", own.forwarded, verified.runs);
    }
    Ok(())
}
