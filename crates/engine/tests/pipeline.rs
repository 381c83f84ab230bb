//! The pipeline's bounds and ends: a way that stalls stops the reading and loses nothing, and a core that breaks down holds up nobody.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use memory::Memory;
use millrace_engine::{Control, EngineKind, Options, Outcome, Running, run, start};
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Plain, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host, LinkType, Nanos, Seq};
use port::{Batch, Fate, Packet, Port, PortError, Receive, Received, Stream, Transmit};

/// The ordering of all counters here.
const ANY: Ordering = Ordering::SeqCst;

/// Forwards all packets. Those of 10.0.0.1 wait until `is_open`.
struct Gate {
    is_open: AtomicBool,
}

impl NetworkFunction for Gate {
    type Meta = Host;
    type Flow = ();
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "gate",
        summary: "forwards packets, some of them late",
        state: "nothing",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, (): &mut (), meta: &Host) -> Step<Verdict, M> {
        while meta.address().to_string() == "10.0.0.1" && !self.is_open.load(ANY) {
            thread::yield_now();
        }
        Ok(Verdict::FORWARD)
    }
}

/// A stream of pieces of eight packets, each from another source.
struct Pieces {
    /// The number of pieces.
    count: u64,
    /// The number of the piece at which the input panics.
    breaks_at: u64,
    /// The pieces read so far.
    read: AtomicU64,
    sent: Mutex<Vec<Seq>>,
}

struct Input<'a>(&'a Pieces);

struct Output<'a>(&'a Pieces);

impl Pieces {
    fn new(count: u64) -> Self {
        Self { count, breaks_at: u64::MAX, read: AtomicU64::new(0), sent: Mutex::default() }
    }
}

impl Port for &Pieces {
    fn open(&mut self, _: usize) -> Result<port::Opened<'_>, PortError> {
        let (input, output) = (Box::new(Input(self)), Box::new(Output(self)));
        Ok(port::Opened::Stream(Stream { input, output, order: port::Order::Sent }))
    }
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let number = self.0.read.load(ANY);
        assert!(number != self.0.breaks_at, "the input breaks down");
        if number == self.0.count {
            return Ok(Received::End);
        }
        self.0.read.store(number + 1, ANY);
        for source in 0..8 {
            let bytes = frame(source);
            let packet = Packet {
                seq: Seq(number * 8 + u64::from(source)),
                time: Nanos(number),
                offset: 0,
                len: 0,
                wire_len: bytes.len() as u32,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            batch.push(packet, &bytes);
        }
        Ok(Received::Packets)
    }
}

impl Transmit for Output<'_> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let sent = batch.packets().iter().filter(|packet| matches!(packet.fate, Fate::Transmit(_)));
        self.0.sent.lock().expect("nobody panics").extend(sent.map(|packet| packet.seq));
        Ok(())
    }
}

/// A UDP datagram from 10.0.0.`source`.
fn frame(source: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, source, 192, 0, 2, 1]);
    frame[34..42].copy_from_slice(&[0, 53, 0, 53, 0, 26, 0, 0]);
    frame
}

fn begin(cores: usize, gate: &Arc<Gate>, mut pieces: &Pieces, look: impl FnOnce(&Running<'_, Gate>)) -> Outcome {
    let control = Control::default();
    thread::scope(|scope| {
        let running =
            start(scope, Arc::clone(gate), EngineKind::Pipeline, cores, Options::default(), &mut pieces, &control);
        // If the test fails, the run ends all the same, because the scope waits for it.
        let looked = catch_unwind(AssertUnwindSafe(|| look(&running)));
        if let Err(panic) = looked {
            gate.is_open.store(true, ANY);
            running.stop();
            std::panic::resume_unwind(panic);
        }
        running.wait().expect("the engine takes it")
    })
}

/// Waits until the number of pieces read doesn't change any more. Returns it.
fn settled(pieces: &Pieces) -> u64 {
    let start = Instant::now();
    loop {
        let before = pieces.read.load(ANY);
        thread::sleep(Duration::from_millis(120));
        if before > 0 && pieces.read.load(ANY) == before {
            return before;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "reading never stops");
    }
}

#[test]
fn a_way_that_stalls_stops_the_reading_and_loses_nothing() {
    for cores in 2..=5 {
        let (gate, pieces) = (Arc::new(Gate { is_open: AtomicBool::new(false) }), Pieces::new(2_000));
        let outcome = begin(cores, &gate, &pieces, |running| {
            let slots = 3 * cores as u64;
            assert_eq!(settled(&pieces), slots, "on {cores} cores");
            assert!(pieces.sent.lock().expect("nobody panics").is_empty(), "the first piece is not whole");
            assert!(!running.has_ended());
            gate.is_open.store(true, ANY);
        });
        assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{:?}", outcome.failure);
        assert_eq!((outcome.counters.received, outcome.counters.forwarded), (16_000, 16_000), "on {cores} cores");
        let sent = pieces.sent.lock().expect("nobody panics");
        assert!(sent.iter().copied().eq((0..16_000).map(Seq)), "on {cores} cores");
    }
}

#[test]
fn a_stop_drains_what_waits_behind_a_stalled_way() {
    let (gate, pieces) = (Arc::new(Gate { is_open: AtomicBool::new(false) }), Pieces::new(2_000));
    let outcome = begin(3, &gate, &pieces, |running| {
        let read = settled(&pieces);
        running.stop();
        gate.is_open.store(true, ANY);
        let start = Instant::now();
        while !running.has_ended() {
            assert!(start.elapsed() < Duration::from_secs(60), "it never ends");
            thread::yield_now();
        }
        // A free slot may be filled before the first stage sees the stop.
        assert!(pieces.read.load(ANY) >= read);
    });
    assert!(outcome.interrupted && outcome.failure.is_none() && outcome.counters.add_up());
    let read = pieces.read.load(ANY);
    assert!(read < 2_000 && outcome.counters.forwarded == read * 8, "{read} pieces: {:?}", outcome.counters);
    assert!(pieces.sent.lock().expect("nobody panics").iter().copied().eq((0..read * 8).map(Seq)));
}

#[test]
fn a_stage_that_breaks_down_holds_up_nobody() {
    for cores in 2..=4 {
        let gate = Arc::new(Gate { is_open: AtomicBool::new(true) });
        let pieces = Pieces { breaks_at: 50, ..Pieces::new(2_000) };
        let options = Options::default();
        let broken = catch_unwind(AssertUnwindSafe(|| {
            run(Arc::clone(&gate), EngineKind::Pipeline, cores, &options, &mut &pieces, &Control::default())
        }));
        assert!(broken.is_err(), "the input's bug is not hidden");

        // A question that panics on the last way.
        let pieces = Pieces::new(u64::MAX);
        let broken = catch_unwind(AssertUnwindSafe(|| {
            begin(cores, &gate, &pieces, |running| {
                let answers = running.ask(move |core, _| assert!(core + 1 < cores, "a bug in the question"));
                assert_eq!(answers, None);
            })
        }));
        assert!(broken.is_err(), "the question's bug is not hidden");
    }
}
