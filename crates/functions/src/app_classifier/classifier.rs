//! The hook: what tells applications apart.

use core::fmt;

use packet::{Headers, Transport, protocol};

/// Tells applications by the payload of single packets. Answers depend on nothing but the arguments, for every replica asks
/// anew.
pub trait Classifier: Clone + fmt::Debug + Default + Send + Sync + 'static {
    /// The applications that it knows. There are 254 at most.
    const APPLICATIONS: &'static [Label];

    /// What the packet is of, if that can be told: a place in [`APPLICATIONS`](Self::APPLICATIONS). Asked for every packet that
    /// has a payload, whatever is known of its session.
    fn classify(&self, payload: &Payload<'_>) -> Option<Application>;
}

/// An application, by its place in the list of its classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(pub u8);

/// How an application is called, and what it takes to believe in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name in configurations and reports.
    pub name: &'static str,
    /// How many packets with payload have to say so, one behind another. One, where a packet leaves no doubt.
    pub evidence: u8,
}

/// What a classifier sees of a packet. Never empty.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// TCP or UDP, by its number.
    pub protocol: u8,
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// What was captured of the payload.
    pub bytes: &'a [u8],
    /// How long it was on the wire.
    pub wire_len: u32,
}

impl<'a> Payload<'a> {
    /// That of a packet, if it is TCP or UDP and has any.
    #[inline]
    #[must_use]
    pub fn of(headers: &Headers, bytes: &'a [u8]) -> Option<Self> {
        let (protocol, (src_port, dst_port)) = (headers.protocol, headers.ports());
        let is_carrier = match headers.transport {
            Transport::Tcp(_) => protocol == protocol::TCP,
            Transport::Udp { .. } => protocol == protocol::UDP,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => false,
        };
        let wire_len = headers.payload_len;
        (is_carrier && !bytes.is_empty()).then_some(Self { protocol, src_port, dst_port, bytes, wire_len })
    }

    /// Whether one of the ports is this one.
    #[inline]
    #[must_use]
    pub const fn is_at(&self, port: u16) -> bool {
        self.src_port == port || self.dst_port == port
    }

    /// The byte at a place.
    #[inline]
    #[must_use]
    pub fn u8(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Two bytes from a place on, in network byte order.
    #[inline]
    #[must_use]
    pub fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Four bytes from a place on, in network byte order.
    #[inline]
    #[must_use]
    pub fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// So many bytes from a place on.
    #[inline]
    #[must_use]
    pub fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    /// Whether these bytes stand at a place.
    #[inline]
    #[must_use]
    pub fn has(&self, at: usize, bytes: &[u8]) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.starts_with(bytes))
    }

    /// The first line without its end, at most 256 bytes, and whether its end was seen.
    #[must_use]
    pub fn line(&self) -> (&'a [u8], bool) {
        let head = &self.bytes[..self.bytes.len().min(256)];
        match head.iter().position(|byte| *byte == b'\n') {
            Some(end) => (head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]), true),
            None => (head, false),
        }
    }
}
