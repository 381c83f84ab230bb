//! Which flow sends the next packet, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use packet::Nanos;

use super::Params;
use super::conversation::Conversation;
use crate::rng::Rng;

/// Which flow sends the next packet, and when.
pub(super) enum Order {
    /// Flows that are all there from the start, one packet after the other at a steady rate.
    Steady { clock: Clock, flows: Steady },
    /// Flows that come and go, each at its own pace.
    Timed(Timed),
}

/// Equal steps of time, exact in the long run.
pub(super) struct Clock {
    rate_pps: u64,
    count: u64,
}

/// Flows that are all there from the start.
pub(super) struct Steady {
    lengths: Vec<u32>,
    conversations: Vec<Option<Conversation>>,
    /// The flows that aren't done.
    alive: Vec<u32>,
    /// Which of `alive` is next when they take turns, or was last when they don't.
    at: usize,
    pick: Pick,
}

#[derive(Clone, Copy)]
enum Pick {
    Turns,
    /// Stays with a flow with this probability.
    Random {
        stay: f64,
    },
}

/// Flows that come and go.
pub(super) struct Timed {
    /// When each flow begins, its length and its pace, latest first.
    starts: Vec<(u64, u32, u32, u64)>,
    alive: BinaryHeap<Reverse<(u64, u32)>>,
    conversations: Vec<Option<Conversation>>,
    free: Vec<u32>,
    /// How often a gap is a long one.
    pause: f64,
    now: u64,
}

/// Opens the conversation of a flow, given its number and length.
pub(super) type Open<'a> = dyn FnMut(u32, u32, &mut Rng) -> Conversation + 'a;

/// The gap between packets that come back to back: a full frame on a 10 Gbit/s link.
const BACK_TO_BACK: u64 = 1_230;

impl Order {
    /// Flows take turns.
    pub(super) fn turns(lengths: Vec<u32>, params: &Params) -> Self {
        Self::steady(lengths, params, Pick::Turns)
    }

    /// Any flow that isn't done may be next.
    pub(super) fn random(lengths: Vec<u32>, params: &Params) -> Self {
        Self::steady(lengths, params, Pick::Random { stay: 1.0 - 1.0 / params.burst })
    }

    fn steady(lengths: Vec<u32>, params: &Params, pick: Pick) -> Self {
        let flows = Steady {
            conversations: vec![None; lengths.len()],
            alive: (0..lengths.len() as u32).collect(),
            lengths,
            at: 0,
            pick,
        };
        Self::Steady { clock: Clock { rate_pps: params.rate_pps, count: 0 }, flows }
    }

    /// Flows come and go; each packet of a flow some time after the one before.
    pub(super) fn timed(lengths: Vec<u32>, params: &Params, rng: &mut Rng) -> Self {
        Self::begin(lengths, params, rng, |span, length| params.gap.0.min(span * 9 / 10 / u64::from(length)))
    }

    /// Every flow lasts for most of the trace.
    pub(super) fn spread(lengths: Vec<u32>, params: &Params, rng: &mut Rng) -> Self {
        Self::begin(lengths, params, rng, |span, length| span * 9 / 10 / u64::from(length))
    }

    fn begin(lengths: Vec<u32>, params: &Params, rng: &mut Rng, pace: impl Fn(u64, u32) -> u64) -> Self {
        let span = (u128::from(params.packets) * 1_000_000_000 / u128::from(params.rate_pps)) as u64;
        let start = |(length, flow): (u32, u32)| {
            let gap = pace(span, length);
            let room = span.saturating_sub(gap * u64::from(length - 1));
            (rng.below(room.max(1)), flow, length, gap)
        };
        let mut starts: Vec<_> = lengths.into_iter().zip(0..).map(start).collect();
        starts.sort_unstable_by(|a, b| b.cmp(a));
        Self::Timed(Timed {
            starts,
            alive: BinaryHeap::new(),
            conversations: Vec::new(),
            free: Vec::new(),
            pause: 1.0 / params.burst,
            now: 0,
        })
    }

    /// The conversation whose packet is next, to be put back after it, and the packet's time.
    pub(super) fn next(&mut self, rng: &mut Rng, open: &mut Open<'_>) -> Option<(Nanos, Conversation)> {
        match self {
            Self::Steady { clock, flows } => {
                let conversation = flows.next(rng, open)?;
                Some((clock.tick(), conversation))
            }
            Self::Timed(flows) => flows.next(rng, open),
        }
    }

    /// Takes the conversation back after its packet.
    pub(super) fn put_back(&mut self, conversation: Conversation, rng: &mut Rng) {
        match self {
            Self::Steady { flows, .. } => flows.put_back(conversation),
            Self::Timed(flows) => flows.put_back(conversation, rng),
        }
    }
}

impl Clock {
    fn tick(&mut self) -> Nanos {
        let time = u128::from(self.count) * 1_000_000_000 / u128::from(self.rate_pps);
        self.count += 1;
        Nanos(time as u64)
    }
}

impl Steady {
    fn next(&mut self, rng: &mut Rng, open: &mut Open<'_>) -> Option<Conversation> {
        if self.alive.is_empty() {
            return None;
        }
        match self.pick {
            Pick::Turns => {
                if self.at >= self.alive.len() {
                    self.at = 0;
                }
            }
            Pick::Random { stay } => {
                if self.at >= self.alive.len() || stay == 0.0 || !rng.chance(stay) {
                    self.at = rng.below(self.alive.len() as u64) as usize;
                }
            }
        }
        let flow = self.alive[self.at];
        let conversation = self.conversations[flow as usize];
        Some(conversation.unwrap_or_else(|| {
            let mut conversation = open(flow, self.lengths[flow as usize], rng);
            conversation.slot = flow;
            conversation
        }))
    }

    fn put_back(&mut self, conversation: Conversation) {
        if conversation.is_done() {
            // Turns go on with the flow that takes the place, which keeps the rounds nearly even.
            self.alive.swap_remove(self.at);
            return;
        }
        self.conversations[conversation.slot as usize] = Some(conversation);
        if matches!(self.pick, Pick::Turns) {
            self.at += 1;
        }
    }
}

impl Timed {
    fn next(&mut self, rng: &mut Rng, open: &mut Open<'_>) -> Option<(Nanos, Conversation)> {
        let begins = self.starts.last().map(|(start, ..)| *start);
        let goes_on = self.alive.peek().map(|Reverse((time, _))| *time);
        match (begins, goes_on) {
            (Some(start), goes_on) if goes_on.is_none_or(|time| start <= time) => {
                let (start, flow, length, gap) = self.starts.pop()?;
                let mut conversation = open(flow, length, rng);
                conversation.gap = gap;
                conversation.slot = self.free.pop().unwrap_or_else(|| {
                    self.conversations.push(None);
                    self.conversations.len() as u32 - 1
                });
                self.now = start;
                Some((Nanos(start), conversation))
            }
            (_, Some(time)) => {
                let Reverse((_, slot)) = self.alive.pop()?;
                self.now = time;
                self.conversations[slot as usize].take().map(|conversation| (Nanos(time), conversation))
            }
            (_, None) => None,
        }
    }

    fn put_back(&mut self, conversation: Conversation, rng: &mut Rng) {
        let slot = conversation.slot;
        if conversation.is_done() {
            self.free.push(slot);
            return;
        }
        // Trains of packets, and pauses that make up for them: exponential, as independent arrivals have.
        let wait = if rng.chance(self.pause) {
            (-(1.0 - rng.unit()).ln() * conversation.gap as f64 / self.pause) as u64
        } else {
            BACK_TO_BACK.min(conversation.gap)
        };
        self.alive.push(Reverse((self.now + wait, slot)));
        self.conversations[slot as usize] = Some(conversation);
    }
}
