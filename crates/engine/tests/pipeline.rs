//! The pipeline's bounds and ends: a way that stalls stops the reading and loses nothing, and a core that breaks down holds up nobody.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use memory::Memory;
use millrace_engine::{Control, Cuts, EngineKind, Options, Outcome, Running, run, start};
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Plain, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host, LinkType, Nanos, Seq};
use port::{Batch, Fate, Packet, Port, PortError, Receive, Received, Stream, Transmit, Work};

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
    /// The number of the piece at which the work on packets panics.
    work_breaks_at: u64,
    /// Decides which packets the work takes out of the stream; none if 0.
    drops: u64,
    /// The packets that the work has seen.
    worked: Arc<AtomicU64>,
    /// The pieces read so far.
    read: AtomicU64,
    sent: Mutex<Vec<Seq>>,
}

struct Input<'a> {
    pieces: &'a Pieces,
    /// `None` once another core does it.
    work: Option<Work>,
}

struct Output<'a>(&'a Pieces);

impl Pieces {
    fn new(count: u64) -> Self {
        let (breaks_at, work_breaks_at) = (u64::MAX, u64::MAX);
        let (worked, read, sent) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Self { count, breaks_at, work_breaks_at, drops: 0, worked, read, sent }
    }

    /// Takes packets out and numbers the others anew, as the gathering of fragments does.
    fn work(&self) -> Work {
        let (drops, breaks_at, worked) = (self.drops, self.work_breaks_at, Arc::clone(&self.worked));
        let mut next = 0;
        Box::new(move |batch| {
            let seen = worked.fetch_add(batch.len() as u64, ANY);
            assert!(seen < breaks_at.saturating_mul(8), "the work breaks down");
            // Of some pieces nothing is left.
            let of = |number: u64, every: u64| (number + drops).is_multiple_of(every);
            let is_kept = |seq: u64| drops == 0 || !of(seq / 8, 5) && !of(seq * 31, 7);
            batch.retain(|packet| is_kept(packet.seq.0));
            for packet in batch.packets_mut() {
                packet.seq = Seq(next);
                next += 1;
            }
        })
    }
}

impl Port for &Pieces {
    fn open(&mut self, _: usize) -> Result<port::Opened<'_>, PortError> {
        let input = Input { pieces: self, work: Some(self.work()) };
        let (input, output) = (Box::new(input), Box::new(Output(self)));
        Ok(port::Opened::Stream(Stream { input, output, order: port::Order::Sent }))
    }
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let pieces = self.pieces;
        let number = pieces.read.load(ANY);
        assert!(number != pieces.breaks_at, "the input breaks down");
        if number == pieces.count {
            return Ok(Received::End);
        }
        pieces.read.store(number + 1, ANY);
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
        if let Some(work) = &mut self.work {
            work(batch);
        }
        Ok(Received::Packets)
    }

    fn take_work(&mut self) -> Option<Work> {
        self.work.take()
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

/// The cuts, and numbers of cores that they fit.
fn shapes() -> impl Iterator<Item = (Cuts, usize)> {
    let all = Cuts::ALL.into_iter().flat_map(|cuts| (2..=5).map(move |cores| (cuts, cores)));
    all.filter(|(cuts, cores)| cuts.accepts(*cores).is_ok())
}

fn begin(
    (cuts, cores): (Cuts, usize),
    gate: &Arc<Gate>,
    mut pieces: &Pieces,
    control: &Control,
    look: impl FnOnce(&Running<'_, Gate>),
) -> Outcome {
    let options = Options { cuts, ..Options::default() };
    thread::scope(|scope| {
        let running = start(scope, Arc::clone(gate), EngineKind::Pipeline, cores, options, &mut pieces, control);
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
fn a_way_that_stalls_is_named_and_stops_the_reading_and_loses_nothing() {
    for (cuts, cores) in shapes() {
        let on = format!("{cuts:?} on {cores} cores");
        let (gate, pieces) = (Arc::new(Gate { is_open: AtomicBool::new(false) }), Pieces::new(2_000));
        let control = Control::default();
        let outcome = begin((cuts, cores), &gate, &pieces, &control, |running| {
            let slots = 3 * cores as u64;
            assert_eq!(settled(&pieces), slots, "{on}");
            assert!(pieces.sent.lock().expect("nobody panics").is_empty(), "the first piece is not whole");
            assert!(!running.has_ended());
            let start = Instant::now();
            let stalled = loop {
                if let Some(core) = control.stalled() {
                    break core;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "nobody is named: {on}");
                thread::yield_now();
            };
            assert!((cuts.ahead()..cores).contains(&stalled), "core {stalled} of {on}");
            gate.is_open.store(true, ANY);
        });
        assert_eq!(control.stalled(), None, "{on}");
        assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{:?}", outcome.failure);
        assert_eq!((outcome.counters.received, outcome.counters.forwarded), (16_000, 16_000), "{on}");
        let idle = outcome.by_core[..cuts.ahead()].iter().map(|core| core.received).sum::<u64>();
        assert_eq!(idle, 0, "cores ahead of the ways decide nothing: {on}");
        let sent = pieces.sent.lock().expect("nobody panics");
        assert!(sent.iter().copied().eq((0..16_000).map(Seq)), "{on}");
    }
}

#[test]
fn a_stop_drains_what_waits_behind_a_stalled_way() {
    for shape in [(Cuts::Parse, 3), (Cuts::Defragment, 2), (Cuts::Both, 4)] {
        let (gate, pieces) = (Arc::new(Gate { is_open: AtomicBool::new(false) }), Pieces::new(2_000));
        let outcome = begin(shape, &gate, &pieces, &Control::default(), |running| {
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
}

#[test]
fn a_stage_that_breaks_down_holds_up_nobody() {
    for (cuts, cores) in shapes() {
        let gate = Arc::new(Gate { is_open: AtomicBool::new(true) });
        let pieces = Pieces { breaks_at: 50, ..Pieces::new(2_000) };
        let options = Options { cuts, ..Options::default() };
        let broken = catch_unwind(AssertUnwindSafe(|| {
            run(Arc::clone(&gate), EngineKind::Pipeline, cores, &options, &mut &pieces, &Control::default())
        }));
        assert!(broken.is_err(), "the input's bug is not hidden");

        // Work that panics on a core of its own.
        let pieces = Pieces { work_breaks_at: 50, ..Pieces::new(2_000) };
        let broken = catch_unwind(AssertUnwindSafe(|| {
            run(Arc::clone(&gate), EngineKind::Pipeline, cores, &options, &mut &pieces, &Control::default())
        }));
        assert!(broken.is_err(), "the work's bug is not hidden");

        // A question that panics on the last way.
        let pieces = Pieces::new(u64::MAX);
        let broken = catch_unwind(AssertUnwindSafe(|| {
            begin((cuts, cores), &gate, &pieces, &Control::default(), |running| {
                let answers = running.ask(move |core, _| assert!(core + 1 < cores, "a bug in the question"));
                assert_eq!(answers, None);
            })
        }));
        assert!(broken.is_err(), "the question's bug is not hidden");
    }
}

/// Runs the pieces through an engine. Returns the numbers of the packets that were sent, in order, and how many packets were received and how
/// many the work saw.
fn result_of(kind: EngineKind, shape: (Cuts, usize), pieces: &Pieces) -> (Vec<Seq>, u64, u64) {
    let gate = Arc::new(Gate { is_open: AtomicBool::new(true) });
    let options = Options { cuts: shape.0, ..Options::default() };
    let outcome = run(gate, kind, shape.1, &options, &mut &*pieces, &Control::default()).expect("it can run");
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{shape:?}: {:?}", outcome.failure);
    (pieces.sent.lock().expect("nobody panics").clone(), outcome.counters.received, pieces.worked.load(ANY))
}

#[test]
fn whichever_core_works_on_packets_the_same_come_out() {
    for seed in 0..40 {
        let pieces = |seed| Pieces { drops: seed, ..Pieces::new(60 + seed) };
        let expected = result_of(EngineKind::Sequential, (Cuts::Parse, 1), &pieces(seed));
        assert_eq!(expected.2, (60 + seed) * 8, "the work sees all packets once");
        assert!(seed == 0 || expected.1 < expected.2, "it takes some out");
        for shape in shapes() {
            let got = result_of(EngineKind::Pipeline, shape, &pieces(seed));
            assert!(got == expected, "{shape:?}, seed {seed}: {} of {} packets", got.0.len(), expected.0.len());
        }
    }
}
