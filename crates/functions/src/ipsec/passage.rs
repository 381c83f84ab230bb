//! The metadata of a packet, and its wire form.

use nf::{Meta, RecordReader, RecordWriter, TUPLE_BYTES};
use packet::FiveTuple;

/// The metadata of a packet: its tunnel, and everything that is known without the tunnel's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub(super) key: FiveTuple,
    pub(super) tunnel: u16,
    pub(super) what: What,
    /// The sequence number; 0 for an outgoing packet.
    pub(super) number: u32,
}

/// What is known of a packet without the tunnel's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// An outgoing packet, to be encrypted.
    Out,
    /// An incoming packet with a valid tag.
    Sealed,
    /// An incoming packet with an invalid tag.
    Forged,
    /// An incoming packet that the capture cut off.
    Truncated,
}

impl What {
    const ALL: [Self; 4] = [Self::Out, Self::Sealed, Self::Forged, Self::Truncated];
}

impl Meta for Passage {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = TUPLE_BYTES + 7;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.key
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.key).u16(self.tunnel).u8(self.what as u8).u32(self.number).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let (key, tunnel) = (fields.tuple()?, fields.u16()?);
        let what = *What::ALL.get(usize::from(fields.u8()?))?;
        let passage = Self { key, tunnel, what, number: fields.u32()? };
        fields.end()?;
        (what != What::Out || passage.number == 0).then_some(passage)
    }
}
