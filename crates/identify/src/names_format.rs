//! The format of DNS messages (RFC 1035), which several protocols share.

use crate::bytes::{Bytes, Stop, Told, ensure};

/// The head of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) counts: [u16; 4],
    /// Offset of the first name.
    pub(crate) name: usize,
    /// Offset behind the first name.
    pub(crate) name_end: usize,
}

impl Message {
    pub(crate) const fn is_response(&self) -> bool {
        self.flags >> 15 == 1
    }

    /// Reads a message: a plausible head, then a whole first name with its type and class.
    pub(crate) fn read(bytes: &Bytes<'_>, at: usize) -> Told<Self> {
        let (id, flags) = (bytes.be16(at)?, bytes.be16(at + 2)?);
        let is_response = flags >> 15 == 1;
        ensure(matches!(flags >> 11 & 0xf, 0 | 1 | 2 | 4 | 5) && flags & 0xf <= 11 && flags & 0x40 == 0)?;
        let counts = [bytes.be16(at + 4)?, bytes.be16(at + 6)?, bytes.be16(at + 8)?, bytes.be16(at + 10)?];
        let [questions, answers, authorities, more] = counts.map(u32::from);
        let records = answers + authorities + more;
        ensure(questions <= 32 && records <= 512)?;
        // Inverse queries (RFC 1035, section 6.4) have answers alone.
        ensure(questions > 0 || ((is_response || flags >> 11 & 0xf == 1) && records > 0))?;
        let name = at + 12;
        let name_end = name_end(bytes, name)?;
        let (kind, class) = (bytes.be16(name_end)?, bytes.be16(name_end + 2)?);
        // The top bit of the class asks one host alone, or for a cache to be flushed (RFC 6762). An option record has a size there.
        ensure(kind != 0 && (matches!(class & 0x7fff, 1 | 3 | 4 | 254 | 255) || kind == 41))?;
        Ok(Self { id, flags, counts, name, name_end })
    }
}

/// Returns the offset behind the name at an offset.
pub(crate) fn name_end(bytes: &Bytes<'_>, mut at: usize) -> Told<usize> {
    let limit = at + 255;
    while at < limit {
        match bytes.u8(at)? {
            0 => return Ok(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return Ok(at + 2),
            64..0xc0 => return Err(Stop::No),
        }
    }
    Err(Stop::No)
}
