//! A payload server: memory that splits on other machines park payloads in, by UDP.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::protocol::{HEADER, Kind, Message};
use crate::park::PAYLOAD_MAX;

/// Time after which the memory of a session that says nothing may go to another.
const LEASE: Duration = Duration::from_secs(30);

/// Most sessions at a time.
const SESSIONS: usize = 256;

/// Receive buffer of a socket, in bytes: payloads come in bursts.
pub(super) const SOCKET_BUFFER: usize = 8 << 20;

/// Interval at which a server that nobody talks to looks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// A payload server.
///
/// A split asks for slots once and says then which slot each payload goes to, so the server keeps no order and no free list. It believes
/// whoever knows a session's number: put it on a network of its own.
#[derive(Debug)]
pub struct StoreServer {
    socket: UdpSocket,
    regions: Regions,
}

/// The memory of all sessions.
#[derive(Debug)]
struct Regions {
    slots_free: u32,
    by_session: HashMap<u64, Region>,
    served: Served,
}

/// The memory of one session.
#[derive(Debug)]
struct Region {
    memory: Vec<u8>,
    /// Generation and length of the payload in each slot.
    heads: Vec<Option<(u16, u16)>>,
    last: Instant,
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Payloads parked.
    pub put: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Payloads handed out.
    pub handed_out: u64,
    /// Payloads that it was asked for and doesn't have.
    pub empty: u64,
    /// Messages of sessions that it doesn't know.
    pub unknown: u64,
    /// Sessions that it had no room for.
    pub full: u64,
    /// Datagrams that are no message, or name a slot that is not there.
    pub malformed: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// Sessions now.
    pub sessions: u64,
}

impl StoreServer {
    /// Listens on `address`, with memory for payloads of `memory` bytes in all, at least one slot.
    ///
    /// # Errors
    /// The address can't be listened on.
    pub fn bind(address: SocketAddr, memory: u64) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        widen(&socket);
        let slots = u32::try_from((memory / PAYLOAD_MAX as u64).max(1)).unwrap_or(u32::MAX);
        Ok(Self { socket, regions: Regions::new(slots) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system doesn't tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Number of payloads that fit.
    #[must_use]
    pub const fn slots_free(&self) -> u32 {
        self.regions.slots_free
    }

    /// Serves until `is_over` says so, which is asked some twenty times a second.
    ///
    /// # Errors
    /// The socket fails.
    pub fn serve(&mut self, is_over: impl Fn() -> bool) -> io::Result<Served> {
        let mut datagram = vec![0; HEADER + PAYLOAD_MAX + 1];
        let mut answer = Vec::with_capacity(HEADER + PAYLOAD_MAX);
        self.socket.set_read_timeout(Some(LOOK))?;
        let mut until_look = 0_u32;
        loop {
            if until_look == 0 {
                if is_over() {
                    return Ok(self.served());
                }
                until_look = 1_024;
            }
            match self.socket.recv_from(&mut datagram) {
                Ok((len, from)) => {
                    until_look -= 1;
                    if self.regions.handle(&datagram[..len], Instant::now(), &mut answer)
                        && self.socket.send_to(&answer, from).is_err()
                    {
                        self.regions.served.unsent += 1;
                    }
                }
                Err(error) if is_quiet(&error) => until_look = 0,
                // Somebody who was answered is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn served(&self) -> Served {
        Served { sessions: self.regions.by_session.len() as u64, ..self.regions.served }
    }
}

impl Regions {
    fn new(slots_free: u32) -> Self {
        Self { slots_free, by_session: HashMap::new(), served: Served::default() }
    }

    /// Handles a datagram; true if there is an answer to send.
    fn handle(&mut self, datagram: &[u8], now: Instant, answer: &mut Vec<u8>) -> bool {
        let Some(message) = Message::read(datagram) else {
            self.served.malformed += 1;
            return false;
        };
        let Message { kind, generation, session, slot, .. } = message;
        if kind == Kind::Hello {
            self.greet(&message, now).write(answer);
            return true;
        }
        if kind == Kind::Bye {
            self.forget(session);
            return false;
        }
        let Some(region) = self.by_session.get_mut(&session) else {
            self.served.unknown += 1;
            let unknown = Message { slot, generation, ..Message::new(Kind::Unknown, session) };
            unknown.write(answer);
            return true;
        };
        let at = slot as usize;
        let fits = message.payload.len() <= PAYLOAD_MAX;
        let Some(head) = region.heads.get_mut(at).filter(|_| fits) else {
            self.served.malformed += 1;
            return false;
        };
        region.last = now;
        let place = at * PAYLOAD_MAX;
        match (kind, *head) {
            (Kind::Put, _) => {
                let len = message.payload.len();
                region.memory[place..place + len].copy_from_slice(message.payload);
                *head = Some((generation, len as u16));
                self.served.put += 1;
                self.served.bytes += len as u64;
                false
            }
            (Kind::Get, Some((parked, len))) if parked == generation => {
                let payload = &region.memory[place..place + usize::from(len)];
                Message { slot, generation, payload, ..Message::new(Kind::Payload, session) }.write(answer);
                self.served.handed_out += 1;
                true
            }
            (Kind::Get, _) => {
                Message { slot, generation, ..Message::new(Kind::Empty, session) }.write(answer);
                self.served.empty += 1;
                true
            }
            _ => {
                self.served.malformed += 1;
                false
            }
        }
    }

    /// Frees the memory of a session.
    fn forget(&mut self, session: u64) {
        if let Some(region) = self.by_session.remove(&session) {
            self.slots_free += region.heads.len() as u32;
        }
    }

    /// Gives a session its memory.
    fn greet(&mut self, hello: &Message<'_>, now: Instant) -> Message<'static> {
        let Message { session, number: slots, .. } = *hello;
        if let Some(region) = self.by_session.get_mut(&session)
            && region.heads.len() == slots as usize
        {
            region.last = now;
            return Message { number: slots, ..Message::new(Kind::Welcome, session) };
        }
        // The same session with another size, and sessions that are gone.
        let is_gone = |id: &u64, region: &Region| *id == session || now.duration_since(region.last) > LEASE;
        let gone: Vec<u64> =
            self.by_session.iter().filter(|(id, region)| is_gone(id, region)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
        if slots == 0 || slots > self.slots_free || self.by_session.len() == SESSIONS {
            self.served.full += 1;
            return Message { number: self.slots_free, ..Message::new(Kind::Full, session) };
        }
        self.slots_free -= slots;
        let (memory, heads) = (vec![0; slots as usize * PAYLOAD_MAX], vec![None; slots as usize]);
        self.by_session.insert(session, Region { memory, heads, last: now });
        Message { number: slots, ..Message::new(Kind::Welcome, session) }
    }
}

/// Asks for a large receive buffer, beyond the system's limit where rights allow.
pub(super) fn widen(socket: &UdpSocket) {
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        // The system takes as much of it as it allows.
        let _ = sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER);
    }
}

/// True if nothing has come.
pub(super) fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map, with sessions that ask for too much, wrong slots and noise.
        #[test]
        fn a_server_is_a_map_of_bounded_size(
            calls in vec((0_u64..3, 0_u32..6, 0_u16..3, 0..6, vec(any::<u8>(), 0..9)), 0..200),
        ) {
            let mut regions = Regions::new(6);
            let mut model: HashMap<u64, HashMap<u32, (u16, Vec<u8>)>> = HashMap::new();
            let (now, mut answer, mut request) = (Instant::now(), Vec::new(), Vec::new());
            for (session, slot, generation, call, payload) in calls {
                let kind = match call { 0 => Kind::Hello, 1 => Kind::Put, 2 => Kind::Get, 3 => Kind::Welcome, 4 => Kind::Put, _ => Kind::Bye };
                let payload = if kind == Kind::Put { &payload[..] } else { &[] };
                Message { slot, generation, number: 3, payload, ..Message::new(kind, session) }.write(&mut request);
                if call == 4 {
                    request.truncate(payload.len());
                }
                let answers = regions.handle(&request, now, &mut answer);
                let answer = answers.then(|| Message::read(&answer).expect("an answer"));
                let kind_of = answer.map(|answer| answer.kind);
                let sessions = model.len();
                if call == 5 {
                    model.remove(&session);
                    prop_assert_eq!(kind_of, None);
                    continue;
                }
                match (call, model.get_mut(&session)) {
                    (4, _) => prop_assert_eq!(kind_of, None),
                    (0, None) if sessions == 2 => prop_assert_eq!(kind_of, Some(Kind::Full)),
                    (0, _) => {
                        model.entry(session).or_default();
                        prop_assert_eq!(kind_of, Some(Kind::Welcome));
                    }
                    (_, None) => prop_assert_eq!(kind_of, Some(Kind::Unknown)),
                    (1, Some(slots)) => {
                        if slot < 3 {
                            slots.insert(slot, (generation, payload.to_vec()));
                        }
                        prop_assert_eq!(kind_of, None);
                    }
                    (2, Some(slots)) => match slots.get(&slot) {
                        Some((parked, payload)) if *parked == generation => {
                            let answer = answer.expect("a payload");
                            prop_assert_eq!((answer.kind, answer.payload), (Kind::Payload, &payload[..]));
                        }
                        _ if slot < 3 => prop_assert_eq!(kind_of, Some(Kind::Empty)),
                        _ => prop_assert_eq!(kind_of, None),
                    },
                    _ => prop_assert_eq!(kind_of, None),
                }
            }
        }

        #[test]
        fn noise_does_no_harm(noise in vec(vec(any::<u8>(), 0..60), 0..50)) {
            let mut regions = Regions::new(4);
            let mut answer = Vec::new();
            for bytes in noise {
                regions.handle(&bytes, Instant::now(), &mut answer);
                let [a, b, c, d, e] = *b"MrSt\x01";
                let bytes = [&[a, b, c, d, e][..], &bytes].concat();
                regions.handle(&bytes, Instant::now(), &mut answer);
            }
            let held: u32 = regions.by_session.values().map(|region| region.heads.len() as u32).sum();
            prop_assert_eq!(held + regions.slots_free, 4);
        }
    }

    #[test]
    fn a_silent_session_makes_room_after_its_lease() {
        let mut regions = Regions::new(4);
        let (start, mut answer) = (Instant::now(), Vec::new());
        let mut hello = |session, at| {
            let mut request = Vec::new();
            Message { number: 4, ..Message::new(Kind::Hello, session) }.write(&mut request);
            assert!(regions.handle(&request, at, &mut answer));
            Message::read(&answer).map(|answer| answer.kind)
        };
        assert_eq!(hello(1, start), Some(Kind::Welcome));
        assert_eq!(hello(2, start + LEASE), Some(Kind::Full));
        assert_eq!(hello(2, start + LEASE * 2), Some(Kind::Welcome));
    }
}
