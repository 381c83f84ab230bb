//! However the bytes of a session are cut into segments and fragments, in whatever order and how often they come: functions over streams
//! hear the same, tell the same and drop the same.

use std::mem;
use std::sync::{Arc, Mutex};

use engine::{EngineKind, Options, private_instance};
use functions::identify::{self, Identify};
use functions::streams::{Direction, Hearing, STREAM_KEYS, Said, Session, StreamConfig, StreamFunction, Streams};
use functions::{Catalogued, stream_match};
use l7::defrag::{Limits, Policy, gather};
use millrace_testkit::{Build, Frames, Rng};
use nf::{Cell, Description, Flow, Function, Sharing};
use packet::{Nanos, TcpFlags};
use port::{Batch, Trace};
use proptest::prelude::*;

/// What each side says in turn: true for the client.
type Dialogue = Vec<(bool, Vec<u8>)>;

const NEEDLE: &str = "needle-in-a-haystack";

/// Dialogues that are told apart, and one that nobody knows. Most of them have the needle somewhere.
fn dialogues() -> Vec<Dialogue> {
    let said = |parts: &[(bool, &str)]| -> Dialogue {
        parts.iter().map(|(is_client, text)| (*is_client, text.as_bytes().to_vec())).collect()
    };
    let long = "padding ".repeat(700);
    vec![
        said(&[
            (true, "GET /needle-in-a-haystack HTTP/1.1\r\nHost: example.org\r\n\r\n"),
            (false, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes\n"),
        ]),
        said(&[
            (true, "POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5600\r\n\r\n"),
            (true, &long),
            (false, "HTTP/1.1 200 OK\r\n\r\na needle-in-a-haystack"),
            (true, "GET /more HTTP/1.1\r\n\r\n"),
        ]),
        said(&[
            (false, "220 mail.example.org ESMTP ready\r\n"),
            (true, "EHLO there\r\n"),
            (false, "250-mail.example.org\r\n250 SIZE 1000\r\n"),
            (true, "MAIL FROM:<needle-in-a-haystack@example.org>\r\n"),
        ]),
        said(&[(false, "SSH-2.0-OpenSSH_9.7\r\n"), (true, "SSH-2.0-OpenSSH_9.6\r\n"), (true, &long[..3000])]),
        said(&[(true, "what nobody knows, in clear"), (false, "nor this needle-in-a-haystac"), (false, "k, or is it")]),
    ]
}

/// How a dialogue becomes packets.
#[derive(Clone, Debug)]
struct Cutting {
    /// Lengths of pieces, in turn.
    lengths: Vec<usize>,
    /// Further pieces of what is said anyway: where, and how long.
    again: Vec<(prop::sample::Index, usize)>,
    /// True if the pieces of an utterance come in any order, those that are near each other.
    shuffled: bool,
    seed: u64,
}

/// As it is said: one piece for each utterance.
const WHOLE: Cutting = Cutting { lengths: Vec::new(), again: Vec::new(), shuffled: false, seed: 0 };

fn cutting() -> impl Strategy<Value = Cutting> {
    let again = prop::collection::vec((any::<prop::sample::Index>(), 1..1400_usize), 0..8);
    let lengths = prop::collection::vec(prop_oneof![1..20_usize, 1..1400_usize], 1..12);
    (lengths, again, any::<bool>(), any::<u64>()).prop_map(|(lengths, again, shuffled, seed)| Cutting {
        lengths,
        again,
        shuffled,
        seed,
    })
}

fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

/// The most pieces that come early.
const EARLY_MAX: usize = 500;

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.1:9";

/// The packets of a dialogue, with a handshake and an end.
fn packets(dialogue: &Dialogue, cutting: &Cutting) -> Vec<Build> {
    let mut rng = Rng::new(cutting.seed);
    let mut next = [u32::MAX - 40, 5000];
    let build = |side: usize, next: [u32; 2]| {
        let (from, to) = if side == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        Build::tcp(from, to).seq(next[side]).ack(next[1 - side])
    };
    let before = next.map(|next| next.wrapping_sub(1));
    let syn = Build::tcp(CLIENT, SERVER).flags(TcpFlags::SYN).seq(before[0]);
    let synack = build(1, [next[0], before[1]]).flags(TcpFlags::SYN.with(TcpFlags::ACK));
    let mut all = vec![syn, synack, build(0, next).flags(TcpFlags::ACK)];
    let mut lengths = cutting.lengths.iter().copied().cycle();
    for (is_client, bytes) in dialogue {
        let side = usize::from(!is_client);
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = (at + lengths.next().unwrap_or(1400).min(1400)).min(bytes.len());
            pieces.push((at, end));
            at = end;
        }
        pieces.extend(cutting.again.iter().map(|(at, len)| {
            let at = at.index(bytes.len());
            (at, (at + len).min(bytes.len()))
        }));
        if cutting.shuffled {
            // No more pieces are early at a time than a side may have.
            pieces.sort_unstable();
            pieces.chunks_mut(EARLY_MAX).for_each(|near| shuffle(near, &mut rng));
        }
        for (from, to) in pieces {
            let at = next[side].wrapping_add(from as u32);
            all.push(build(side, next).flags(TcpFlags::ACK).seq(at).data(&bytes[from..to]));
        }
        next[side] = next[side].wrapping_add(bytes.len() as u32);
        all.push(build(1 - side, next).flags(TcpFlags::ACK));
    }
    for side in [0, 1] {
        all.push(build(side, next).flags(TcpFlags::FIN.with(TcpFlags::ACK)));
        next[side] = next[side].wrapping_add(1);
    }
    all.push(build(0, next).flags(TcpFlags::ACK));
    all.into_iter().enumerate().map(|(number, build)| build.id(number as u16)).collect()
}

/// A trace of whole packets.
fn whole(packets: &[Build]) -> Trace {
    let mut frames = Frames::default();
    packets
        .iter()
        .enumerate()
        .for_each(|(number, build)| frames.build(Nanos::from_millis(1000 + number as u64), build));
    frames.trace()
}

/// The same in fragments, in any order, some of them twice; then gathered.
fn gathered(packets: &[Build], mtu: usize, seed: u64) -> Trace {
    let (mut frames, mut rng) = (Frames::default(), Rng::new(seed));
    for (number, build) in packets.iter().enumerate() {
        let mut fragments = build.fragments(mtu);
        shuffle(&mut fragments, &mut rng);
        let last = fragments.pop();
        let twice = fragments.first().filter(|_| rng.chance(0.3)).cloned();
        for fragment in fragments.into_iter().chain(twice).chain(last) {
            frames.push(Nanos::from_millis(1000 + number as u64), &fragment);
        }
    }
    gather(&frames.trace(), Policy::Linux, Limits::default()).0
}

/// What a function did: which packets it dropped, and its report.
#[derive(Debug, PartialEq)]
struct Done {
    dropped: Vec<bool>,
    report: Vec<Vec<String>>,
}

fn run<N: Function>(nf: N, trace: &Trace) -> Done {
    let options = Options { flows_max: Some(16), ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(nf), 1, &options);
    let mut dropped = Vec::new();
    let mut batch = Batch::default();
    let mut last = Nanos(0);
    for (number, (packet, bytes)) in trace.iter().enumerate() {
        batch.clear();
        batch.push(port::Packet { seq: packet::Seq(number as u64), ..*packet }, bytes);
        instance.workers[0].process(&mut batch);
        dropped.push(!batch.packets()[0].fate.is_sent());
        last = packet.time;
    }
    let text = |cell: &Cell| format!("{cell:?}");
    let rows = instance.report(last).map(|report| report.rows).unwrap_or_default();
    Done { dropped, report: rows.iter().map(|row| row.iter().map(text).collect()).collect() }
}

/// Writes down all that is heard.
#[derive(Clone, Debug, Default)]
struct Scribe(Arc<Mutex<[Vec<u8>; 2]>>);

/// A session has no state of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Nothing;

impl Flow for Nothing {}

impl StreamFunction for Scribe {
    type Flow = Nothing;

    const DESCRIPTION: Description = Description {
        name: "scribe",
        summary: "writes down what is heard",
        state: "none",
        sharing: Sharing::Streams,
        keys: &STREAM_KEYS,
        drop_reasons: &[],
        recipes: &[],
    };

    fn open(&self, _: &Session) -> Nothing {
        Nothing
    }

    fn hear(&self, _: &mut Hearing<'_>, _: &mut Nothing, said: Said<'_>) {
        let sides = &mut *self.0.lock().unwrap();
        let side = &mut sides[usize::from(said.direction() == Direction::Reply)];
        match said {
            Said::Data(_, bytes) => side.extend_from_slice(bytes),
            Said::Gap(..) => side.extend_from_slice(b"<gap>"),
            Said::Deviation(..) => side.extend_from_slice(b"<deviation>"),
            Said::End(_) => side.extend_from_slice(b"<end>"),
            Said::Datagram(..) => unreachable!("all is TCP"),
        }
    }
}

/// What both sides said, and ends.
fn heard(trace: &Trace) -> [Vec<u8>; 2] {
    let scribe = Scribe::default();
    run(Streams::new(scribe.clone(), &StreamConfig::default()), trace);
    mem::take(&mut *scribe.0.lock().unwrap())
}

fn identified(trace: &Trace) -> Done {
    run(Streams::new(Identify::new(&identify::Config::default()), &StreamConfig::default()), trace)
}

fn matched(trace: &Trace) -> Done {
    let config: stream_match::Config =
        toml::from_str(&format!("patterns = [\"{NEEDLE}\"]\naction = \"drop\"")).unwrap();
    run(Streams::<stream_match::StreamMatch>::from_config(config), trace)
}

/// What each side says in all.
fn sides(dialogue: &Dialogue) -> [Vec<u8>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    dialogue.iter().for_each(|(is_client, bytes)| sides[usize::from(!is_client)].extend_from_slice(bytes));
    sides.map(|side| [&side[..], b"<end>"].concat())
}

#[test]
fn dialogues_are_told_apart() {
    let told = |dialogue| identified(&whole(&packets(dialogue, &WHOLE))).report.concat().concat();
    let told: Vec<String> = dialogues().iter().map(told).collect();
    for (told, name) in told.iter().zip(["http", "http", "smtp", "ssh", "unknown"]) {
        assert!(told.contains(name), "{told}");
    }
    let has_needle = |dialogue| matched(&whole(&packets(dialogue, &WHOLE))).dropped.contains(&true);
    assert_eq!(dialogues().iter().map(has_needle).collect::<Vec<_>>(), [true, true, true, false, true]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn segments_however_cut_are_the_same_session(which in 0..5_usize, cutting in cutting()) {
        let dialogue = &dialogues()[which];
        let (plain, cut) = (whole(&packets(dialogue, &WHOLE)), whole(&packets(dialogue, &cutting)));
        prop_assert_eq!(heard(&cut), sides(dialogue));
        prop_assert_eq!(identified(&cut).report, identified(&plain).report);
        let (once, again) = (matched(&plain), matched(&cut));
        prop_assert_eq!(once.report, again.report);
        prop_assert_eq!(once.dropped.contains(&true), again.dropped.contains(&true));
        let first = again.dropped.iter().position(|dropped| *dropped).unwrap_or(again.dropped.len());
        prop_assert!(again.dropped[first..].iter().all(|dropped| *dropped), "all behind the first is dropped");
    }

    #[test]
    fn fragments_however_cut_are_the_same_packets(
        which in 0..5_usize,
        cutting in cutting(),
        mtu in 68..900_usize,
        seed in any::<u64>(),
    ) {
        let packets = packets(&dialogues()[which], &cutting);
        let (plain, pieces) = (whole(&packets), gathered(&packets, mtu, seed));
        prop_assert_eq!(heard(&pieces), heard(&plain));
        prop_assert_eq!(identified(&pieces), identified(&plain));
        prop_assert_eq!(matched(&pieces), matched(&plain));
    }
}
