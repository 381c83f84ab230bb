//! The metadata of a packet: what it shows of its sender.

use nf::{ENDS_BYTES, IPV6, Meta, RecordReader, RecordWriter, family_of};
use packet::{Endpoint, FiveTuple, Host, protocol};

use super::systems::System;

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The five-tuple as sent.
    tuple: FiveTuple,
    bytes: u32,
    look: Look,
}

/// What a packet shows of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing.
    Quiet,
    /// A SYN, and the system that it looks like.
    Asks(System),
    /// A SYN+ACK, and the system that it looks like.
    Grants(System),
    /// A payload, and the number of its protocol in `Signatures`, counted from 1; 0 if unknown.
    Speaks(u16),
}

impl Sighting {
    pub(super) const fn new(tuple: FiveTuple, bytes: u32, look: Look) -> Self {
        Self { tuple, bytes, look }
    }

    pub(super) const fn look(&self) -> Look {
        self.look
    }

    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) const fn sender(&self) -> Endpoint {
        self.tuple.source()
    }

    pub(super) const fn protocol(&self) -> u8 {
        self.tuple.protocol()
    }

    pub(super) const fn is_udp(&self) -> bool {
        self.tuple.protocol() == protocol::UDP
    }

    /// The side of the session's key that sent it.
    pub(super) const fn side(&self) -> u8 {
        if self.tuple.symmetric().1 { 0 } else { 1 }
    }
}

/// Bit position of the look in a record's first byte.
const LOOK_SHIFT: u32 = 1;

impl Meta for Sighting {
    type Key = FiveTuple;

    /// Address family and look in one byte; the tuple; the length; the value of the look.
    const RECORD_BYTES: usize = 1 + ENDS_BYTES + 4 + 2;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple.symmetric().0
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (look, value) = match self.look {
            Look::Quiet => (0, 0),
            Look::Asks(system) => (1, system as u16),
            Look::Grants(system) => (2, system as u16),
            Look::Speaks(service) => (3, service),
        };
        let bits = family_of(self.tuple.source().address) | look << LOOK_SHIFT;
        RecordWriter::new(record).u8(bits).ends(&self.tuple).u32(self.bytes).u16(value).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let (tuple, bytes) = (fields.ends(bits & IPV6 != 0)?, fields.u32()?);
        let is_tcp = tuple.protocol() == protocol::TCP;
        let value = fields.u16()?;
        let system = || u8::try_from(value).ok().and_then(System::from_number);
        let look = match (bits >> LOOK_SHIFT, value) {
            (0, 0) => Look::Quiet,
            (1, _) if is_tcp => Look::Asks(system()?),
            (2, _) if is_tcp => Look::Grants(system()?),
            (3, service) => Look::Speaks(service),
            _ => return None,
        };
        fields.end()?;
        (is_tcp || tuple.protocol() == protocol::UDP).then_some(Self { tuple, bytes, look })
    }
}
