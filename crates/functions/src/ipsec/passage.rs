//! What a packet contributes, and its wire form.

use nf::{Meta, RecordReader, RecordWriter, TUPLE_BYTES};
use packet::FiveTuple;

/// What a packet contributes: the tunnel that it passes, and what can be told of it without the tunnel's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub(super) key: FiveTuple,
    pub(super) tunnel: u16,
    pub(super) what: What,
    /// The number that it came with; 0 for one that goes out.
    pub(super) number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is to be sealed.
    Out,
    /// It came sealed with the tunnel's key.
    Sealed,
    /// It came, and not from whom it says.
    Forged,
    /// The capture has not all of it.
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
