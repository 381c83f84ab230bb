//! The model of `load-balancer` with one TCP service.

use std::collections::{HashMap, HashSet};

use nf::Verdict;
use packet::{Endpoint, Headers, Nanos, Rewrite, Tcp, TcpFlags, Transport};

use super::tracking::tcp::{self, Outcome, State};
use super::tracking::{Settings, Timeouts};

/// A naive model doesn't know the look-up table, so the backend that the table gives a client is an argument. The model knows which other
/// backends are allowed, and checks verdicts instead of making them.
#[derive(Clone, Debug)]
pub struct LoadBalancerModel {
    service: Endpoint,
    backends: Vec<Backend>,
    down_after: usize,
    /// Timeouts in seconds: answer, retry, transitory, idle.
    times: [u64; 4],
    settings: Settings,
    clients: HashMap<Endpoint, Client>,
    /// Number of packets so far.
    packets: u64,
}

#[derive(Clone, Debug)]
struct Backend {
    endpoint: Endpoint,
    /// Attempts unanswered since its last answer: client and sequence number.
    unanswered: Vec<(Endpoint, u32)>,
    /// Time of the next retry.
    until: u64,
}

/// A client's port: the backend of its tracked connection, and the other backends that it talks to.
#[derive(Clone, Debug)]
struct Client {
    talk: tcp::Connection,
    backend: usize,
    /// The client knows the backend by its own address.
    is_direct: bool,
    /// Time of the open attempt, and whether its failure was counted.
    attempt: Option<(u64, bool)>,
    /// Sequence number of the last SYN, to the service and to the backend itself.
    asked: [u32; 2],
    others: HashSet<usize>,
    deadline: u64,
    /// The packet that set the deadline.
    set_by: u64,
}

/// The kind of packet.
#[derive(Clone, Copy)]
enum Goes {
    ToService,
    From(usize),
    Directly(usize),
}

/// The connection's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Yes,
    Reset,
    No,
}

const SECOND: u64 = 1_000_000_000;
/// Maximum distance of an answer from the SYN, which may carry data.
const WITH_SYN: u32 = 65_536;

impl LoadBalancerModel {
    /// Creates a model with these parameters; times as in the configuration file: `answer_timeout`, `retry_after`, `transitory_timeout`,
    /// `idle_timeout`.
    #[must_use]
    pub fn new(service: Endpoint, backends: &[Endpoint], down_after: usize, times: [u64; 4]) -> Self {
        let [answer, _, transitory, idle] = times;
        let timeouts = Timeouts {
            tcp_syn_sent: if down_after > 0 { answer } else { transitory },
            tcp_syn_recv: transitory,
            tcp_established: idle,
            tcp_fin_wait: transitory,
            tcp_close_wait: transitory,
            tcp_last_ack: transitory,
            tcp_time_wait: transitory,
            tcp_close: transitory,
            tcp_syn_sent2: transitory,
            tcp_retransmitted: idle,
            tcp_unacknowledged: idle,
            ..Timeouts::default()
        };
        let settings = Settings { loose: true, max_retransmissions: 255, timeouts, ..Settings::default() };
        let backend = |endpoint: &Endpoint| Backend { endpoint: *endpoint, unanswered: Vec::new(), until: 0 };
        let backends = backends.iter().map(backend).collect();
        Self { service, backends, down_after, times, settings, clients: HashMap::new(), packets: 0 }
    }

    /// Checks the verdict on a packet, given the table's backend for its client.
    ///
    /// # Errors
    /// The right verdict.
    pub fn check(&mut self, now: Nanos, headers: &Headers, tables: Endpoint, got: Verdict) -> Result<(), String> {
        let (Transport::Tcp(tcp), Some(tuple)) = (headers.transport, headers.five_tuple()) else {
            return expect(&got, &Verdict::FORWARD);
        };
        let (source, destination) = (tuple.source(), tuple.destination());
        let place = |endpoint: Endpoint| self.backends.iter().position(|backend| backend.endpoint == endpoint);
        let (who, goes) = if destination == self.service {
            (source, Goes::ToService)
        } else if let Some(backend) = place(source) {
            (destination, Goes::From(backend))
        } else if let Some(backend) = place(destination) {
            (source, Goes::Directly(backend))
        } else {
            return expect(&got, &Verdict::FORWARD);
        };
        self.end_those_due(now.0);
        self.packets += 1;
        let mut known = self.clients.remove(&who);
        if let Some(client) = &mut known
            && let Some((since, false)) = client.attempt
            && after(since, self.times[0]) <= now.0
        {
            self.fail(client.backend, (who, client.asked[0]), now.0);
            client.attempt = Some((since, true));
        }
        let packet = Packet { now: now.0, headers, tcp: &tcp, tables, got: &got, who };
        let right = match goes {
            Goes::ToService => self.request(&mut known, &packet)?,
            Goes::From(backend) => self.answer(&mut known, backend, &packet),
            Goes::Directly(backend) => {
                self.directly(&mut known, backend, &packet);
                Verdict::FORWARD
            }
        };
        if let Some(client) = known {
            self.clients.insert(who, client);
        }
        expect(&got, &right)
    }

    fn request(&mut self, known: &mut Option<Client>, packet: &Packet<'_>) -> Result<Verdict, String> {
        let number = packet.asks();
        if let Some(client) = known
            && !client.is_direct
        {
            if let Some(number) = number {
                let repeats = client.asked[0] == number;
                let waits = matches!(client.attempt, Some((_, false)));
                let gives_up = self.down_after > 0 && !waits && !(repeats && client.talk.answered);
                let goes = gives_up && !self.is_up(client.backend);
                if client.is_over() || goes {
                    let backend = self.judge(packet, true)?;
                    if client.is_over() || backend != client.backend {
                        self.take_over(client, packet, backend, false);
                        self.hear(client, 0, packet);
                        return Ok(self.to(backend));
                    }
                }
                self.ask(client, number, packet.now);
            }
            // The answer took another path.
            let goes_on = number.is_none()
                && client.talk.state == State::SynSent
                && packet.is_plain_ack()
                && packet.tcp.seq.wrapping_sub(client.asked[0]) < WITH_SYN;
            if goes_on {
                client.talk = tcp::Connection::open(packet.headers, packet.tcp, &self.settings)?;
                if client.attempt.take().is_some() {
                    self.backends[client.backend].unanswered.clear();
                    self.backends[client.backend].until = 0;
                }
            }
            if self.hear(client, 0, packet) != Heard::No && number.is_none() && client.talk.state != State::SynSent {
                client.attempt = None;
            }
            return Ok(self.to(client.backend));
        }
        let backend = self.judge(packet, number.is_some())?;
        match known {
            Some(client) if client.backend == backend && !client.is_over() => {
                if let Some(number) = number {
                    self.ask(client, number, packet.now);
                    self.hear(client, 0, packet);
                }
            }
            Some(client) => {
                if self.take_over(client, packet, backend, false) {
                    self.hear(client, 0, packet);
                }
            }
            None => {
                *known = self.begin(packet, backend, false);
                if let Some(client) = known {
                    self.hear(client, 0, packet);
                }
            }
        }
        if known.as_ref().is_some_and(|client| client.deadline == 0) {
            *known = None;
        }
        Ok(self.to(backend))
    }

    fn answer(&mut self, known: &mut Option<Client>, backend: usize, packet: &Packet<'_>) -> Verdict {
        let as_service = Verdict::rewritten(Rewrite { src: Some(self.service), ..Rewrite::NONE });
        let Some(client) = known else { return as_service };
        if backend != client.backend {
            if client.others.contains(&backend) {
                self.keep(client, self.at_most(packet.now));
                return Verdict::FORWARD;
            }
            return as_service;
        }
        let opens = packet.has(TcpFlags::SYN) && packet.has(TcpFlags::ACK) && !packet.has(TcpFlags::FIN);
        let (own, other) = (usize::from(client.is_direct), usize::from(!client.is_direct));
        let [own, other] = [own, other].map(|name| packet.tcp.ack.wrapping_sub(client.asked[name]));
        let may = !tcp::has_impossible_flags(packet.tcp) && (opens || packet.has(TcpFlags::RST));
        let is_direct = client.is_direct ^ (may && other < own && other < WITH_SYN);
        let (was_answered, asked) = (client.talk.answered, client.asked[0]);
        let heard = self.hear(client, 1, packet);
        if heard != Heard::No {
            if client.attempt.take().is_some() {
                let refuses = !was_answered || packet.tcp.ack.wrapping_sub(asked) < WITH_SYN;
                if heard == Heard::Reset && !is_direct && refuses {
                    self.fail(client.backend, (packet.who, asked), packet.now);
                } else {
                    self.backends[client.backend].unanswered.clear();
                    self.backends[client.backend].until = 0;
                }
            }
            if opens {
                client.is_direct = is_direct;
            }
        }
        if client.deadline == 0 {
            *known = None;
        }
        if is_direct { Verdict::FORWARD } else { as_service }
    }

    fn directly(&mut self, known: &mut Option<Client>, backend: usize, packet: &Packet<'_>) {
        let number = packet.asks();
        let Some(client) = known else {
            *known = self.begin(packet, backend, true);
            if let Some(client) = known {
                self.hear(client, 0, packet);
            }
            return;
        };
        if backend != client.backend {
            if number.is_some() || packet.is_plain_ack() {
                client.others.insert(backend);
                self.keep(client, self.at_most(packet.now));
            }
            return;
        }
        let begins = client.is_over() && (number.is_some() || !client.is_direct);
        let is_heard = match number {
            _ if begins => self.take_over(client, packet, backend, true),
            Some(number) => {
                client.asked[1] = number;
                true
            }
            None => client.is_direct,
        };
        if !is_heard {
            return;
        }
        self.hear(client, 0, packet);
        if client.deadline == 0 {
            *known = None;
        }
    }

    fn ask(&self, client: &mut Client, number: u32, now: u64) {
        let is_new = client.asked[0] != number;
        client.asked[0] = number;
        if is_new && self.down_after > 0 && !matches!(client.attempt, Some((_, false))) {
            client.attempt = Some((now, false));
        }
    }

    fn begin(&self, packet: &Packet<'_>, backend: usize, is_direct: bool) -> Option<Client> {
        let talk = tcp::Connection::open(packet.headers, packet.tcp, &self.settings).ok()?;
        let waits = packet.asks().is_some() && !is_direct && self.down_after > 0;
        Some(Client {
            talk,
            backend,
            is_direct,
            attempt: waits.then_some((packet.now, false)),
            asked: [packet.asks().unwrap_or(0); 2],
            others: HashSet::new(),
            deadline: after(packet.now, self.times[2]),
            set_by: self.packets,
        })
    }

    /// Replaces the connection by another; a direct one with another backend continues beside it.
    fn take_over(&self, client: &mut Client, packet: &Packet<'_>, backend: usize, is_direct: bool) -> bool {
        let Some(new) = self.begin(packet, backend, is_direct) else { return false };
        let mut others = std::mem::take(&mut client.others);
        if client.is_direct && !client.is_over() {
            others.insert(client.backend);
        }
        others.remove(&backend);
        *client = Client { others, ..new };
        true
    }

    /// Gives the packet to the connection. If that ends, the deadline becomes 0.
    fn hear(&self, client: &mut Client, way: usize, packet: &Packet<'_>) -> Heard {
        let resets = packet.has(TcpFlags::RST);
        let idle = match client.talk.packet(way, packet.headers, packet.tcp, &self.settings) {
            Outcome::Passes(_) if resets && !client.is_over() => return Heard::No,
            Outcome::Passes(Some(idle)) => idle,
            Outcome::Passes(None) => return Heard::Yes,
            Outcome::Ends => {
                client.deadline = if client.others.is_empty() { 0 } else { client.deadline };
                return Heard::Reset;
            }
            Outcome::Reopens | Outcome::Invalid(..) => return Heard::No,
        };
        let deadline = if !client.others.is_empty() {
            self.at_most(packet.now)
        } else if client.is_direct && client.talk.state == State::SynSent {
            after(packet.now, self.times[2])
        } else {
            after(packet.now, idle)
        };
        self.keep(client, deadline);
        if resets { Heard::Reset } else { Heard::Yes }
    }

    /// Returns the backend that a connection got, if it is allowed.
    fn judge(&mut self, packet: &Packet<'_>, asks: bool) -> Result<usize, String> {
        let Verdict::Rewrite { rewrite: Rewrite { dst: Some(dst), .. }, .. } = packet.got else {
            return Err(String::from("a backend"));
        };
        let place = |endpoint: Endpoint| self.backends.iter().position(|backend| backend.endpoint == endpoint);
        let (Some(chosen), Some(first)) = (place(*dst), place(packet.tables)) else {
            return Err(String::from("one of the backends"));
        };
        let takes = |backend: usize| self.is_up(backend) || (asks && self.backends[backend].until <= packet.now);
        if takes(first) && chosen != first {
            return Err(format!("the table's, {}", packet.tables));
        }
        if !takes(chosen) {
            return Err(String::from("a backend that is not down"));
        }
        if !self.is_up(chosen) {
            self.backends[chosen].until = after(packet.now, self.times[1]);
        }
        Ok(chosen)
    }

    fn is_up(&self, backend: usize) -> bool {
        self.down_after == 0 || self.backends[backend].unanswered.len() < self.down_after
    }

    fn end_those_due(&mut self, now: u64) {
        let due = self.clients.iter().filter(|(_, client)| client.deadline <= now);
        let mut due: Vec<_> = due.map(|(name, client)| (client.deadline, client.set_by, *name)).collect();
        due.sort_unstable();
        for (_, _, name) in due {
            let client = self.clients.remove(&name).expect("it was there");
            if let Some((since, false)) = client.attempt
                && after(since, self.times[0]) <= now
            {
                self.fail(client.backend, (name, client.asked[0]), now);
            }
        }
    }

    /// Records an unanswered attempt.
    fn fail(&mut self, backend: usize, attempt: (Endpoint, u32), now: u64) {
        let until = after(now, self.times[1]);
        let is_another_up = (0..self.backends.len()).any(|other| other != backend && self.is_up(other));
        let is_up = self.is_up(backend);
        let Backend { unanswered, until: tried, .. } = &mut self.backends[backend];
        if !is_up {
            *tried = until;
        } else if !unanswered.contains(&attempt) && (unanswered.len() + 1 < self.down_after || is_another_up) {
            unanswered.push(attempt);
            *tried = until;
        }
    }

    fn to(&self, backend: usize) -> Verdict {
        Verdict::rewritten(Rewrite { dst: Some(self.backends[backend].endpoint), ..Rewrite::NONE })
    }

    const fn keep(&self, client: &mut Client, deadline: u64) {
        (client.deadline, client.set_by) = (deadline, self.packets);
    }

    /// Returns the latest deadline of any flow.
    fn at_most(&self, now: u64) -> u64 {
        after(now, self.times[2].max(self.times[3]))
    }
}

impl Client {
    /// Returns true if both sides have closed it, or one has reset it; if only one side is seen, if that one has closed it.
    fn is_over(&self) -> bool {
        match self.talk.state {
            State::TimeWait | State::Close => true,
            State::FinWait | State::CloseWait | State::LastAck => !self.talk.answered,
            State::None | State::SynSent | State::SynRecv | State::Established | State::SynSent2 => false,
        }
    }
}

/// A packet and its verdict.
struct Packet<'a> {
    now: u64,
    headers: &'a Headers,
    tcp: &'a Tcp,
    tables: Endpoint,
    got: &'a Verdict,
    /// The client.
    who: Endpoint,
}

impl Packet<'_> {
    fn has(&self, flag: TcpFlags) -> bool {
        self.tcp.flags.contains(flag)
    }

    /// The sequence number after its SYN, if it is a client's SYN.
    fn asks(&self) -> Option<u32> {
        let is_syn = self.has(TcpFlags::SYN) && !self.has(TcpFlags::ACK) && !tcp::has_impossible_flags(self.tcp);
        is_syn.then(|| self.tcp.seq.wrapping_add(1))
    }

    fn is_plain_ack(&self) -> bool {
        let closes = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST].into_iter().any(|flag| self.has(flag));
        self.has(TcpFlags::ACK) && !closes
    }
}

const fn after(now: u64, seconds: u64) -> u64 {
    now + seconds * SECOND
}

fn expect(got: &Verdict, right: &Verdict) -> Result<(), String> {
    if got == right { Ok(()) } else { Err(format!("{right:?}")) }
}
