//! The model of `dns-tunnel`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, Tcp, TcpFlags, Transport};

use super::{Fate, Model};

/// Stores every answer to a client, and recounts the unused ones.
#[derive(Clone, Debug)]
pub struct DnsTunnelModel {
    threshold: usize,
    window_secs: u64,
    idle_secs: u64,
    without_address: bool,
    /// Drop a suspected client's DNS; drop all its packets.
    block: (bool, bool),
    clients: HashMap<IpAddr, Client>,
    /// What servers say over TCP, by their address and the client's end.
    connections: HashMap<(IpAddr, IpAddr, u16), Stream>,
}

/// A server's side of a connection, from its SYN on.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The sequence number of the next byte.
    next: u32,
    /// Bytes that came early, by sequence number.
    early: HashMap<u32, u8>,
    /// The beginning of a message, with its length.
    begun: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Client {
    /// Start of its window.
    began: u64,
    last: u64,
    /// The unused answers.
    orphans: Vec<Orphan>,
    /// Names with a used address, and the time of the use.
    used: Vec<(String, u64)>,
    is_tunnel: bool,
}

#[derive(Clone, Debug)]
struct Orphan {
    time: u64,
    name: Option<String>,
    /// The addresses; empty for an answer without one.
    told: Vec<IpAddr>,
}

/// The content of a server's message.
enum Says {
    /// These addresses for a name.
    Addresses(Option<String>, Vec<IpAddr>),
    SomethingElse(Option<String>),
    Nothing,
}

const STILL_USED: u64 = 10_000_000_000;

impl DnsTunnelModel {
    /// Creates a model with these parameters and unlimited room. `block` is as in the configuration file.
    ///
    /// # Panics
    /// If `block` is invalid.
    #[must_use]
    pub fn new(threshold: usize, window_secs: u64, idle_secs: u64, without_address: bool, block: &str) -> Self {
        let block = match block {
            "nothing" => (false, false),
            "dns" => (true, false),
            "all" => (true, true),
            other => panic!("there is no `{other}` to block"),
        };
        Self {
            threshold,
            window_secs,
            idle_secs,
            without_address,
            block,
            clients: HashMap::new(),
            connections: HashMap::new(),
        }
    }

    fn answered(&mut self, now: u64, host: IpAddr, name: Option<String>, addresses: Option<Vec<IpAddr>>) {
        let secs = |secs: u64| secs * 1_000_000_000;
        let (keep, window) = (secs(self.idle_secs.max(self.window_secs)), secs(self.window_secs));
        let counts = addresses.is_some() || self.without_address;
        let mut new = Orphan { time: now, name, told: Vec::new() };
        for address in addresses.iter().flatten() {
            if !new.told.contains(address) {
                new.told.push(*address);
            }
        }
        let mut is_used = false;
        // Answers from before a long silence still wait for a while.
        if let Some(client) = self.clients.get_mut(&host)
            && counts
            && new.name.is_some()
        {
            let latest = client.used.iter().filter(|(name, _)| Some(name) == new.name.as_ref()).map(|(_, when)| *when);
            is_used = latest.max().is_some_and(|when| when + STILL_USED > now);
            if let Some(at) = client.orphans.iter().position(|orphan| orphan.name == new.name)
                && !is_used
            {
                let former = client.orphans.remove(at);
                if former.time + window > now {
                    for address in former.told {
                        if new.told.len() < 16 && !new.told.contains(&address) {
                            new.told.push(address);
                        }
                    }
                }
            }
        }
        for address in addresses.iter().flatten() {
            let is_crossed = address.is_ipv4() != host.is_ipv4();
            for (other, client) in &mut self.clients {
                if *other == host || (is_crossed && other.is_ipv4() == host.is_ipv4()) {
                    client.orphans.retain(|orphan| !orphan.told.contains(address));
                }
            }
        }
        let fresh = Client { began: now, last: now, orphans: Vec::new(), used: Vec::new(), is_tunnel: false };
        let client = self.clients.entry(host).or_insert_with(|| fresh.clone());
        if client.last + keep <= now {
            (client.began, client.is_tunnel) = (now, false);
        }
        client.last = now;
        if counts && !is_used {
            if client.began + window <= now {
                client.began = now;
            }
            // Answers to a suspected client are not remembered.
            if !client.is_tunnel {
                client.orphans.push(new);
            }
            let in_window = client.orphans.iter().filter(|orphan| orphan.time >= client.began).count();
            client.is_tunnel |= in_window >= self.threshold;
        }
    }

    /// A segment of a server. Streams are whole in the end, and begin with a SYN.
    fn segment(&mut self, now: u64, (server, host, port): (IpAddr, IpAddr, u16), tcp: &Tcp, payload: &[u8]) {
        let stream = self.connections.entry((server, host, port)).or_default();
        if tcp.flags.contains(TcpFlags::SYN) {
            *stream = Stream { next: tcp.seq.wrapping_add(1), ..Stream::default() };
            return;
        }
        for (at, byte) in (0..).zip(payload) {
            stream.early.entry(tcp.seq.wrapping_add(at)).or_insert(*byte);
        }
        let mut messages = Vec::new();
        while let Some(byte) = stream.early.remove(&stream.next) {
            stream.next = stream.next.wrapping_add(1);
            stream.begun.push(byte);
            if let [high, low, message @ ..] = stream.begun.as_slice()
                && message.len() == usize::from(*high) * 256 + usize::from(*low)
            {
                messages.push(message.to_vec());
                stream.begun.clear();
            }
        }
        for message in messages {
            match says(&message) {
                Some(Says::Addresses(name, addresses)) => self.answered(now, host, name, Some(addresses)),
                Some(Says::SomethingElse(name)) => self.answered(now, host, name, None),
                Some(Says::Nothing) | None => {}
            }
        }
    }

    /// A packet of this host, and of no server.
    fn sends(&mut self, now: u64, src: IpAddr, dst: IpAddr) {
        for (_, client) in self.clients.iter_mut().filter(|(host, _)| **host == src || host.is_ipv4() != src.is_ipv4())
        {
            let (used, rest) = client.orphans.drain(..).partition(|orphan| orphan.told.contains(&dst));
            client.orphans = rest;
            let window = self.window_secs * 1_000_000_000;
            let timely = Vec::into_iter(used).filter(|orphan: &Orphan| orphan.time + window > now);
            client.used.extend(timely.filter_map(|orphan| Some((orphan.name?, now))));
        }
    }
}

impl Model for DnsTunnelModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let (src_port, dst_port) = headers.ports();
        let is_udp = matches!(headers.transport, Transport::Udp { .. });
        let is_carrier = is_udp || matches!(headers.transport, Transport::Tcp(_));
        let says = if is_udp && src_port == 53 { says(payload) } else { Some(Says::Nothing) };
        let (client, is_dns) = match says {
            None => (dst, true),
            Some(Says::Addresses(name, addresses)) => {
                self.answered(now.0, dst, name, Some(addresses));
                (dst, true)
            }
            Some(Says::SomethingElse(name)) => {
                self.answered(now.0, dst, name, None);
                (dst, true)
            }
            Some(Says::Nothing) => match &headers.transport {
                Transport::Tcp(tcp) if src_port == 53 && dst_port != 53 => {
                    self.segment(now.0, (src, dst, dst_port), tcp, payload);
                    (dst, true)
                }
                _ if is_nobody(dst) => return Fate::FORWARD,
                _ => {
                    self.sends(now.0, src, dst);
                    (src, is_carrier && dst_port == 53)
                }
            },
        };
        let keep = self.idle_secs.max(self.window_secs) * 1_000_000_000;
        let is_tunnel = self.clients.get(&client).is_some_and(|client| client.is_tunnel && client.last + keep > now.0);
        let (dns, all) = self.block;
        if is_tunnel && (all || (dns && is_dns)) { Fate::Drop("tunnel") } else { Fate::FORWARD }
    }
}

fn is_nobody(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// Reads a message with its names; `None` if it is unreadable.
fn says(message: &[u8]) -> Option<Says> {
    let u16_at = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let (flags, questions, answers) = (u16_at(2)?, u16_at(4)?, u16_at(6)?);
    u16_at(10)?;
    // A response to a query, not truncated, without an error.
    if flags & 0x8000 == 0 || flags & 0x7a0f != 0 {
        return Some(Says::Nothing);
    }
    let (mut at, mut asked, mut addresses) = (12, 1, Vec::new());
    let mut name = None;
    for _ in 0..questions {
        let start = at;
        at = behind_name(message, at)?;
        let spelled = &message[start..at];
        // A name without a pointer that is not the root.
        let is_whole = spelled.len() > 1 && spelled.last() == Some(&0) && !ends_in_pointer(spelled);
        name = is_whole.then(|| spelled.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect());
        asked = u16_at(at)?;
        u16_at(at + 2)?;
        at += 4;
    }
    for _ in 0..answers {
        at = behind_name(message, at)?;
        let (kind, class, length) = (u16_at(at)?, u16_at(at + 2)?, u16_at(at + 8)?);
        let data = message.get(at + 10..at + 10 + usize::from(length))?;
        at += 10 + usize::from(length);
        match (kind, class) {
            (1, 1) => addresses.push(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            (28, 1) => addresses.push(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            _ => {}
        }
    }
    if !addresses.is_empty() {
        addresses.truncate(8);
        addresses.retain(|address| !is_nobody(*address));
        return Some(if addresses.is_empty() { Says::Nothing } else { Says::Addresses(name, addresses) });
    }
    let names_alone = [2, 6, 12, 43, 46, 47, 48, 50, 51, 64, 65].contains(&asked);
    Some(if answers == 0 || names_alone {
        Says::Nothing
    } else {
        Says::SomethingElse(name.filter(|_| asked == 1 || asked == 28))
    })
}

fn behind_name(message: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    while *message.get(at)? != 0 {
        if message[at] >= 0xc0 {
            let target = usize::from(message[at] & 0x3f) * 256 + usize::from(*message.get(at + 1)?);
            return (target >= 12 && target < at && at + 2 - start <= 255).then_some(at + 2);
        }
        if message[at] > 63 {
            return None;
        }
        at += 1 + usize::from(message[at]);
    }
    (at + 1 - start <= 255).then_some(at + 1)
}

/// Returns true if a name ends with a pointer.
fn ends_in_pointer(spelled: &[u8]) -> bool {
    let mut at = 0;
    while spelled[at] != 0 {
        if spelled[at] >= 0xc0 {
            return true;
        }
        at += 1 + usize::from(spelled[at]);
    }
    false
}
