//! The model of `flow-buffer`: each side's stream as a map from place to byte, of which the beginning is read anew for every
//! decision.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model, Tuple};

/// Remembers every byte that it was told.
#[derive(Clone, Debug)]
pub struct FlowBufferModel {
    bytes: usize,
    patterns: Vec<Vec<u8>>,
    drops_contradictions: bool,
    idle_secs: u64,
    sessions: HashMap<Tuple, Talk>,
}

#[derive(Clone, Debug, Default)]
struct Talk {
    heard: u64,
    streams: HashMap<(IpAddr, u16), Stream>,
    is_banned: bool,
    is_reset: bool,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    start: Option<u32>,
    said: HashMap<u32, u8>,
    has_ended: bool,
}

impl Stream {
    fn head(&self) -> Vec<u8> {
        (0..).map_while(|place| self.said.get(&place).copied()).collect()
    }
}

impl FlowBufferModel {
    /// A model that keeps so many bytes of each side and drops what begins like one of the patterns.
    #[must_use]
    pub fn new(bytes: usize, patterns: &[&[u8]], drops_contradictions: bool, idle_secs: u64) -> Self {
        let patterns = patterns.iter().map(|pattern| pattern.to_vec()).collect();
        Self { bytes, patterns, drops_contradictions, idle_secs, sessions: HashMap::new() }
    }

    /// What each side of each session has said first: those that have said anything.
    #[must_use]
    pub fn heads(&self) -> HashMap<(Tuple, (IpAddr, u16)), Vec<u8>> {
        let of = |(name, talk): (&Tuple, &Talk)| {
            let (name, streams) = (*name, talk.streams.clone());
            streams.into_iter().map(move |(side, stream)| ((name, side), stream.head()))
        };
        self.sessions.iter().flat_map(of).filter(|(_, head)| !head.is_empty()).collect()
    }
}

impl Model for FlowBufferModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        let Transport::Tcp(tcp) = headers.transport else { return Fate::FORWARD };
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let (from, to) = ((src, tcp.src_port), (dst, tcp.dst_port));
        let (low, high) = (from.min(to), from.max(to));
        let talk = self.sessions.entry((low.0, low.1, high.0, high.1, headers.protocol)).or_default();
        if talk.heard + 1_000_000_000 * self.idle_secs <= now.0 {
            *talk = Talk::default();
        }
        talk.heard = now.0;
        let [syn, fin, rst] = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST].map(|flag| tcp.flags.contains(flag));
        let both_ended = talk.streams.len() == 2 && talk.streams.values().all(|stream| stream.has_ended);
        if syn && (talk.is_reset || both_ended) && !talk.is_banned {
            *talk = Talk { heard: now.0, ..Talk::default() };
        }
        talk.is_reset |= rst;
        let stream = talk.streams.entry(from).or_default();
        let first = tcp.seq.wrapping_add(u32::from(syn));
        let start = *stream.start.get_or_insert(first);
        let mut contradicts = false;
        // Of each segment as many bytes are looked at as are kept of a side.
        for (place, byte) in payload.iter().take(self.bytes).enumerate() {
            let place = first.wrapping_add(place as u32).wrapping_sub(start);
            if (place as usize) < self.bytes {
                contradicts |= *stream.said.entry(place).or_insert(*byte) != *byte;
            }
        }
        stream.has_ended |= fin;
        let head = stream.head();
        talk.is_banned |= self.patterns.iter().any(|pattern| head.starts_with(pattern));
        if talk.is_banned {
            Fate::Drop("pattern")
        } else if contradicts && self.drops_contradictions {
            Fate::Drop("contradiction")
        } else {
            Fate::FORWARD
        }
    }
}
