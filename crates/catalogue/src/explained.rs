//! The way of one packet through a function.

use std::sync::Arc;

use engine::{EngineError, EngineKind, Inspect, Options, private_instance};
use nf::{Function, Meta};
use packet::{Headers, Malformed, parse};
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

impl Explained {
    /// Runs the packets before number `number`, counted from 0, and takes that one's step apart. `None` if there are fewer packets.
    pub(crate) fn of<N: Function>(
        nf: &Arc<N>,
        queue: &mut dyn Queue,
        number: u64,
    ) -> Result<Option<Self>, EngineError> {
        let mut instance = private_instance(EngineKind::Sequential, Arc::clone(nf), 1, &Options::default());
        instance.workers[0].face(Sides::default());
        let (mut batch, mut one) = (Batch::default(), Batch::default());
        while queue.receive(&mut batch)? != Received::End {
            for index in 0..batch.len() {
                let packet = batch.packets()[index];
                one.clear();
                one.push(packet, batch.bytes(index));
                if packet.seq.0 < number {
                    instance.workers[0].process(&mut one);
                    continue;
                }
                let before = batch.bytes(index).to_vec();
                let headers = parse(packet.link, &before, packet.wire_len, packet.interface);
                let key = headers.as_ref().ok().and_then(|headers| nf.meta(headers, &before)).map(|meta| meta.key());
                let state = |instance: &dyn Inspect<N>| {
                    let key = key?;
                    instance.each_flow(packet.time).find(|flow| flow.key == key).map(|flow| nf.shown(&flow.flow))
                };
                let state_before = state(&instance);
                let counted = instance.workers[0].counters();
                instance.workers[0].process(&mut one);
                let counters = instance.workers[0].counters();
                let reason = counters.drops().find(|(reason, count)| counted.dropped[usize::from(reason.0)] < *count);
                let decided = match reason {
                    Some((reason, _)) => Decided::Dropped(reason.name(nf.description().drop_reasons)),
                    None if counters.replied > counted.replied => Decided::Replied,
                    None => Decided::Forwarded,
                };
                let (after, bytes) = one.packet(0);
                return Ok(Some(Self {
                    packet: *after,
                    before,
                    after: bytes.to_vec(),
                    headers,
                    key: key.map(|key| key.to_string()),
                    state_before,
                    state_after: state(&instance),
                    decided,
                }));
            }
        }
        Ok(None)
    }
}
