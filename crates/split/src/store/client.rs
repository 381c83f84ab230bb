//! The split's side of store servers.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{HEADER, Kind, Message};
use super::server::{is_quiet, widen};
use crate::park::PAYLOAD_MAX;

/// Number of answers in a row that must be missing until a server counts as silent.
const MISSES: u32 = 3;

/// Interval at which a silent server is greeted.
const RETRY: Duration = Duration::from_millis(100);

/// Interval at which a server that answers is greeted, so that it keeps the memory.
const GREET: Duration = Duration::from_secs(2);

/// Time to wait for the first answers.
const FIRST: Duration = Duration::from_secs(1);

/// Store servers.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<Server>,
    session: u64,
    timeout: Duration,
    /// Payloads that were asked for, by slot.
    asked: HashMap<u32, Asked>,
    /// Free memory for payloads.
    spare: Vec<Vec<u8>>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    socket: UdpSocket,
    slots: u32,
    answers: bool,
    /// Answers in a row that were missing.
    misses: u32,
    greeted: Instant,
    /// What it said to the first greeting, if it refused.
    free: Option<u32>,
}

#[derive(Debug)]
struct Asked {
    generation: u16,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting,
    Here(Vec<u8>),
    Lost,
}

/// Servers are told that their memory is free. One that misses it waits for the end of the lease.
impl Drop for Servers {
    fn drop(&mut self) {
        Message::new(Kind::Bye, self.session).write(&mut self.request);
        (0..self.servers.len()).for_each(|server| self.send_request(server));
    }
}

impl Servers {
    pub(super) fn open(addresses: &[SocketAddr], slots: u32, session: u64, timeout: Duration) -> io::Result<Self> {
        let each = slots.div_ceil(addresses.len() as u32);
        let now = Instant::now();
        let server = |address: &SocketAddr| {
            let any = match address {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            widen(&socket);
            let (address, greeted) = (*address, now);
            Ok(Server { address, socket, slots: each, answers: false, misses: 0, greeted, free: None })
        };
        let reached = |address: &SocketAddr| {
            let why = |error: io::Error| {
                io::Error::new(error.kind(), format!("the store at {address} can't be reached: {error}"))
            };
            server(address).map_err(why)
        };
        let servers = addresses.iter().map(reached).collect::<io::Result<Vec<_>>>()?;
        let (request, answer) = (Vec::with_capacity(HEADER + PAYLOAD_MAX), vec![0; HEADER + PAYLOAD_MAX + 1]);
        let (asked, spare) = (HashMap::new(), Vec::new());
        let mut all = Self { servers, session, timeout, asked, spare, request, answer };
        (0..all.servers.len()).for_each(|server| all.greet(server));
        let until = now + FIRST.max(timeout);
        while all.servers.iter().any(|server| !server.answers && server.free.is_none()) && Instant::now() < until {
            all.listen(Some(until));
        }
        if let Some((server, free)) = all.servers.iter().find_map(|server| Some((server, server.free?))) {
            let address = server.address;
            return Err(io::Error::other(format!(
                "the store at {address} has room for {free} payloads, and {each} are wanted; give it more --memory, or ask for less here"
            )));
        }
        if all.servers.iter().all(|server| !server.answers) {
            let names: Vec<String> = all.servers.iter().map(|server| server.address.to_string()).collect();
            let names = names.join(", ");
            return Err(io::Error::other(format!(
                "no store answers at {names}; start one with `millrace store --listen {}`",
                all.servers[0].address
            )));
        }
        Ok(all)
    }

    pub(super) const fn len(&self) -> usize {
        self.servers.len()
    }

    const fn server_of(&self, slot: u32) -> usize {
        slot as usize % self.servers.len()
    }

    /// True if the server of this slot answers.
    pub(super) fn answers(&self, slot: u32) -> bool {
        self.servers[self.server_of(slot)].answers
    }

    pub(super) fn silent(&self) -> Vec<String> {
        self.servers.iter().filter(|server| !server.answers).map(|server| server.address.to_string()).collect()
    }

    /// Parks a payload. Nobody confirms it.
    pub(super) fn put(&mut self, slot: u32, generation: u16, payload: &[u8]) {
        self.send(slot, Message { generation, payload, ..Message::new(Kind::Put, self.session) });
    }

    /// Asks for a payload.
    pub(super) fn ask(&mut self, slot: u32, generation: u16) {
        if self.asked.get(&slot).is_some_and(|asked| asked.generation == generation) {
            return;
        }
        let state = if self.answers(slot) { State::Waiting } else { State::Lost };
        if matches!(state, State::Waiting) {
            self.send(slot, Message { generation, ..Message::new(Kind::Get, self.session) });
        }
        self.asked.insert(slot, Asked { generation, state });
    }

    /// Appends a payload to `whole`, waiting for it if need be. False if it is lost.
    pub(super) fn get(&mut self, slot: u32, generation: u16, len: usize, whole: &mut Vec<u8>) -> bool {
        self.ask(slot, generation);
        let start = Instant::now();
        let mut again = Some(start + self.timeout / 2);
        loop {
            match self.asked.get(&slot).map(|asked| &asked.state) {
                Some(State::Waiting) => {}
                Some(State::Here(payload)) => {
                    let is_whole = payload.len() == len;
                    if is_whole {
                        whole.extend_from_slice(payload);
                    }
                    self.forget(slot);
                    return is_whole;
                }
                Some(State::Lost) | None => {
                    self.forget(slot);
                    return false;
                }
            }
            let now = Instant::now();
            if now >= start + self.timeout {
                self.miss(slot);
                self.forget(slot);
                return false;
            }
            if again.is_some_and(|again| now >= again) {
                again = None;
                self.send(slot, Message { generation, ..Message::new(Kind::Get, self.session) });
            }
            self.listen(Some(again.unwrap_or(start + self.timeout)));
        }
    }

    fn forget(&mut self, slot: u32) {
        if let Some(Asked { state: State::Here(payload), .. }) = self.asked.remove(&slot) {
            self.spare.push(payload);
        }
    }

    /// A server has not answered.
    fn miss(&mut self, slot: u32) {
        let server = self.server_of(slot);
        self.servers[server].misses += 1;
        if self.servers[server].misses >= MISSES {
            self.silence(server);
        }
    }

    /// Leaves a server out until it answers again.
    fn silence(&mut self, server: usize) {
        self.servers[server].answers = false;
        let all = self.servers.len();
        for (slot, asked) in &mut self.asked {
            if *slot as usize % all == server && matches!(asked.state, State::Waiting) {
                asked.state = State::Lost;
            }
        }
    }

    fn send(&mut self, slot: u32, message: Message<'_>) {
        let (server, all) = (self.server_of(slot), self.servers.len() as u32);
        Message { slot: slot / all, ..message }.write(&mut self.request);
        self.send_request(server);
    }

    fn send_request(&mut self, server: usize) {
        // A full buffer loses the message, as the network may.
        if let Err(error) = self.servers[server].socket.send(&self.request)
            && !is_quiet(&error)
        {
            self.silence(server);
        }
    }

    fn greet(&mut self, server: usize) {
        let slots = self.servers[server].slots;
        Message { number: slots, ..Message::new(Kind::Hello, self.session) }.write(&mut self.request);
        self.servers[server].greeted = Instant::now();
        self.send_request(server);
    }

    /// Greets servers now and then, and reads what has come.
    pub(super) fn tend(&mut self) {
        let now = Instant::now();
        for server in 0..self.servers.len() {
            let Server { answers, greeted, .. } = self.servers[server];
            if now.duration_since(greeted) >= if answers { GREET } else { RETRY } {
                self.greet(server);
            }
        }
        self.listen(None);
    }

    /// Reads all answers that have come; waits for the first until a time, if there is one.
    fn listen(&mut self, until: Option<Instant>) {
        if let Some(until) = until {
            let wait = until.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let mut sockets: Vec<PollFd<'_>> =
                self.servers.iter().map(|server| PollFd::new(&server.socket, PollFlags::IN)).collect();
            // A signal ends the wait; the caller asks again.
            let _ = poll(&mut sockets, Some(&wait));
        }
        for server in 0..self.servers.len() {
            loop {
                let mut answer = std::mem::take(&mut self.answer);
                let received = self.servers[server].socket.recv(&mut answer);
                if let Ok(len) = received {
                    self.heard(server, &answer[..len]);
                }
                self.answer = answer;
                match received {
                    Ok(_) => {}
                    Err(error) if is_quiet(&error) => break,
                    // Nobody listens there.
                    Err(_) => {
                        self.silence(server);
                        break;
                    }
                }
            }
        }
    }

    /// Takes an answer in.
    fn heard(&mut self, server: usize, answer: &[u8]) {
        let Some(message) = Message::read(answer).filter(|message| message.session == self.session) else { return };
        match message.kind {
            Kind::Welcome => {
                self.servers[server].answers = true;
                self.servers[server].misses = 0;
            }
            Kind::Full => self.servers[server].free = Some(message.number),
            Kind::Payload | Kind::Empty => {
                self.servers[server].misses = 0;
                let slot = u64::from(message.slot) * self.servers.len() as u64 + server as u64;
                let Some(asked) = u32::try_from(slot).ok().and_then(|slot| self.asked.get_mut(&slot)) else { return };
                if asked.generation == message.generation && matches!(asked.state, State::Waiting) {
                    asked.state = if message.kind == Kind::Payload {
                        let mut payload = self.spare.pop().unwrap_or_default();
                        payload.clear();
                        payload.extend_from_slice(message.payload);
                        State::Here(payload)
                    } else {
                        State::Lost
                    };
                }
            }
            // It was started anew, and what it had is lost.
            Kind::Unknown => {
                if self.servers[server].answers {
                    self.silence(server);
                    self.greet(server);
                }
            }
            Kind::Hello | Kind::Put | Kind::Get | Kind::Bye => {}
        }
    }
}
