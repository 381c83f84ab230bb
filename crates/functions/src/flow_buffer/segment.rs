//! The metadata of a TCP segment: its sequence number and its first bytes.

use nf::{ENDS_BYTES, IPV6, Meta, RecordReader, RecordWriter, family_of};
use packet::{FiveTuple, Host, Tcp, TcpFlags, protocol};

/// Maximum number of bytes stored for each side.
pub const HEAD_MAX: usize = 64;

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The session, lower endpoint first.
    key: FiveTuple,
    is_from_first: bool,
    flags: TcpFlags,
    /// Sequence number of the first byte of payload.
    seq: u32,
    /// Acknowledgement number; 0 without the ACK flag.
    ack: u32,
    /// Length of the payload.
    len: u32,
    /// Number of bytes carried, and the bytes, padded with zeros.
    carried: u8,
    bytes: [u8; HEAD_MAX],
}

/// The flags that are carried.
const FLAGS: u8 = TcpFlags::SYN.with(TcpFlags::ACK).with(TcpFlags::FIN).with(TcpFlags::RST).0;
/// In a record's first byte: the first endpoint sent the packet.
const FROM_FIRST: u8 = 2;

impl Segment {
    /// Extracts the metadata of a segment, with at most `carry` bytes of payload.
    #[inline]
    pub(super) fn new(tuple: FiveTuple, tcp: &Tcp, len: u32, payload: &[u8], carry: usize) -> Option<Self> {
        let (key, is_from_first) = tuple.symmetric();
        let mut bytes = [0; HEAD_MAX];
        let carried = payload.len().min(carry);
        bytes.get_mut(..carried)?.copy_from_slice(&payload[..carried]);
        // The SYN takes a sequence number before the data.
        let seq = tcp.seq.wrapping_add(tcp.flags.contains(TcpFlags::SYN).into());
        let flags = TcpFlags(tcp.flags.0 & FLAGS);
        let ack = if flags.contains(TcpFlags::ACK) { tcp.ack } else { 0 };
        Some(Self { key, is_from_first, flags, seq, ack, len, carried: carried as u8, bytes })
    }

    #[inline]
    pub(super) const fn has(&self, flag: TcpFlags) -> bool {
        self.flags.contains(flag)
    }

    #[inline]
    pub(super) const fn is_from_first(&self) -> bool {
        self.is_from_first
    }

    #[inline]
    pub(super) const fn seq(&self) -> u32 {
        self.seq
    }

    /// Sequence number after the payload.
    #[inline]
    pub(super) const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    /// Acknowledgement number, if the ACK flag is set.
    #[inline]
    pub(super) fn ack(&self) -> Option<u32> {
        self.has(TcpFlags::ACK).then_some(self.ack)
    }

    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.carried)]
    }
}

impl Meta for Segment {
    type Key = FiveTuple;

    /// Address family, direction and flags in two bytes; the session; both numbers; the payload length; the first bytes and their number.
    const RECORD_BYTES: usize = 2 + ENDS_BYTES + 4 + 4 + 4 + 1 + HEAD_MAX;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.key
    }

    fn source(&self) -> Option<Host> {
        let sender = if self.is_from_first { self.key.source() } else { self.key.destination() };
        Some(Host::from(sender.address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let direction = if self.is_from_first { FROM_FIRST } else { 0 };
        RecordWriter::new(record)
            .u8(family_of(self.key.source().address) | direction)
            .u8(self.flags.0)
            .ends(&self.key)
            .u32(self.seq)
            .u32(self.ack)
            .u32(self.len)
            .u8(self.carried)
            .bytes(self.bytes)
            .end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let (bits, flags) = (fields.u8()?, fields.u8()?);
        let key = fields.ends(bits & IPV6 != 0)?;
        let (seq, ack, len, carried) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u8()?);
        let bytes: [u8; HEAD_MAX] = fields.bytes()?;
        fields.end()?;
        let behind = bytes.get(usize::from(carried)..)?;
        let is_written = bits & !(IPV6 | FROM_FIRST) == 0
            && flags & !FLAGS == 0
            && (ack == 0 || TcpFlags(flags).contains(TcpFlags::ACK))
            && u32::from(carried) <= len
            && behind.iter().all(|byte| *byte == 0)
            && key.protocol() == protocol::TCP
            && key.symmetric().1;
        let is_from_first = bits & FROM_FIRST != 0;
        is_written.then_some(Self { key, is_from_first, flags: TcpFlags(flags), seq, ack, len, carried, bytes })
    }
}
