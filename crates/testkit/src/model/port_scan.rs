//! The model of `port-scan`, with the paper's probabilities.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model};

/// With `theta0` 0.8 and `theta1` 0.2 a failure multiplies the ratio by four and a success divides it by four. 99 is between the third and
/// the fourth power of four, so the walk is one over whole numbers from -4 to 4.
#[derive(Clone, Debug)]
pub struct PortScanModel {
    answer_secs: u64,
    idle_secs: u64,
    ports: usize,
    ports_secs: u64,
    remembered: usize,
    hosts: HashMap<IpAddr, Suspect>,
}

#[derive(Clone, Debug, Default)]
struct Suspect {
    position: i32,
    is_scanner: bool,
    /// The hosts that it tried, oldest first, and the time of an open attempt.
    tried: Vec<(IpAddr, Option<u64>)>,
    /// The ports that it tried and that didn't open, oldest first.
    doors: Vec<Door>,
    /// Hosts with the number of failed ports, and the time of the first failure.
    victims: Vec<(IpAddr, usize, u64)>,
    heard: u64,
}

#[derive(Clone, Debug)]
struct Door {
    at: (IpAddr, u16),
    when: u64,
    /// No answer counts as a failure.
    is_attempt: bool,
    has_failed: bool,
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

impl Suspect {
    fn knock(&mut self, at: (IpAddr, u16), is_attempt: bool, now: u64, room: usize) {
        if let Some(door) = self.doors.iter_mut().find(|door| door.at == at) {
            if is_attempt && !door.is_attempt && !door.has_failed {
                (door.is_attempt, door.when) = (true, now);
            }
            return;
        }
        if self.doors.len() == room {
            let failed = self.doors.iter().position(|door| door.has_failed);
            let probed = self.doors.iter().position(|door| !door.is_attempt);
            let Some(spare) = failed.or(probed.filter(|_| is_attempt)) else { return };
            self.doors.remove(spare);
        }
        self.doors.push(Door { at, when: now, is_attempt, has_failed: false });
    }

    fn fail(&mut self, host: IpAddr, now: u64, ports: usize, within: u64) {
        if !self.victims.iter().any(|(victim, ..)| *victim == host) {
            let new = (host, 0, now);
            match self.victims.len() {
                4 => {
                    let fewest = self.victims.iter().map(|(_, failed, _)| *failed).min();
                    let spare = self.victims.iter_mut().find(|(_, failed, _)| Some(*failed) == fewest);
                    *spare.expect("there are four") = new;
                }
                _ => self.victims.push(new),
            }
        }
        let victim = self.victims.iter_mut().find(|(victim, ..)| *victim == host).expect("it is there");
        if victim.2 + within <= now {
            (victim.1, victim.2) = (0, now);
        }
        victim.1 += 1;
        self.is_scanner |= victim.1 >= ports;
    }
}

impl PortScanModel {
    /// Creates a model with these timeouts in seconds. It remembers the last 16 peers of a host and 16 ports; `ports` failed ports of one
    /// host within so many seconds are a scan.
    #[must_use]
    pub fn new(answer_secs: u64, idle_secs: u64, ports: usize, ports_secs: u64) -> Self {
        Self { answer_secs, idle_secs, ports, ports_secs, remembered: 16, hosts: HashMap::new() }
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
        let is_attempt = !is_answer && !ack;
        let is_probe = !is_answer && ack && headers.payload_len == 0 && tcp.dst_port < tcp.src_port;
        if is_attempt || is_probe {
            self.hosts.entry(host).or_default();
        }
        let Some(suspect) = self.hosts.get_mut(&host) else { return Fate::FORWARD };
        let answer = secs(self.answer_secs);
        let overdue = suspect.tried.iter_mut().filter(|(_, since)| since.is_some_and(|since| since + answer <= now.0));
        let missed = overdue.map(|(_, since)| *since = None).count();
        (0..missed).for_each(|_| suspect.step(1));
        let within = secs(self.ports_secs);
        let mut late: Vec<_> = suspect.doors.iter().filter(|door| door.when + answer <= now.0).cloned().collect();
        late.retain(|door| !door.has_failed);
        for Door { at, when, is_attempt, .. } in late {
            if is_attempt {
                suspect.doors.iter_mut().filter(|door| door.at == at).for_each(|door| door.has_failed = true);
                suspect.fail(at.0, when + answer, self.ports, within);
            } else {
                suspect.doors.retain(|door| door.at != at);
            }
        }
        let port = if is_answer { tcp.src_port } else { tcp.dst_port };
        if is_attempt || is_probe {
            suspect.knock((peer, port), is_attempt, now.0, self.remembered);
        } else if is_answer {
            match suspect.doors.iter_mut().find(|door| door.at == (peer, port)) {
                Some(_) if !rst => suspect.doors.retain(|door| door.at != (peer, port)),
                Some(door) if !door.has_failed => {
                    door.has_failed = true;
                    suspect.fail(peer, now.0, self.ports, within);
                }
                Some(_) | None => {}
            }
        }
        let known = suspect.tried.iter().position(|(tried, _)| *tried == peer);
        match known {
            Some(at) if is_answer && suspect.tried[at].1.take().is_some() => suspect.step(if rst { 1 } else { -1 }),
            None if is_attempt => {
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
