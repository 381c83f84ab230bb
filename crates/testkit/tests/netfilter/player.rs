//! Plays a scenario to a router, the kernel or ours, and records its output.

use std::collections::HashMap;

use crate::craft::{self, End, Segment};
use crate::script::{Body, Scenario, Side, Spoil, Step, host};

/// A router of IP packets.
pub(crate) trait Router {
    /// Resets the state, and applies the scenario's settings.
    fn begin(&mut self, scenario: &Scenario);

    /// Sends a packet `at_ms` milliseconds after the scenario's start. Returns all packets that come out, with their side.
    fn inject(&mut self, from: Side, packet: &[u8], at_ms: u64) -> Vec<(Side, Vec<u8>)>;
}

/// The outcome of a step's packet.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: Vec<u8>,
    /// The packets that came out, with normalised TTL, and their side.
    pub(crate) came_out: Vec<(Side, Vec<u8>)>,
    /// An error message about their checksums.
    pub(crate) complaint: Option<String>,
}

/// Plays the scenario from its beginning.
pub(crate) fn play(router: &mut dyn Router, scenario: &Scenario) -> Vec<Outcome> {
    router.begin(scenario);
    let mut seen = Seen::default();
    scenario
        .steps
        .iter()
        .map(|step| {
            let (from, sent) = packet(scenario, step, &seen);
            let mut came_out = router.inject(from, &sent, step.at_ms);
            let checked = !matches!(step.spoil, Spoil::BadSum | Spoil::Cut(_));
            let complaint = came_out.iter().find_map(|(_, packet)| craft::complaint(packet)).filter(|_| checked);
            for (_, packet) in &mut came_out {
                craft::normalise(packet);
            }
            seen.note(scenario, step, &sent, &came_out);
            Outcome { sent, came_out, complaint }
        })
        .collect()
}

/// What the two sides have seen so far, to address answers.
#[derive(Default)]
struct Seen {
    /// The near endpoint as a far endpoint sees it.
    mapped: HashMap<(u8, End, End), End>,
    /// The near endpoint as it was last seen by any far one.
    mapped_last: HashMap<(u8, End), End>,
    /// The last output packet of a flow in a direction.
    last: HashMap<(usize, bool), Vec<u8>>,
}

impl Seen {
    fn note(&mut self, scenario: &Scenario, step: &Step, sent: &[u8], came_out: &[(Side, Vec<u8>)]) {
        let flow = &scenario.flows[step.flow];
        let [(_, packet)] = came_out else { return };
        let (before, after) = (craft::view(sent), craft::view(packet));
        if after.quoted.is_some() || after.later_fragment {
            return;
        }
        if step.outward || flow.hairpin {
            self.mapped.insert((flow.protocol, before.src, before.dst), after.src);
            self.mapped_last.insert((flow.protocol, before.src), after.src);
        }
        self.last.insert((step.flow, step.outward), packet.clone());
    }

    /// Returns the endpoint of `near` as `far` sees it.
    fn mapping(&self, protocol: u8, near: End, far: End) -> End {
        let exact = self.mapped.get(&(protocol, near, far));
        exact.or_else(|| self.mapped_last.get(&(protocol, near))).copied().unwrap_or(near)
    }
}

/// Builds the step's packet. Returns it and its side.
fn packet(scenario: &Scenario, step: &Step, seen: &Seen) -> (Side, Vec<u8>) {
    let flow = &scenario.flows[step.flow];
    let from = if step.outward || flow.hairpin { Side::Inside } else { Side::Outside };
    let (src, dst) = match (step.outward, flow.hairpin) {
        (true, false) => (flow.near, flow.far),
        (false, false) => (flow.far, seen.mapping(flow.protocol, flow.near, flow.far)),
        (true, true) => (flow.near, seen.mapping(flow.protocol, flow.far, flow.near)),
        (false, true) => (flow.far, seen.mapping(flow.protocol, flow.near, flow.far)),
    };
    let mut packet = match step.body {
        Body::Segment { flags, seq, ack, len, window, scale, sack_ok, sack, more_options } => {
            let [mine, theirs] = if step.outward { flow.initial } else { [flow.initial[1], flow.initial[0]] };
            let segment = Segment {
                flags,
                seq: mine.wrapping_add(seq),
                ack: if flags & 16 == 0 { 0 } else { theirs.wrapping_add(ack) },
                window,
                window_scale: scale,
                sack_permitted: sack_ok,
                more_options,
                sack: sack.map(|(left, right)| (theirs.wrapping_add(left), theirs.wrapping_add(right))),
            };
            craft::tcp(src, dst, &segment, len)
        }
        Body::Datagram { len } if flow.protocol == craft::UDP => craft::udp(src, dst, len),
        Body::Datagram { len } => craft::ip(src.0, dst.0, flow.protocol, &vec![7; len]),
        Body::Query { kind, number } => {
            // The identifier is that of the asking endpoint, as the other one sees it.
            let identifier = if step.outward { src.1 } else { dst.1 };
            craft::query(src.0, dst.0, identifier, kind, number)
        }
        Body::Error { kind, mtu, from, to, quote } => {
            let built;
            let about = match seen.last.get(&(step.flow, !step.outward)) {
                Some(packet) => packet,
                None => {
                    // No packet has come out: quote a packet that was never sent.
                    built = never_sent(flow.protocol, dst, src);
                    &built
                }
            };
            let quoted = craft::view(about);
            craft::error(from.unwrap_or(src.0), to.unwrap_or(quoted.src.0), kind, mtu, about, quote)
        }
    };
    match step.spoil {
        Spoil::Nothing => {}
        Spoil::BadSum => craft::spoil(&mut packet),
        Spoil::NoSum => craft::unsummed(&mut packet),
        Spoil::EdgeSum => craft::edge(&mut packet, (host("n"), src.1)),
        Spoil::Options => packet = craft::with_options(&packet),
        Spoil::Cut(len) => craft::cut(&mut packet, len),
    }
    if let Some((offset, len)) = step.fragment {
        packet = craft::fragment(&packet, offset, len);
    }
    (from, packet)
}

fn never_sent(protocol: u8, src: End, dst: End) -> Vec<u8> {
    match protocol {
        craft::TCP => craft::tcp(src, dst, &Segment { flags: 16, seq: 1, ack: 1, window: 1, ..Segment::default() }, 0),
        craft::UDP => craft::udp(src, dst, 10),
        craft::ICMP => craft::query(src.0, dst.0, src.1, 8, 1),
        _ => craft::query(src.0, dst.0, src.1, 128, 1),
    }
}
