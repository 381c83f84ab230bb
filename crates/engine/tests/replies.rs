//! Replies that are longer than the packets that they answer: every engine sends the same, by every port.
#![cfg(not(loom))]

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use memory::Memory;
use millrace_engine::{Control, EngineKind, Options, Outcome, run};
use nf::{
    Context, Description, NetworkFunction, Opened, PacketSet, Plain, Reason, Reply, Sharing, Sizing, Step, Verdict,
};
use packet::{Headers, Host, ICMP_ERROR_GROWTH, ICMP_ERROR_MAX, IcmpError, LinkType, Nanos, Seq, icmp_error, parse};
use port::pcap::{Capture, Reader, Writer};
use port::{Fate, MemoryPort, MemoryQueue, Packet, Port, Received, Trace};

/// Answers every packet with an ICMP error.
struct Refuse;

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 9, 9));

impl NetworkFunction for Refuse {
    type Meta = Host;
    type Flow = ();
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "refuse",
        summary: "answers every packet with an ICMP error",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn growth(&self) -> u32 {
        ICMP_ERROR_GROWTH
    }

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, (): &mut (), _: &Host) -> Step<Verdict, M> {
        Ok(Verdict::Reply(Reply::IcmpError(IcmpError { kind: 3, code: 13, from: Some(ROUTER), ttl: None })))
    }
}

/// A frame of IPv4 from 10.0.0.`source` with this protocol, and `len` bytes of payload.
fn frame(source: u8, protocol: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((28 + len as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, source, 192, 0, 2, 1]);
    frame.extend([3, 1, 0, 53]);
    frame.extend((8 + len as u16).to_be_bytes());
    frame.resize(frame.len() + 2 + len, source);
    frame
}

/// Datagrams of all lengths, each seventh packet an ICMP error, which is not answered.
fn frames() -> Vec<Vec<u8>> {
    (0..700).map(|at| frame(1 + at as u8 % 50, if at % 7 == 0 { 1 } else { 17 }, at)).collect()
}

fn trace(frames: &[Vec<u8>]) -> Trace {
    let mut trace = Trace::new();
    for (seq, bytes) in (0..).zip(frames) {
        let packet = Packet {
            seq: Seq(seq),
            time: Nanos(seq * 1_000),
            offset: 0,
            len: 0,
            wire_len: bytes.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, bytes);
    }
    trace
}

/// Returns the error that the engine must send for the captured part of a frame.
fn error(frame: &[u8], wire_len: usize) -> Option<Vec<u8>> {
    let headers = parse(LinkType::Ethernet, frame, wire_len as u32, 0).expect("a well-formed packet");
    let mut error = vec![0; 14 + ICMP_ERROR_MAX];
    let len = icmp_error(frame, &headers, IcmpError { kind: 3, code: 13, from: Some(ROUTER), ttl: None }, &mut error)?;
    error.truncate(len);
    Some(error)
}

fn go(kind: EngineKind, cores: usize, port: &mut dyn Port) -> Outcome {
    let options = Options::default();
    let outcome = run(Arc::new(Refuse), kind, cores, &options, port, &Control::default()).expect("the engine takes it");
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{kind}: {:?}", outcome.failure);
    assert_eq!((outcome.counters.received, outcome.counters.replied), (700, 600), "{kind}");
    assert_eq!(outcome.counters.dropped[usize::from(Reason::UNANSWERABLE.0)], 100, "{kind}");
    outcome
}

#[test]
fn every_engine_answers_with_errors() {
    let frames = frames();
    let trace = Arc::new(trace(&frames));
    let expected: Vec<_> = frames.iter().filter_map(|frame| error(frame, frame.len())).collect();
    assert!(expected.iter().zip(&frames).any(|(error, frame)| error.len() > frame.len()));
    for kind in EngineKind::ALL {
        let cores = if kind == EngineKind::Sequential { 1 } else { 3 };
        let mut stream = MemoryQueue::new(Arc::clone(&trace), 32);
        go(kind, cores, &mut stream);
        let sent: Vec<_> = stream.outbox().take().into_iter().map(|sent| sent.bytes).collect();
        assert!(sent == expected, "{kind}: a stream keeps the order");

        // Others steer by what came before, which a port with queues can't.
        if !matches!(kind, EngineKind::Rss | EngineKind::Transactional | EngineKind::Shared) {
            continue;
        }
        let mut queues = MemoryPort::new(Arc::clone(&trace), 32);
        go(kind, cores, &mut queues);
        let mut sent = queues.outbox().take();
        sent.sort_by_key(|sent| sent.seq);
        assert!(sent.iter().map(|sent| &sent.bytes).eq(&expected), "{kind}");
        assert!(sent.iter().all(|sent| sent.wire_len as usize == sent.bytes.len()), "{kind}");
    }
}

/// A capture of 64 bytes of each packet becomes one of errors that are longer.
#[test]
fn captures_take_errors_longer_than_the_snap_length() {
    const SNAPLEN: usize = 64;
    let frames = frames();
    let folder = std::env::temp_dir().join(format!("millrace-replies-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary directory is writable");
    let mut input: Vec<u8> = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, SNAPLEN as u32, 1].map(u32::to_le_bytes).concat();
    for (at, frame) in (0..).zip(&frames) {
        let captured = &frame[..frame.len().min(SNAPLEN)];
        input.extend([0, at, captured.len() as u32, frame.len() as u32].map(u32::to_le_bytes).as_flattened());
        input.extend(captured);
    }
    let path = folder.join("in.pcap");
    fs::write(&path, input).expect("the folder is writable");
    let expected: Vec<_> =
        frames.iter().filter_map(|frame| error(&frame[..frame.len().min(SNAPLEN)], frame.len())).collect();
    for (kind, cores, name) in [(EngineKind::Sequential, 1, "a.pcap"), (EngineKind::Scr, 2, "b.pcapng")] {
        let reader = Reader::open(&path).expect("it can be read");
        let output = folder.join(name);
        let writer = Writer::create(&output, None, Some(&reader.format())).expect("it can be written");
        go(kind, cores, &mut Capture::new(reader, Some(writer.growing(Refuse.growth()))));
        let mut written = Reader::open(&output).expect("it can be read");
        let (mut batch, mut sent) = (port::Batch::default(), Vec::new());
        while written.read(&mut batch).expect("it is whole") != Received::End {
            sent.extend((0..batch.len()).map(|index| batch.bytes(index).to_vec()));
        }
        assert!(sent == expected, "{kind}");
        let snaplen = written.interfaces()[0].snaplen;
        assert_eq!(snaplen, SNAPLEN as u32 + ICMP_ERROR_GROWTH, "{kind}");
    }
    fs::remove_dir_all(folder).expect("it is ours");
}
