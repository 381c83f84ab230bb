//! The model of `port-knock`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Network, Seq, Transport, protocol};

use super::{Fate, Model};

/// The state of a source as in figure 12: `Closed(1)` is CLOSED_1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed(usize),
    Open,
}

/// The program of appendix C, with timeouts and any number of ports.
#[derive(Clone, Debug)]
pub struct PortKnockModel {
    ports: Vec<u16>,
    ipv6: bool,
    knock_secs: u64,
    idle_secs: u64,
    /// Each source's state, and the time of its last packet in that state.
    states: HashMap<IpAddr, (State, u64)>,
}

impl PortKnockModel {
    /// Creates a model with these parameters, as in the configuration file.
    #[must_use]
    pub fn new(ports: &[u16], ipv6: bool, knock_secs: u64, idle_secs: u64) -> Self {
        Self { ports: ports.to_vec(), ipv6, knock_secs, idle_secs, states: HashMap::new() }
    }

    fn next(&self, state: State, dst_port: u16) -> State {
        match state {
            State::Open => State::Open,
            State::Closed(number) if dst_port == self.ports[number - 1] => {
                if number == self.ports.len() {
                    State::Open
                } else {
                    State::Closed(number + 1)
                }
            }
            State::Closed(_) => State::Closed(1),
        }
    }
}

impl Model for PortKnockModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let source = match headers.network {
            Network::V4(ip) => IpAddr::V4(ip.src),
            Network::V6(_) if !self.ipv6 => return Fate::Drop("ipv6"),
            Network::V6(ip) => IpAddr::V6(ip.src),
            Network::None | Network::Unreadable | Network::Arp => return Fate::Drop("not-tcp"),
        };
        if headers.protocol != protocol::TCP {
            return Fate::Drop("not-tcp");
        }
        let (mut state, confirmed) = self.states.get(&source).copied().unwrap_or((State::Closed(1), 0));
        let patience = if state == State::Open { self.idle_secs } else { self.knock_secs };
        if now.0 - confirmed >= 1_000_000_000 * patience {
            state = State::Closed(1);
        }
        if matches!(headers.transport, Transport::None) && state != State::Open {
            return Fate::Drop("closed");
        }
        state = self.next(state, headers.ports().1);
        self.states.insert(source, (state, now.0));
        if state == State::Open { Fate::FORWARD } else { Fate::Drop("closed") }
    }
}
