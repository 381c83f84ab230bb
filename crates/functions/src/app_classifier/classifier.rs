//! The trait that an application classifier implements.

use core::fmt;

use packet::{Headers, Transport, protocol};

/// Identifies applications by the payload of single packets. Answers must depend only on the arguments, because every replica asks
/// again.
pub trait Classifier: Clone + fmt::Debug + Default + Send + Sync + 'static {
    /// The known applications, at most 254.
    const APPLICATIONS: &'static [Label];

    /// Returns the packet's application, an index in [`APPLICATIONS`](Self::APPLICATIONS), if it can be identified. Called for every packet
    /// with payload, even of identified sessions.
    fn classify(&self, payload: &Payload<'_>) -> Option<Application>;
}

/// An application: its index in the list of its classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(pub u8);

/// The name of an application, and the evidence that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name in configurations and reports.
    pub name: &'static str,
    /// Number of consecutive packets with payload that must look like it. One, if a packet leaves no doubt.
    pub evidence: u8,
}

/// The payload of a packet, with its ports. Never empty.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// TCP or UDP, by its number.
    pub protocol: u8,
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The captured bytes of the payload.
    pub bytes: &'a [u8],
    /// Length of the payload on the wire.
    pub wire_len: u32,
}

impl<'a> Payload<'a> {
    /// Returns the payload of a packet, if it is TCP or UDP and has any.
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

    /// Returns true if one of the ports is this one.
    #[inline]
    #[must_use]
    pub const fn is_at(&self, port: u16) -> bool {
        self.src_port == port || self.dst_port == port
    }

    /// Reads the byte at an offset.
    #[inline]
    #[must_use]
    pub fn u8(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Reads two bytes at an offset, in network byte order.
    #[inline]
    #[must_use]
    pub fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Reads four bytes at an offset, in network byte order.
    #[inline]
    #[must_use]
    pub fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Reads `N` bytes at an offset.
    #[inline]
    #[must_use]
    pub fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    /// Returns true if the payload has these bytes at an offset.
    #[inline]
    #[must_use]
    pub fn has(&self, at: usize, bytes: &[u8]) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.starts_with(bytes))
    }

    /// Returns the first line without its end, at most 256 bytes, and whether its end was found.
    #[must_use]
    pub fn line(&self) -> (&'a [u8], bool) {
        let head = &self.bytes[..self.bytes.len().min(256)];
        match head.iter().position(|byte| *byte == b'\n') {
            Some(end) => (head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]), true),
            None => (head, false),
        }
    }
}
