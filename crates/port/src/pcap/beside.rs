//! Data of a capture besides packets: options of packets and sections, statistics, names, secrets. The reader keeps it as notes; the
//! writer writes it at the same place, in its own byte order.

use super::walk::{u16_at, u32_at};

/// The length of the frame check sequence, of an interface.
pub(super) const OPTION_FCS_LENGTH: u16 = 13;
/// Comment option (`opt_comment`).
pub(super) const OPTION_COMMENT: u16 = 1;

/// Blocks that are copied as they are, but for their numbers.
pub(super) const NAME_RESOLUTION: u32 = 4;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
pub(super) const JOURNAL: u32 = 9;
pub(super) const DECRYPTION_SECRETS: u32 = 10;
/// A custom block that may be copied. The format forbids copying the other kind (0x40000bad).
pub(super) const CUSTOM_BLOCK: u32 = 0xbad;

/// A note about a packet, or about the place before it.
#[derive(Debug)]
pub(super) struct Beside {
    /// The packet's number.
    pub(super) at: u64,
    pub(super) what: What,
}

/// Content of a note. Numbers are little-endian.
#[derive(Debug)]
pub(super) enum What {
    /// Of the packet: its wire length in the file was shorter than its captured length, which replaced it.
    WireLen { given: u32, reported: u32 },
    /// Of the packet: its options.
    Options(Vec<u8>),
    /// Before it: options of the first section.
    Section(Vec<u8>),
    /// Before it: a block.
    Block(u32, Vec<u8>),
    /// Before it: statistics of an interface, with times in nanoseconds.
    Statistics { interface: u16, time: u64, options: Vec<(u16, Vec<u8>)> },
}

impl What {
    /// True if the note is about the packet itself, not about the place before it.
    pub(super) const fn is_of_packet(&self) -> bool {
        matches!(self, Self::WireLen { .. } | Self::Options(_))
    }
}

/// Notes that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// True if notes are kept.
    pub(super) wanted: bool,
    pub(super) taken: Vec<Beside>,
}

impl Notes {
    pub(super) fn add(&mut self, at: u64, what: What) {
        self.taken.push(Beside { at, what });
    }

    /// Notes a packet with a wire length below its captured length.
    #[inline]
    pub(super) fn wire_len(&mut self, at: u64, len: u32, reported: u32) {
        if self.wanted && reported < len {
            self.add(at, What::WireLen { given: len, reported });
        }
    }
}

/// What an option belongs to.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Section,
    Interface,
    Packet,
    Names,
    Statistics,
    Secrets,
}

/// Widths of the numbers at the start of an option's value.
const fn widths(of: Of, code: u16, len: usize) -> &'static [usize] {
    match (of, code) {
        // Private options begin with an enterprise number.
        (_, 2988 | 2989 | 19372 | 19373) => &[4],
        // Flags and queue; drop count and packet id; verdict after its kind; process and thread.
        (Of::Packet, 2 | 6) => &[4],
        (Of::Packet, 4 | 5) => &[8],
        (Of::Packet, 7) if len == 9 => &[1, 8],
        (Of::Packet, 8) => &[4, 4],
        // Speeds, and a time zone.
        (Of::Interface, 8 | 16 | 17) => &[8],
        (Of::Interface, 10) => &[4],
        // Times in two halves; counters.
        (Of::Statistics, 2 | 3) => &[4, 4],
        (Of::Statistics, 4..=8) => &[8],
        _ => &[],
    }
}

/// The value with its numbers in little-endian order.
pub(super) fn value<const BIG: bool>(of: Of, code: u16, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    if BIG {
        let mut at = 0;
        for width in widths(of, code, value.len()) {
            if let Some(number) = value.get_mut(at..at + width) {
                number.reverse();
            }
            at += width;
        }
    }
    value
}

/// An option's code, its value, and the bytes after it.
type OptionAnd<'a> = (u16, &'a [u8], &'a [u8]);

/// The next option; `None` after the last. An error means that it extends beyond the block.
pub(super) fn option<const BIG: bool>(rest: &[u8]) -> Result<Option<OptionAnd<'_>>, ()> {
    let Some((head, behind)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let (code, len) = (u16_at::<BIG>(head, 0), usize::from(u16_at::<BIG>(head, 2)));
    if code == 0 {
        return Ok(None);
    }
    let value = behind.get(..len).ok_or(())?;
    Ok(Some((code, value, behind.get(len.next_multiple_of(4)..).unwrap_or_default())))
}

/// All whole options, with their numbers in little-endian order.
pub(super) fn options<const BIG: bool>(of: Of, mut rest: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    while let Ok(Some((code, bytes, behind))) = option::<BIG>(rest) {
        options.push((code, value::<BIG>(of, code, bytes)));
        rest = behind;
    }
    options
}

/// All whole options as they are written, without their end.
pub(super) fn written_options<const BIG: bool>(of: Of, rest: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (code, value) in options::<BIG>(of, rest) {
        put_option(&mut written, code, &value);
    }
    written
}

/// Adds an option.
pub(super) fn put_option(options: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    options.extend_from_slice(&code.to_le_bytes());
    options.extend_from_slice(&(value.len() as u16).to_le_bytes());
    options.extend_from_slice(value);
    options.resize(options.len().next_multiple_of(4), 0);
}

/// The body of a block that may be copied, with little-endian numbers; `None` for other blocks and inconsistent ones.
pub(super) fn copied<const BIG: bool>(kind: u32, body: &[u8]) -> Option<Vec<u8>> {
    if !matches!(kind, NAME_RESOLUTION | JOURNAL | DECRYPTION_SECRETS | CUSTOM_BLOCK) {
        return None;
    }
    if !BIG || kind == JOURNAL {
        return Some(body.to_vec());
    }
    let mut copy = Vec::with_capacity(body.len());
    let mut rest = body;
    match kind {
        NAME_RESOLUTION => {
            while let Some((code, value, behind)) = option::<BIG>(rest).ok()? {
                put_option(&mut copy, code, value);
                rest = behind;
            }
            copy.extend_from_slice(&[0; 4]);
            let options = written_options::<BIG>(Of::Names, rest.get(4..).unwrap_or_default());
            put_all(&mut copy, &options);
        }
        DECRYPTION_SECRETS => {
            let head = rest.first_chunk::<8>()?;
            let (secrets, len) = (u32_at::<BIG>(head, 0), u32_at::<BIG>(head, 4));
            copy.extend_from_slice(&[secrets.to_le_bytes(), len.to_le_bytes()].concat());
            let padded = (len as usize).next_multiple_of(4);
            copy.extend_from_slice(rest.get(8..8 + padded)?);
            put_all(&mut copy, &written_options::<BIG>(Of::Secrets, &rest[8 + padded..]));
        }
        _ => {
            let enterprise = u32_at::<BIG>(rest.first_chunk::<4>()?, 0);
            copy.extend_from_slice(&enterprise.to_le_bytes());
            copy.extend_from_slice(&rest[4..]);
        }
    }
    Some(copy)
}

/// Adds options and the end mark, if there are any options.
pub(super) fn put_all(block: &mut Vec<u8>, options: &[u8]) {
    if !options.is_empty() {
        block.extend_from_slice(options);
        block.extend_from_slice(&[0; 4]);
    }
}
