//! Names that sessions carry in clear: of servers, of hosts, of questions.

mod hello;
mod initial;

use crate::answer::{Prefixes, Protocol};
use crate::bytes::{Bytes, Stop, Told, ensure};
use crate::names_format::{Message, name_end};
use crate::protocol::{DNS, DTLS, HTTP, HTTP_CONNECT, LLMNR, MDNS, QUIC, SIP, SSDP, TLS, WEBSOCKET};
use crate::signatures::{Signatures, both};
use crate::stream::{http, tls};

/// The longest name that is kept, in bytes (RFC 1035, section 2.3.4).
pub const NAME_MAX: usize = 255;

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// The server's name in a hello of TLS, DTLS or QUIC (RFC 6066).
    Server,
    /// The host in a request of HTTP, and the target of a tunnel.
    Host,
    /// The first question of a message of DNS, in the usual notation without the last dot.
    Question,
    /// The protocol that a client offers first inside TLS, DTLS or QUIC (RFC 7301).
    Alpn,
}

/// The names of a session, in buffers of fixed size.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    kind: NameKind,
    name: Buffer<NAME_MAX>,
    alpn: Buffer<32>,
}

/// A few bytes.
#[derive(Clone, Copy, Debug)]
struct Buffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Buffer<N> {
    const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// Adds a byte. Refuses when full.
    fn push(&mut self, byte: u8) -> Told<()> {
        *self.bytes.get_mut(self.len).ok_or(Stop::No)? = byte;
        self.len += 1;
        Ok(())
    }

    fn set(&mut self, bytes: &[u8]) {
        self.len = bytes.len().min(N);
        self.bytes[..self.len].copy_from_slice(&bytes[..self.len]);
    }

    fn get(&self) -> Option<&[u8]> {
        (self.len > 0).then(|| &self.bytes[..self.len])
    }
}

impl Default for Names {
    fn default() -> Self {
        Self { kind: NameKind::Server, name: Buffer::EMPTY, alpn: Buffer::EMPTY }
    }
}

impl Names {
    /// Returns the name of a kind, if the session has one. Its bytes are as they were sent; they need not be text.
    #[must_use]
    pub fn get(&self, kind: NameKind) -> Option<&[u8]> {
        match kind {
            NameKind::Alpn => self.alpn.get(),
            _ if kind == self.kind => self.name.get(),
            _ => None,
        }
    }

    /// Returns the main name with its kind: of the server, the host or the question.
    #[must_use]
    pub fn main(&self) -> Option<(NameKind, &[u8])> {
        self.name.get().map(|name| (self.kind, name))
    }

    fn set(&mut self, kind: NameKind, name: &[u8]) {
        self.kind = kind;
        self.name.set(name);
    }
}

impl Signatures {
    /// Reads the names of a TCP stream whose protocol is known. Returns false while more bytes may bring more.
    pub fn stream_names(&self, protocol: Protocol, prefixes: &Prefixes<'_>, names: &mut Names) -> bool {
        let [initiator, responder] = both(prefixes);
        *names = Names::default();
        let told = match protocol {
            TLS => {
                let mut handshake = tls::Handshake::new(&initiator);
                hello::read(&mut || handshake.u8(), false, names)
            }
            HTTP | WEBSOCKET | HTTP_CONNECT | SIP => host(&initiator, protocol, names),
            DNS => question(&initiator, 2, names).or_else(|stop| match stop {
                Stop::No => question(&responder, 2, names),
                Stop::More => Err(stop),
            }),
            _ => Err(Stop::No),
        };
        told != Err(Stop::More)
    }

    /// Reads the names in a datagram of a session whose protocol is known. Returns false if it has none, so a later datagram may.
    pub fn datagram_names(&self, protocol: Protocol, payload: &[u8], names: &mut Names) -> bool {
        let bytes = Bytes::datagram(payload);
        *names = Names::default();
        let told = match protocol {
            QUIC => initial::read(&bytes, names),
            DTLS => dtls(&bytes, names),
            DNS | MDNS | LLMNR => question(&bytes, 0, names),
            SSDP | SIP | HTTP => host(&bytes, protocol, names),
            _ => Err(Stop::No),
        };
        told.is_ok()
    }
}

/// The host of a request, or the target of a tunnel.
fn host(bytes: &Bytes<'_>, protocol: Protocol, names: &mut Names) -> Told<()> {
    if protocol == HTTP_CONNECT {
        let (line, _) = bytes.line(0, crate::LIMIT)?;
        let target = line.split(|byte| *byte == b' ').nth(1).ok_or(Stop::No)?;
        names.set(NameKind::Host, target);
        return Ok(());
    }
    let (host, _) = http::field(bytes, b"Host")?;
    ensure(!host.is_empty())?;
    names.set(NameKind::Host, host);
    Ok(())
}

/// The first question, or the first answer's name, of a message at an offset.
fn question(bytes: &Bytes<'_>, at: usize, names: &mut Names) -> Told<()> {
    let message = Message::read(bytes, at)?;
    let mut name = Buffer::EMPTY;
    let (mut label, mut hops) = (message.name, 0);
    loop {
        match bytes.u8(label)? {
            0 => break,
            len @ 1..=63 => {
                if name.len > 0 {
                    name.push(b'.')?;
                }
                for byte in bytes.slice(label + 1, len.into())? {
                    name.push(*byte)?;
                }
                label += 1 + usize::from(len);
            }
            0xc0.. => {
                hops += 1;
                ensure(hops < 8)?;
                label = at + usize::from(bytes.be16(label)? & 0x3fff);
            }
            64..0xc0 => return Err(Stop::No),
        }
    }
    let _end = name_end(bytes, message.name)?;
    ensure(name.len > 0)?;
    (names.kind, names.name) = (NameKind::Question, name);
    Ok(())
}

/// The hello of a client in one piece (RFC 9147, section 5.3).
fn dtls(bytes: &Bytes<'_>, names: &mut Names) -> Told<()> {
    ensure(bytes.u8(0)? == 22 && bytes.u8(13)? == 1)?;
    // Its piece begins at its beginning, and is the whole.
    ensure(bytes.be24(19)? == 0 && bytes.be24(14)? == bytes.be24(22)?)?;
    let mut at = 13;
    // The head of the message has eight bytes more than in TLS: what numbers it and its pieces.
    let mut next = || {
        let byte = bytes.u8(at)?;
        at = if at == 16 { 25 } else { at + 1 };
        Ok(byte)
    };
    hello::read(&mut next, true, names)
}
