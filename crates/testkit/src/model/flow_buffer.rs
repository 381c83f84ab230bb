//! The model of `flow-buffer`: each side's stream as a map from position to byte. Its beginning is read again for every decision.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model, Tuple};

/// Stores every byte of every session.
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
    /// A SYN-ACK with other numbers: its sender, and the numbers with which both sides would begin.
    proposal: Option<((IpAddr, u16), u32, u32)>,
}

#[derive(Clone, Debug)]
struct Stream {
    start: u32,
    /// Payload length of the first segment.
    at_once: u32,
    is_answered: bool,
    /// Sequence number after the last byte sent.
    end: u32,
    said: HashMap<u32, u8>,
    has_ended: bool,
}

impl Stream {
    fn new(start: u32, at_once: u32, is_answered: bool) -> Self {
        Self { start, at_once, is_answered, end: start, said: HashMap::new(), has_ended: false }
    }

    fn head(&self) -> Vec<u8> {
        (0..).map_while(|place| self.said.get(&place).copied()).collect()
    }
}

impl Talk {
    fn is_over(&self) -> bool {
        self.is_reset || self.streams.len() == 2 && self.streams.values().all(|stream| stream.has_ended)
    }

    /// Returns true if the number acknowledges the SYN of this side.
    fn would_answer(&self, side: (IpAddr, u16), ack: u32) -> bool {
        self.streams
            .get(&side)
            .is_none_or(|stream| (0..=stream.at_once).any(|more| stream.start.wrapping_add(more) == ack))
    }

    fn hear_syn(&mut self, from: (IpAddr, u16)) {
        if self.is_over() && !self.is_banned {
            *self = Self { heard: self.heard, ..Self::default() };
        }
        if self.streams.get(&from).is_some_and(|stream| !stream.is_answered && stream.said.is_empty()) {
            self.streams.remove(&from);
        }
    }

    fn hear_syn_ack(&mut self, from: (IpAddr, u16), to: (IpAddr, u16), first: u32, ack: u32) {
        let goes_on = self.streams.get(&from).is_none_or(|stream| stream.start == first);
        if !self.would_answer(to, ack) {
            self.proposal = Some((from, first, ack));
            return;
        }
        if let Some(stream) = self.streams.get_mut(&to) {
            stream.is_answered = true;
        }
        if !goes_on {
            self.proposal = Some((from, first, ack));
        }
    }

    fn hear_ack(&mut self, from: (IpAddr, u16), to: (IpAddr, u16), seq: u32, ack: u32) {
        let Some((proposer, theirs, ours)) = self.proposal else { return };
        let is_near = |number: u32, from: u32| number.wrapping_sub(from) <= 0xffff;
        if proposer != to || !is_near(seq, ours) || !is_near(ack, theirs) {
            return;
        }
        self.proposal = None;
        if self.is_banned {
            return;
        }
        if !self.would_answer(from, ours) {
            *self = Self { heard: self.heard, ..Self::default() };
            self.streams.insert(from, Stream::new(ours, 0, true));
        }
        self.streams.insert(to, Stream::new(theirs, 0, true));
    }
}

impl FlowBufferModel {
    /// Creates a model that stores so many bytes of each side and drops sessions that begin with one of the patterns.
    #[must_use]
    pub fn new(bytes: usize, patterns: &[&[u8]], drops_contradictions: bool, idle_secs: u64) -> Self {
        let patterns = patterns.iter().map(|pattern| pattern.to_vec()).collect();
        Self { bytes, patterns, drops_contradictions, idle_secs, sessions: HashMap::new() }
    }

    /// Returns the first bytes of each side that has sent data.
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
        let [syn, ack, fin, rst] =
            [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN, TcpFlags::RST].map(|flag| tcp.flags.contains(flag));
        let first = tcp.seq.wrapping_add(u32::from(syn));
        match (syn, ack) {
            (true, false) => talk.hear_syn(from),
            (true, true) => talk.hear_syn_ack(from, to, first, tcp.ack),
            (false, true) => talk.hear_ack(from, to, first, tcp.ack),
            (false, false) => {}
        }
        talk.is_reset |= rst && talk.streams.get(&from).is_none_or(|stream| stream.end == first);
        let len = headers.payload_len;
        let stream = talk.streams.entry(from).or_insert_with(|| Stream::new(first, len, false));
        let start = stream.start;
        let end = first.wrapping_add(len).wrapping_add(u32::from(fin));
        if end.wrapping_sub(stream.end) < 1 << 31 {
            stream.end = end;
        }
        let mut contradicts = false;
        // Only the first bytes of a segment are used, as many as are stored for a side.
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
