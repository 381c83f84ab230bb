//! Conversations over TCP as frames: each message in a segment of its own, or cut anyhow.

use std::collections::HashMap;

use packet::{Nanos, TcpFlags};
use synth::Rng;
use testkit::{Build, Frames};

/// What one side of a connection says at a time.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) now: Nanos,
    pub(crate) client: String,
    pub(crate) server: &'static str,
    pub(crate) says: Says,
}

/// What it says.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// The client says these messages.
    Requests(Vec<String>),
    /// The server does.
    Responses(Vec<String>),
    /// Both end the connection.
    End,
}

/// The bytes of a segment by the message that it has: the turn and the message's number. `None` for segments without a message.
pub(crate) type Told = Option<(usize, usize)>;

/// Frames, and what each tells.
pub(crate) struct Exchange {
    pub(crate) frames: Frames,
    pub(crate) told: Vec<Told>,
}

/// The next sequence number of the client and of the server.
type Next = [u32; 2];

impl Exchange {
    /// Each message in a segment of its own, in order.
    pub(crate) fn whole(turns: &[Turn]) -> Self {
        Self::build(turns, |messages, _| {
            let mut at = 0;
            let piece = |(number, message): (usize, &String)| {
                at += message.len();
                (at - message.len()..at, Some(number))
            };
            messages.iter().enumerate().map(piece).collect()
        })
    }

    /// The same bytes, cut anywhere, out of order, with repetitions and overlaps.
    pub(crate) fn cut(turns: &[Turn], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self::build(turns, |_, len| {
            let mut ends: Vec<usize> = (0..rng.below(6)).map(|_| rng.below(len as u64 + 1) as usize).collect();
            ends.extend([0, len]);
            ends.sort_unstable();
            let mut pieces: Vec<_> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
            for _ in 0..rng.below(4) {
                let [one, other] = [(); 2].map(|()| rng.below(len as u64 + 1) as usize);
                pieces.push(one.min(other)..one.max(other));
            }
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, rng.below(at as u64 + 1) as usize);
            }
            pieces.retain(|piece| !piece.is_empty());
            pieces.into_iter().map(|piece| (piece, None)).collect()
        })
    }

    fn build(
        turns: &[Turn],
        mut pieces: impl FnMut(&[String], usize) -> Vec<(std::ops::Range<usize>, Option<usize>)>,
    ) -> Self {
        let mut this = Self { frames: Frames::default(), told: Vec::new() };
        let mut connections: HashMap<&str, Next> = HashMap::new();
        for (number, Turn { now, client, server, says }) in turns.iter().enumerate() {
            let next = connections.entry(client).or_insert_with(|| {
                // So that sequence numbers wrap.
                let next = [u32::MAX - 700, u32::MAX - 90].map(|first| first.wrapping_add(number as u32 * 7_919));
                this.open(*now, client, server, next);
                next
            });
            let (messages, side) = match says {
                Says::Requests(messages) => (messages, 0),
                Says::Responses(messages) => (messages, 1),
                Says::End => {
                    this.end(*now, client, server, *next);
                    connections.remove(client.as_str());
                    continue;
                }
            };
            let text = messages.concat();
            let [from, to] = if side == 0 { [client.as_str(), server] } else { [*server, client.as_str()] };
            for (piece, message) in pieces(messages, text.len()) {
                let seq = next[side].wrapping_add(piece.start as u32);
                let segment = Build::tcp(from, to).seq(seq).ack(next[1 - side]).data(&text.as_bytes()[piece]);
                this.push(*now, &segment, message.map(|message| (number, message)));
            }
            next[side] = next[side].wrapping_add(text.len() as u32);
        }
        this
    }

    fn push(&mut self, now: Nanos, segment: &Build, told: Told) {
        self.frames.build(now, segment);
        self.told.push(told);
    }

    fn open(&mut self, now: Nanos, client: &str, server: &str, [mine, yours]: Next) {
        let syn = Build::tcp(client, server).flags(TcpFlags::SYN).seq(mine.wrapping_sub(1));
        let both = TcpFlags::SYN.with(TcpFlags::ACK);
        let answer = Build::tcp(server, client).flags(both).seq(yours.wrapping_sub(1)).ack(mine);
        for segment in [syn, answer, Build::tcp(client, server).seq(mine).ack(yours)] {
            self.push(now, &segment, None);
        }
    }

    fn end(&mut self, now: Nanos, client: &str, server: &str, [mine, yours]: Next) {
        let fin = TcpFlags::FIN.with(TcpFlags::ACK);
        let one = Build::tcp(client, server).flags(fin).seq(mine).ack(yours);
        let other = Build::tcp(server, client).flags(fin).seq(yours).ack(mine.wrapping_add(1));
        let last = Build::tcp(client, server).seq(mine.wrapping_add(1)).ack(yours.wrapping_add(1));
        for segment in [one, other, last] {
            self.push(now, &segment, None);
        }
    }
}
