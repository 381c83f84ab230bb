//! Check of network functions: no input causes a panic, every packet and every flow is counted, and while the small tables have room, the
//! engine does the same as the naive one.

use std::sync::Arc;

use engine::{EngineKind, Inspect, Options, private_instance};
use functions::{Catalogued, Visitor};
use nf::{Function, Sharing, Verdict};
use packet::{LinkType, Nanos};
use port::{Batch, Fate, Packet, Trace};
use serde::de::DeserializeOwned;

use super::parse::LINKS;
use crate::Driver;
use crate::Frames;

/// Table size, small enough to fill up.
const FLOWS_MAX: usize = 12;
/// Packets of a batch.
const BATCH: usize = 5;
const PACKETS_MAX: usize = 64;
/// Time limit of the comparison: nine years before the latest deadline that a flow table supports. The naive engine has no such limit.
const DEADLINES_END: Nanos = Nanos((1 << 63) - (1 << 58));

/// Runs the packets of the input (see [`encode`]) through all functions.
pub fn functions(bytes: &[u8]) {
    let trace = decode(bytes);
    functions::each(&mut Through(&trace));
}

struct Through<'a>(&'a Trace);

impl Visitor for Through<'_> {
    fn visit<N: Catalogued>(&mut self) {
        through(&N::from_config(read(N::CRAMPED)), self.0);
    }
}

/// Encodes packets as an input of [`functions`]: the number of the link type, then for each packet a byte for the time since the last one,
/// two bytes for its length and three flags, and its bytes.
///
/// # Panics
/// For frames of 8 KiB and more, and for time gaps that no byte encodes.
#[must_use]
pub fn encode(frames: &Frames) -> Vec<u8> {
    let link = LINKS.iter().position(|link| *link == frames.link()).expect("it is one that is read");
    let mut out = vec![link as u8];
    let mut now = Nanos(0);
    for (time, bytes) in frames.iter() {
        let gap = time.0 - now.0;
        out.push((0..=u8::MAX).find(|code| step(*code) >= gap).expect("times are near each other"));
        now = time;
        assert!(bytes.len() <= usize::from(LEN_MASK), "frames are short");
        out.extend((bytes.len() as u16).to_le_bytes());
        out.extend(bytes);
    }
    out
}

const LEN_MASK: u16 = 0x1fff;
const OTHER_INTERFACE: u16 = 0x2000;
const CUT: u16 = 0x4000;

/// Decodes a byte to a time gap in nanoseconds, from zero to centuries.
const fn step(code: u8) -> u64 {
    let (mantissa, shift) = ((code & 3) as u128, (code >> 2) as u32);
    let step = mantissa << shift;
    if step > u64::MAX as u128 { u64::MAX } else { step as u64 }
}

/// Decodes the packets of any input, see [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Trace {
    let mut trace = Trace::new();
    let Some((link, mut rest)) = bytes.split_first() else { return trace };
    let link: LinkType = LINKS[usize::from(*link) % LINKS.len()];
    let mut now = 0u64;
    while let Some((&[code, low, high], behind)) = rest.split_first_chunk::<3>()
        && trace.len() < PACKETS_MAX
    {
        let word = u16::from_le_bytes([low, high]);
        let (frame, after_frame) = behind.split_at(behind.len().min(usize::from(word & LEN_MASK)));
        now = now.saturating_add(step(code));
        let descriptor = Frames::descriptor(link, trace.len(), Nanos(now), frame);
        let packet = Packet {
            wire_len: descriptor.wire_len + if word & CUT == 0 { 0 } else { 100 },
            interface: u16::from(word & OTHER_INTERFACE != 0),
            ..descriptor
        };
        trace.push(packet, frame);
        rest = after_frame;
    }
    trace
}

fn read<C: DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the check's own configuration")
}

fn through<N: Function + Clone>(function: &N, trace: &Trace) {
    let name = N::DESCRIPTION.name;
    let options = Options { flows_max: Some(FLOWS_MAX), pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(function.clone()), 1, &options);
    let (mut fates, mut batch) = (Vec::new(), Batch::default());
    for (number, (packet, bytes)) in trace.iter().enumerate() {
        batch.push(*packet, bytes);
        if batch.len() == BATCH || number + 1 == trace.len() {
            instance.workers[0].process(&mut batch);
            for (index, packet) in batch.packets().iter().enumerate() {
                assert!(batch.bytes(index).len() <= packet.wire_len as usize);
                fates.push(packet.fate);
            }
            batch.clear();
        }
    }
    let counters = instance.counters();
    let goes_out = fates.iter().filter(|fate| fate.is_sent()).count() as u64;
    assert!(counters.add_up() && counters.received == trace.len() as u64, "{name}: {counters:?}");
    assert!(!fates.contains(&Fate::Pending), "{name} after_frame a packet undecided");
    assert_eq!(goes_out, counters.forwarded + counters.replied, "{name}: {counters:?}");

    let now = trace.packets().last().map_or(Nanos(0), |packet| packet.time);
    let alive = instance.flows(now).len() as u64;
    let flows = instance.flow_counters_at(now);
    assert_eq!(alive + flows.ended(), flows.opened, "{name}: {alive} flows alive, {flows:?}");
    assert!(instance.high_water() <= 2 * FLOWS_MAX, "{name}: {} flows at once", instance.high_water());
    let _ = instance.report(now);
    // The engine chooses, within bounds, when a flow with shared state ends.
    if !flows.was_full() && now < DEADLINES_END && matches!(N::DESCRIPTION.sharing, Sharing::Nothing) {
        as_the_naive(function, trace, &fates, &named(&instance.flows(now)));
    }
}

fn named<N: Function>(flows: &[engine::FlowState<N>]) -> Vec<(nf::KeyOf<N>, Nanos)> {
    let mut flows: Vec<_> = flows.iter().map(|state| (state.key, state.deadline)).collect();
    flows.sort_unstable_by_key(|(key, _)| *key);
    flows
}

fn as_the_naive<N: Function + Clone>(function: &N, trace: &Trace, fates: &[Fate], alive: &[(nf::KeyOf<N>, Nanos)]) {
    let name = N::DESCRIPTION.name;
    let mut naive = Driver::new(function.clone());
    for (number, (verdict, fate)) in naive.run_trace(trace).iter().zip(fates).enumerate() {
        let goes_out = fate.is_sent();
        let agree = match verdict {
            Verdict::Forward(_) | Verdict::Rewrite { .. } => goes_out,
            Verdict::Drop(_) => !goes_out,
            // Not every packet can be answered or transformed; only the engine finds out.
            Verdict::Reply(_) | Verdict::Transform { .. } | Verdict::Copy { .. } => true,
        };
        assert!(agree, "{name}: packet {number}: {verdict:?} by the naive engine, {fate:?}");
    }
    let expected: Vec<_> = naive.flows().into_iter().map(|(key, _, deadline, _)| (key, deadline)).collect();
    assert_eq!(alive, expected, "{name}: the flows alive");
}
