//! The way of one packet through a function.

use std::sync::Arc;

use engine::{EngineError, EngineKind, Inspect, Options, PrivateInstance, private_instance};
use nf::{Function, KeyOf, Meta};
use packet::{Headers, Malformed, Nanos, parse};
use port::{Batch, Packet, Queue, Received, Sides};

/// The way of one packet through a function.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its descriptor after the step.
    pub packet: Packet,
    /// Its bytes as it came.
    pub before: Vec<u8>,
    /// Its bytes as sent, if it was sent.
    pub after: Vec<u8>,
    /// The parsed headers, or why they can't be parsed.
    pub headers: Result<Headers, Malformed>,
    /// The key of its packet set; `None` if the function has nothing to do with it.
    pub key: Option<String>,
    /// The state of that packet set before the step, if there was any.
    pub state_before: Option<String>,
    /// The state of that packet set after the step, if there is any.
    pub state_after: Option<String>,
    /// The verdict.
    pub decided: Decided,
}

/// Verdict of a function on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It goes out.
    Forwarded,
    /// It is answered.
    Replied,
    /// It is dropped, for the reason of this name.
    Dropped(&'static str),
}

/// A function that takes packets one by one, on one core.
pub trait Stepper {
    /// Takes the step of a packet. Returns the packet as it is forwarded, with its bytes; `None` if it is dropped or answered.
    fn step(&mut self, packet: Packet, bytes: &[u8]) -> Option<(Packet, &[u8])>;

    /// Takes the step of a packet apart.
    fn explain(&mut self, packet: Packet, bytes: &[u8]) -> Explained;
}

/// A function on one core.
pub(crate) struct OneCore<N: Function> {
    nf: Arc<N>,
    instance: PrivateInstance<N>,
    one: Batch,
}

impl<N: Function> OneCore<N> {
    pub(crate) fn new(nf: &Arc<N>) -> Self {
        let mut instance = private_instance(EngineKind::Sequential, Arc::clone(nf), 1, &Options::default());
        instance.workers[0].face(Sides::default());
        Self { nf: Arc::clone(nf), instance, one: Batch::default() }
    }

    fn process(&mut self, packet: Packet, bytes: &[u8]) {
        self.one.clear();
        self.one.push(packet, bytes);
        self.instance.workers[0].process(&mut self.one);
    }

    /// The state of a packet set.
    fn state(&self, key: Option<KeyOf<N>>, now: Nanos) -> Option<String> {
        let key = key?;
        self.instance.each_flow(now).find(|flow| flow.key == key).map(|flow| self.nf.shown(&flow.flow))
    }
}

impl<N: Function> Stepper for OneCore<N> {
    fn step(&mut self, packet: Packet, bytes: &[u8]) -> Option<(Packet, &[u8])> {
        let before = self.instance.workers[0].tally().forwarded;
        self.process(packet, bytes);
        let is_forwarded = self.instance.workers[0].tally().forwarded > before;
        is_forwarded.then(|| {
            let (packet, bytes) = self.one.packet(0);
            (*packet, bytes)
        })
    }

    fn explain(&mut self, packet: Packet, bytes: &[u8]) -> Explained {
        let headers = parse(packet.link, bytes, packet.wire_len, packet.interface);
        let key = headers.as_ref().ok().and_then(|headers| self.nf.meta(headers, bytes)).map(|meta| meta.key());
        let state_before = self.state(key, packet.time);
        let counted = self.instance.workers[0].counters();
        self.process(packet, bytes);
        let counters = self.instance.workers[0].counters();
        let reason = counters.drops().find(|(reason, count)| counted.dropped[usize::from(reason.0)] < *count);
        let decided = match reason {
            Some((reason, _)) => Decided::Dropped(reason.name(self.nf.description().drop_reasons)),
            None if counters.replied > counted.replied => Decided::Replied,
            None => Decided::Forwarded,
        };
        let (after, sent) = self.one.packet(0);
        Explained {
            packet: *after,
            before: bytes.to_vec(),
            after: sent.to_vec(),
            headers,
            key: key.map(|key| key.to_string()),
            state_before,
            state_after: self.state(key, packet.time),
            decided,
        }
    }
}

/// Calls `step` with each packet before number `number`, counted from 0, and `explain` with that one. `None` if there are fewer packets.
pub(crate) fn explain_one<S, T>(
    steppers: &mut S,
    queue: &mut dyn Queue,
    number: u64,
    step: impl Fn(&mut S, Packet, &[u8]),
    explain: impl FnOnce(&mut S, Packet, &[u8]) -> T,
) -> Result<Option<T>, EngineError> {
    let mut batch = Batch::default();
    while queue.receive(&mut batch)? != Received::End {
        for (packet, bytes) in batch.each(0..batch.len()) {
            if packet.seq.0 >= number {
                return Ok(Some(explain(steppers, *packet, bytes)));
            }
            step(steppers, *packet, bytes);
        }
    }
    Ok(None)
}

impl Explained {
    /// Runs the packets before number `number`, counted from 0, and takes that one's step apart. `None` if there are fewer packets.
    ///
    /// # Errors
    /// Errors of the port.
    pub fn of(stepper: &mut dyn Stepper, queue: &mut dyn Queue, number: u64) -> Result<Option<Self>, EngineError> {
        let mut stepper = stepper;
        explain_one(
            &mut stepper,
            queue,
            number,
            |stepper, packet, bytes| {
                stepper.step(packet, bytes);
            },
            |stepper, packet, bytes| stepper.explain(packet, bytes),
        )
    }
}
