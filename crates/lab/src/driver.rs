//! A naive sequential engine: one unbounded `HashMap`, one packet at a time. Engines and models are compared with it.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use memory::{Local, LocalTx};
use nf::{Context, Effects, Fingerprint, Flow, KeyOf, Meta, NetworkFunction, Opened, Reason, Report, Verdict};
use packet::{Fragment, Headers, LinkType, Malformed, Nanos, Seq};
use port::Trace;

use synth::Frames;

/// Runs a function over packets exactly as the contract says, with an unbounded number of flows.
///
/// Before each packet that reaches the function, every flow with a passed deadline expires, in order of deadline. An engine may expire
/// fewer flows, or later; a function without shared state can't notice that.
pub struct Driver<N: NetworkFunction> {
    function: N,
    shared: N::Shared<Local>,
    counts: nf::PacketCounts,
    flows: HashMap<KeyOf<N>, DriverFlow<N::Flow>>,
    /// The armed deadlines, ties in the order in which they were armed.
    deadlines: BTreeMap<(Nanos, u64), KeyOf<N>>,
    armed: u64,
    seq: Seq,
    now: Nanos,
}

/// A flow in the table.
struct DriverFlow<F> {
    flow: F,
    /// Its place among the deadlines. `None`: it never expires.
    deadline: Option<(Nanos, u64)>,
    assured: bool,
}

impl<N: NetworkFunction> Driver<N> {
    /// Creates a driver with no flows.
    #[must_use]
    pub fn new(function: N) -> Self {
        Self {
            shared: function.shared(&Local::default()),
            counts: nf::PacketCounts::new(function.counters()),
            function,
            flows: HashMap::new(),
            deadlines: BTreeMap::new(),
            armed: 0,
            seq: Seq(0),
            now: Nanos(0),
        }
    }

    /// Goes on with another configuration: flows stay, the function's own counters begin anew.
    ///
    /// # Errors
    /// Why the configuration can't take over; the old one stays.
    pub fn reload(&mut self, function: N) -> Result<(), String> {
        let function = function.succeed(&self.function)?;
        function.adopt(&self.function, &mut self.shared, &Local::default());
        self.counts = nf::PacketCounts::new(function.counters());
        self.function = function;
        Ok(())
    }

    /// The function.
    pub const fn function(&self) -> &N {
        &self.function
    }

    /// The counters that the function numbers itself.
    pub const fn counts(&self) -> &nf::PacketCounts {
        &self.counts
    }

    /// The latest time of any packet so far.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Steps one frame that was captured whole.
    pub fn frame(&mut self, time: Nanos, link: LinkType, bytes: &[u8]) -> Verdict {
        self.packet(time, packet::parse(link, bytes, bytes.len() as u32, 0).as_ref(), bytes)
    }

    /// Steps all frames, in order.
    pub fn run(&mut self, frames: &Frames) -> Vec<Verdict> {
        frames.iter().map(|(time, bytes)| self.frame(time, frames.link(), bytes)).collect()
    }

    /// Steps all packets of a trace, in order, numbered from 0.
    pub fn run_trace(&mut self, trace: &Trace) -> Vec<Verdict> {
        let verdict = |(packet, bytes): (&port::Packet, &[u8])| {
            let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
            self.packet(packet.time, parsed.as_ref(), bytes)
        };
        trace.iter().map(verdict).collect()
    }

    /// Steps one parsed packet. A `time` before the last packet's is raised to that.
    pub fn packet(&mut self, time: Nanos, parsed: Result<&Headers, &Malformed>, bytes: &[u8]) -> Verdict {
        let seq = self.seq;
        self.seq = seq.next();
        self.now = self.now.max(time);
        let headers = match parsed {
            Ok(headers) => headers,
            Err(kind) => return Verdict::Drop(Reason::malformed(*kind)),
        };
        if self.function.drops_fragments() && headers.fragment == Fragment::Later {
            return Verdict::Drop(Reason::FRAGMENT);
        }
        match self.function.meta(headers, bytes) {
            Some(meta) => self.step(seq, &meta, bytes),
            None => self.function.other(headers),
        }
    }

    /// Steps a packet, given as its metadata, and as its bytes for functions that read them.
    fn step(&mut self, seq: Seq, meta: &N::Meta, bytes: &[u8]) -> Verdict {
        while let Some(((deadline, _), key)) = self.deadlines.first_key_value().map(|(at, key)| (*at, *key))
            && deadline <= self.now
        {
            self.end(seq, key);
        }
        let key = meta.key();
        let frame = if N::READS_FRAMES { bytes } else { &[] };
        let mut cx = Context::<N, Local>::new(&self.shared, LocalTx::default(), self.now, seq).reading(frame);
        if N::COUNTS {
            cx = cx.counting(Some(&self.counts));
        }
        let mut entry = match self.flows.remove(&key) {
            Some(entry) => entry,
            None => match always(self.function.open(&mut cx, meta)) {
                Opened::Flow(flow) => DriverFlow { flow, deadline: None, assured: false },
                Opened::Refused(verdict) => return verdict,
            },
        };
        let verdict = always(self.function.packet(&mut cx, &mut entry.flow, meta));
        let Effects { deadline, close, assured } = cx.effects();
        if !N::Flow::STORED {
            return verdict;
        }
        if let Some(deadline) = deadline {
            if let Some(old) = entry.deadline {
                self.deadlines.remove(&old);
            }
            self.armed += 1;
            entry.deadline = Some((deadline, self.armed));
            self.deadlines.insert((deadline, self.armed), key);
        }
        entry.assured |= assured;
        self.flows.insert(key, entry);
        if close {
            self.end(seq, key);
        }
        verdict
    }

    /// Removes an existing flow.
    fn end(&mut self, seq: Seq, key: KeyOf<N>) {
        let entry = self.flows.remove(&key).expect("only flows that there are have deadlines");
        if let Some(at) = entry.deadline {
            self.deadlines.remove(&at);
        }
        let counts = N::READS_FRAMES.then_some(&self.counts);
        let mut cx = Context::<N, Local>::new(&self.shared, LocalTx::default(), self.now, seq).counting(counts);
        always(self.function.expire(&mut cx, &entry.flow));
    }

    /// Flows with an unexpired deadline, with the deadline ([`Nanos::NEVER`] if there is none) and whether they are assured, ordered by
    /// key.
    #[must_use]
    pub fn flows(&self) -> Vec<(KeyOf<N>, N::Flow, Nanos, bool)> {
        let alive = self.flows.iter().map(|(key, entry)| {
            (*key, entry.flow, entry.deadline.map_or(Nanos::NEVER, |(deadline, _)| deadline), entry.assured)
        });
        let mut flows: Vec<_> = alive.filter(|(_, _, deadline, _)| *deadline > self.now).collect();
        flows.sort_unstable_by_key(|(key, ..)| *key);
        flows
    }

    /// The function's report now.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        let entries = || -> nf::Entries<'_, N> {
            let concluded = |(key, flow, deadline, _)| {
                let flow = match N::READS_FRAMES {
                    true => nf::local_conclusion(&self.function, &self.shared, &flow, self.now, None),
                    false => flow,
                };
                (key, flow, deadline)
            };
            Box::new(self.flows().into_iter().map(concluded))
        };
        nf::local_report(&self.function, &nf::FlowList::new(&entries, self.now), &self.shared, &self.counts)
    }

    /// The digest of the shared state.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        nf::local_fingerprint(&self.function, &self.shared)
    }
}

/// Local memory has no conflicts.
fn always<T>(step: Result<T, Infallible>) -> T {
    match step {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
