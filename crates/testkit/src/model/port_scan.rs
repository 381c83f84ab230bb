//! The model of `port-scan`, with the paper's probabilities.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model};

/// With `theta0` 0.8 and `theta1` 0.2 a failure multiplies the ratio by four and a success divides it so; 99 lies between the third and
/// the fourth power of four. So the walk is one over whole numbers, from minus four to four.
#[derive(Clone, Debug)]
pub struct PortScanModel {
    answer_secs: u64,
    idle_secs: u64,
    remembered: usize,
    hosts: HashMap<IpAddr, Suspect>,
}

#[derive(Clone, Debug, Default)]
struct Suspect {
    position: i32,
    is_scanner: bool,
    /// Whom it tried, oldest first, and when, if that is still open.
    tried: Vec<(IpAddr, Option<u64>)>,
    heard: u64,
}

impl Suspect {
    fn step(&mut self, by: i32) {
        self.position += by;
        self.is_scanner |= self.position == 4;
        if self.position.abs() == 4 {
            self.position = 0;
        }
    }
}

impl PortScanModel {
    /// A model of these timeouts that remembers the last 16 peers of a host.
    #[must_use]
    pub fn new(answer_secs: u64, idle_secs: u64) -> Self {
        Self { answer_secs, idle_secs, remembered: 16, hosts: HashMap::new() }
    }
}

impl Model for PortScanModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let Transport::Tcp(tcp) = headers.transport else { return Fate::FORWARD };
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let [rst, syn, ack] = [TcpFlags::RST, TcpFlags::SYN, TcpFlags::ACK].map(|flag| tcp.flags.contains(flag));
        let is_answer = rst || (syn && ack);
        let (host, peer) = if is_answer { (dst, src) } else { (src, dst) };
        let secs = |secs: u64| secs * 1_000_000_000;
        if self.hosts.get(&host).is_some_and(|suspect| suspect.heard + secs(self.idle_secs) <= now.0) {
            self.hosts.remove(&host);
        }
        if syn && !is_answer {
            self.hosts.entry(host).or_default();
        }
        let Some(suspect) = self.hosts.get_mut(&host) else { return Fate::FORWARD };
        let answer = secs(self.answer_secs);
        let overdue = suspect.tried.iter_mut().filter(|(_, since)| since.is_some_and(|since| since + answer <= now.0));
        let missed = overdue.map(|(_, since)| *since = None).count();
        (0..missed).for_each(|_| suspect.step(1));
        let known = suspect.tried.iter().position(|(tried, _)| *tried == peer);
        match known {
            Some(at) if is_answer && suspect.tried[at].1.take().is_some() => suspect.step(if rst { 1 } else { -1 }),
            None if syn && !is_answer => {
                if suspect.tried.len() == self.remembered
                    && let Some(oldest) = suspect.tried.iter().position(|(_, since)| since.is_none())
                {
                    suspect.tried.remove(oldest);
                }
                if suspect.tried.len() < self.remembered {
                    suspect.tried.push((peer, Some(now.0)));
                }
            }
            Some(_) | None => {}
        }
        if is_answer {
            return Fate::FORWARD;
        }
        suspect.heard = now.0;
        if suspect.is_scanner { Fate::Drop("scanner") } else { Fate::FORWARD }
    }
}
