//! Writes captures: pcap and pcapng, plain or compressed.

use std::fmt;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packet::LinkType;

use super::beside::{INTERFACE_STATISTICS, OPTION_COMMENT, OPTION_FCS_LENGTH, put_all, put_option};
use super::classic::{FCS_IS_TOLD, MAGIC_MICROS, MAGIC_NANOS, RECORD_HEADER_BYTES};
use super::error::{Error, Fault};
use super::format::{Compression, Container, Format, Interface, Interfaces, Resolution};
use super::reader::Reader;
use super::sections::{
    BYTE_ORDER_MAGIC, END_TIME, ENHANCED_PACKET, INTERFACE_DESCRIPTION, OPTION_NAME, OPTION_RESOLUTION,
    OPTION_TIME_OFFSET, SECTION_HEADER, START_TIME,
};
use super::target::{Sink, is_standard};
use crate::batch::{Batch, Packet};
use crate::queue::Received;

/// Size of the buffer.
const BUFFER_BYTES: usize = 128 << 10;
/// A run of records of at least this many bytes is written without the buffer.
const DIRECT_BYTES: usize = 16 << 10;
/// Bytes of the mark after a block's options.
const END_OF_OPTIONS: usize = 4;
/// Longest packet that other programs read; the header of classic pcap needs a limit.
const SNAPLEN: u32 = 262_144;

/// Writes a capture. The file appears under its name, complete, when [`Writer::finish`] is called.
pub struct Writer {
    path: PathBuf,
    sink: Option<Sink>,
    buffer: Vec<u8>,
    body: Body,
    packets: u64,
    /// Bytes of the capture, before compression.
    bytes: u64,
    /// The input's interfaces, as far as they were described.
    interfaces: Interfaces,
    /// The latest known interfaces of the input.
    described: Option<Arc<Interfaces>>,
    /// Bytes by which packets may be longer than in the input.
    growth: u32,
}

enum Body {
    Pcap(Classic),
    PcapNg(Section),
}

/// A classic pcap. Its header is written with the first packet, which has the link type.
struct Classic {
    link: Option<LinkType>,
    link_if_empty: LinkType,
    resolution: Resolution,
}

/// The only section of a pcapng. Its header is written late, because the input's section options may come first.
#[derive(Default)]
struct Section {
    begun: bool,
    options: Vec<u8>,
    /// For each written interface: nanoseconds added to time stamps, because its negative offset subtracts them.
    shifts: Vec<u64>,
    /// The interfaces written, by the packets' interface and link type.
    written: Vec<(u16, LinkType)>,
    /// The latest number in `written` of each of the packets' interfaces.
    latest: Vec<usize>,
    /// Number of the input's interfaces that were declared as in the input.
    described: usize,
}

impl Writer {
    /// Creates a capture; `-` is standard output. Without a `container`, the extension decides (`.pcap`, `.pcapng`, also with `.gz` or
    /// `.zst`), then the input's format. A pcap has microseconds if the input is a pcap with microseconds, else nanoseconds. A pcapng has
    /// nanoseconds.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn create(path: impl AsRef<Path>, container: Option<Container>, input: Option<&Format>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let (named, compression) = by_name(&path);
        let container = container.or(named).or(input.map(|input| input.container)).unwrap_or(Container::Pcap);
        let sink = match Sink::create(&path, compression) {
            Ok(sink) => sink,
            Err(fault) => return Err(Error { path, offset: 0, packets: 0, fault }),
        };
        Ok(Self {
            path,
            sink: Some(sink),
            buffer: Vec::with_capacity(BUFFER_BYTES),
            body: Body::new(container, input),
            packets: 0,
            bytes: 0,
            described: None,
            interfaces: input.map_or(Vec::new(), |input| input.interfaces.iter().cloned().map(Some).collect()),
            growth: 0,
        })
    }

    /// The file that is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Packets written.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Sets the input's interfaces, as far as they are known now.
    pub(super) fn describe(&mut self, interfaces: &Arc<Interfaces>) {
        if self.described.as_ref().is_some_and(|described| Arc::ptr_eq(described, interfaces)) {
            return;
        }
        if let (None, Body::Pcap(classic), Some(first)) =
            (&self.described, &mut self.body, interfaces.iter().flatten().next())
        {
            classic.link_if_empty = first.link;
        }
        self.described = Some(Arc::clone(interfaces));
        for (number, interface) in interfaces.iter().enumerate() {
            if self.interfaces.len() == number {
                self.interfaces.push(None);
            }
            if interface.is_some() {
                self.interfaces[number].clone_from(interface);
            }
        }
    }

    /// Refuses captures with several link types, if the output allows one, before any packet is written. Only files are checked that
    /// declare several link types before their first packets; these are read to their end, or to the second link type.
    ///
    /// # Errors
    /// [`Fault::MixedLinks`]. Faults of the input are reported when it is read itself.
    pub fn refuse_mixed_links<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
        let mut first = None;
        if matches!(self.body, Body::Pcap(_)) {
            inputs.into_iter().try_for_each(|input| self.refuse_other_links(input, &mut first))?;
        }
        Ok(())
    }

    /// Refuses packets with another link type than `first`, which the first packet sets.
    fn refuse_other_links(&self, input: &Path, first: &mut Option<LinkType>) -> Result<(), Error> {
        let is_file = !is_standard(input) && input.metadata().is_ok_and(|metadata| metadata.is_file());
        // A pipe can't be read twice.
        if !is_file {
            return Ok(());
        }
        let Ok(mut reader) = Reader::open(input) else { return Ok(()) };
        let (mut batch, mut refused) = (Batch::default(), |link: LinkType| {
            let first = *first.get_or_insert(link);
            if link == first { Ok(()) } else { Err(self.error(Fault::MixedLinks(first, link))) }
        });
        loop {
            match reader.read(&mut batch) {
                Ok(Received::End) | Err(_) => return Ok(()),
                Ok(Received::Packets | Received::Idle) => {}
            }
            let mut links = reader.interfaces().iter().map(|interface| interface.link);
            if let (Some(link), false) = (links.next(), batch.is_empty())
                && links.all(|other| other == link)
            {
                return refused(link);
            }
            batch.packets().iter().try_for_each(|packet| refused(packet.link))?;
        }
    }

    /// Announces that packets grow by this many bytes, so that snap lengths grow, too.
    #[must_use]
    pub fn growing(mut self, bytes: u32) -> Self {
        self.growth = bytes;
        self
    }

    /// Declares the interface that packets refer to by this number, if it differs from the input.
    pub fn describe_as(&mut self, number: u16, interface: Interface) {
        let index = usize::from(number);
        if self.interfaces.len() <= index {
            self.interfaces.resize(index + 1, None);
        }
        self.interfaces[index] = Some(interface);
    }

    /// True if an interface with this number was declared.
    #[inline]
    pub(super) fn knows(&self, number: u16) -> bool {
        self.interfaces.get(usize::from(number)).is_some_and(Option::is_some)
    }

    /// Writes a packet with these bytes. Of its descriptor, time, wire length, interface and link type are used.
    ///
    /// # Errors
    /// The packet can't be written. The packets before it stay valid if the packet is at fault ([`Fault::MixedLinks`],
    /// [`Fault::LateTime`]); otherwise the file is given up.
    #[inline]
    pub fn write(&mut self, packet: &Packet, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(packet, bytes, &[])
    }

    /// As [`write`](Self::write), with a comment, if the format has comments.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_comment(&mut self, packet: &Packet, bytes: &[u8], comment: &str) -> Result<(), Error> {
        let mut options = Vec::new();
        put_option(&mut options, OPTION_COMMENT, comment.as_bytes());
        self.write_with(packet, bytes, &options)
    }

    /// As [`write`](Self::write), with these options, if the format has options.
    #[inline]
    pub(super) fn write_with(&mut self, packet: &Packet, bytes: &[u8], options: &[u8]) -> Result<(), Error> {
        match &self.body {
            Body::Pcap(classic) => {
                if classic.link != Some(packet.link) {
                    self.begin(packet.link)?;
                }
                self.classic(packet, bytes)?;
            }
            Body::PcapNg(section) => {
                let id = match section.id(packet) {
                    Some(id) => id,
                    None => self.interface(packet)?,
                };
                self.enhanced(packet, id, bytes, options)?;
            }
        }
        self.packets += 1;
        Ok(())
    }

    /// Completes the file and gives it its name. A second call does nothing.
    ///
    /// # Errors
    /// The file can't be written; then it does not exist.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.sink.is_none() {
            return Ok(());
        }
        if let Body::Pcap(Classic { link: None, link_if_empty, .. }) = self.body {
            self.begin(link_if_empty)?;
        }
        self.begin_section()?;
        if matches!(&self.body, Body::PcapNg(section) if section.described > 0) {
            self.describe_rest()?;
        }
        self.flush()?;
        match self.sink.take().map_or(Ok(()), Sink::finish) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.error(Fault::from_write(error))),
        }
    }

    /// Sets the options of the section, unless its header was written.
    pub(super) fn section(&mut self, options: Vec<u8>) {
        if let Body::PcapNg(section) = &mut self.body {
            section.options = options;
        }
    }

    /// Writes another block, if the format has blocks.
    pub(super) fn block(&mut self, kind: u32, body: &[u8]) -> Result<(), Error> {
        if !matches!(self.body, Body::PcapNg(_)) {
            return Ok(());
        }
        self.begin_section()?;
        let padding = body.len().next_multiple_of(4) - body.len();
        let len = (12 + body.len() + padding) as u32;
        self.put(&words::<2, 8>([kind, len]), body, padding)?;
        self.put(&len.to_le_bytes(), &[], 0)
    }

    /// Writes statistics of one of the input's interfaces, their times in nanoseconds.
    pub(super) fn statistics(&mut self, number: u16, time: u64, options: Vec<(u16, Vec<u8>)>) -> Result<(), Error> {
        let described = self.interfaces.get(usize::from(number)).and_then(Option::as_ref);
        let (Body::PcapNg(_), Some(link)) = (&self.body, described.map(|interface| interface.link)) else {
            return Ok(());
        };
        self.describe_rest()?;
        let id = self.describe_one(number, link)?;
        let Body::PcapNg(section) = &self.body else { return Ok(()) };
        let shift = section.shifts[id as usize];
        let halves = |time: u64| words::<2, 8>([(shifted(time, shift) >> 32) as u32, shifted(time, shift) as u32]);
        let mut written = Vec::new();
        for (code, value) in options {
            match (code, value.first_chunk::<8>()) {
                (START_TIME | END_TIME, Some(time)) => {
                    let time = u64::from_le_bytes(*time).rotate_left(32);
                    put_option(&mut written, code, &halves(time));
                }
                _ => put_option(&mut written, code, &value),
            }
        }
        let mut body = id.to_le_bytes().to_vec();
        body.extend_from_slice(&halves(time));
        put_all(&mut body, &written);
        self.block(INTERFACE_STATISTICS, &body)
    }

    /// Writes a pcapng's header, if it is not written yet.
    #[cold]
    fn begin_section(&mut self) -> Result<(), Error> {
        let Body::PcapNg(section) = &mut self.body else { return Ok(()) };
        if mem::replace(&mut section.begun, true) {
            return Ok(());
        }
        let header = section_header(&section.options);
        self.put(&header, &[], 0)
    }

    /// Writes a pcap's header, or refuses a second link type.
    #[cold]
    fn begin(&mut self, link: LinkType) -> Result<(), Error> {
        let Body::Pcap(classic) = &mut self.body else { return Ok(()) };
        if let Some(first) = classic.link {
            return Err(self.error(Fault::MixedLinks(first, link)));
        }
        classic.link = Some(link);
        let magic = if classic.resolution == Resolution::MICROS { MAGIC_MICROS } else { MAGIC_NANOS };
        let version = 2 | 4 << 16;
        let snaplen = match self.interfaces.first().and_then(Option::as_ref) {
            // A reader must be able to restore the input's value.
            Some(input) if self.growth > 0 && input.snaplen > 0 => input.snaplen,
            Some(_) | None => SNAPLEN,
        };
        let snaplen = snaplen.saturating_add(self.growth);
        let mut described = self.interfaces.iter().flatten().filter(|interface| interface.link == link);
        let word = u32::from(link.number()) | described.next().map_or(0, fcs_bits);
        let header = words::<6, 24>([magic, version, 0, 0, snaplen, word]);
        self.put(&header, &[], 0)
    }

    #[inline]
    fn classic(&mut self, packet: &Packet, bytes: &[u8]) -> Result<(), Error> {
        let Body::Pcap(classic) = &self.body else { return Ok(()) };
        let Some(header) = classic.header(packet, bytes.len()) else { return Err(self.error(Fault::LateTime)) };
        self.put(&header, bytes, 0)
    }

    /// The header of a packet's record. `None` if a record has more than header and packet, so that
    /// [`write_records`](Self::write_records) can't be used.
    #[inline]
    pub(super) fn header(&self, packet: &Packet) -> Option<[u8; RECORD_HEADER_BYTES]> {
        match (&self.body, &self.sink) {
            (Body::Pcap(classic), Some(Sink::Plain(_))) if classic.link == Some(packet.link) => {
                classic.header(packet, packet.len as usize)
            }
            _ => None,
        }
    }

    /// Writes adjacent records of `packets` packets, each with the header of [`header`](Self::header).
    ///
    /// # Errors
    /// As [`write`](Self::write) if the file is given up.
    pub(super) fn write_records(&mut self, records: &[u8], packets: u64) -> Result<(), Error> {
        if records.len() < DIRECT_BYTES {
            self.put(&[], records, 0)?;
        } else {
            if !self.buffer.is_empty() {
                self.flush()?;
            }
            self.hand(records)?;
            self.bytes += records.len() as u64;
        }
        self.packets += packets;
        Ok(())
    }

    #[inline]
    fn enhanced(&mut self, packet: &Packet, id: u32, bytes: &[u8], options: &[u8]) -> Result<(), Error> {
        let Body::PcapNg(section) = &self.body else { return Ok(()) };
        let time = shifted(packet.time.0, section.shifts[id as usize]);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        let end = if options.is_empty() { 0 } else { END_OF_OPTIONS };
        let len = (28 + bytes.len() + padding + options.len() + end + 4) as u32;
        let (high, low) = ((time >> 32) as u32, time as u32);
        let header = words::<7, 28>([ENHANCED_PACKET, len, id, high, low, bytes.len() as u32, packet.wire_len]);
        self.put(&header, bytes, padding)?;
        if !options.is_empty() {
            self.put(&[], options, END_OF_OPTIONS)?;
        }
        self.put(&len.to_le_bytes(), &[], 0)
    }

    /// Declares the interface of a packet, if it is the first one of it. If the interface is as in the input, all interfaces of the input
    /// are declared first, in order. They then keep their numbers, and interfaces without packets are kept.
    #[cold]
    fn interface(&mut self, packet: &Packet) -> Result<u32, Error> {
        let input = self.interfaces.get(usize::from(packet.interface)).and_then(Option::as_ref);
        if input.is_some_and(|input| input.link == packet.link) {
            self.describe_rest()?;
        }
        self.describe_one(packet.interface, packet.link)
    }

    /// Declares the input's remaining interfaces as in the input.
    fn describe_rest(&mut self) -> Result<(), Error> {
        let Body::PcapNg(section) = &mut self.body else { return Ok(()) };
        let described = mem::replace(&mut section.described, self.interfaces.len());
        for number in described..self.interfaces.len() {
            let link = self.interfaces[number].as_ref().map(|interface| interface.link);
            if let (Some(link), Ok(number)) = (link, u16::try_from(number)) {
                self.describe_one(number, link)?;
            }
        }
        Ok(())
    }

    /// Declares an interface with this link type, if it is not declared yet; returns its number in the file.
    fn describe_one(&mut self, number: u16, link: LinkType) -> Result<u32, Error> {
        self.begin_section()?;
        let Body::PcapNg(section) = &mut self.body else { return Ok(0) };
        let index = usize::from(number);
        let latest = section.latest.get(index).copied().filter(|id| *id != usize::MAX);
        // An interface usually has one link type, so search for others only if it already has one.
        let known = latest.and_then(|_| section.written.iter().position(|written| *written == (number, link)));
        let id = known.unwrap_or(section.written.len());
        if section.latest.len() <= index {
            section.latest.resize(index + 1, usize::MAX);
        }
        section.latest[index] = id;
        if known.is_none() {
            section.written.push((number, link));
            let described = self.interfaces.get(index).and_then(Option::as_ref);
            section.shifts.push(described.map_or(0, |interface| offset_nanos(interface.time_offset_secs)));
            let block = interface_description(link, described, self.growth);
            self.put(&block, &[], 0)?;
        }
        Ok(id as u32)
    }

    /// Appends a header, a packet and zeros.
    #[inline]
    fn put(&mut self, header: &[u8], bytes: &[u8], zeros: usize) -> Result<(), Error> {
        let len = header.len() + bytes.len() + zeros;
        if self.buffer.len() + len > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(header);
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(&[0; 4][..zeros]);
        self.bytes += len as u64;
        Ok(())
    }

    /// Writes the buffered data. Compressed data stays, so that compressed blocks don't depend on packet timing.
    ///
    /// # Errors
    /// As [`write`](Self::write) if the file is given up.
    pub fn hand_over(&mut self) -> Result<(), Error> {
        match &self.sink {
            Some(Sink::Plain(_)) if !self.buffer.is_empty() => self.flush(),
            Some(_) | None => Ok(()),
        }
    }

    #[cold]
    fn flush(&mut self) -> Result<(), Error> {
        let mut buffer = mem::take(&mut self.buffer);
        let result = self.hand(&buffer);
        buffer.clear();
        // Shrink the buffer after a packet that was longer than it.
        buffer.shrink_to(BUFFER_BYTES);
        self.buffer = buffer;
        result
    }

    /// Writes these bytes to the sink; after an error the file is given up.
    fn hand(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let result = match &mut self.sink {
            Some(sink) => sink.write_all(bytes),
            None => Err(io::Error::other("the output is closed")),
        };
        result.map_err(|error| {
            self.sink = None;
            self.error(Fault::from_write(error))
        })
    }

    #[cold]
    fn error(&self, fault: Fault) -> Error {
        Error { path: self.path.clone(), offset: self.bytes, packets: self.packets, fault }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl Body {
    fn new(container: Container, input: Option<&Format>) -> Self {
        match container {
            Container::PcapNg => Self::PcapNg(Section::default()),
            Container::Pcap => {
                let interface = input.and_then(|input| input.interfaces.first());
                let micros = input.is_some_and(|input| {
                    input.container == Container::Pcap && input.interfaces[0].resolution == Resolution::MICROS
                });
                Self::Pcap(Classic {
                    link: None,
                    link_if_empty: interface.map_or(LinkType::Ethernet, |interface| interface.link),
                    resolution: if micros { Resolution::MICROS } else { Resolution::NANOS },
                })
            }
        }
    }
}

impl Classic {
    /// The header of the record of a packet of `len` bytes; `None` if its time is later than a record can hold.
    #[inline]
    fn header(&self, packet: &Packet, len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
        let nanos = (packet.time.0 % 1_000_000_000) as u32;
        let fraction = if self.resolution == Resolution::MICROS { nanos / 1_000 } else { nanos };
        let secs = u32::try_from(packet.time.0 / 1_000_000_000).ok()?;
        Some(words::<4, RECORD_HEADER_BYTES>([secs, fraction, len as u32, packet.wire_len]))
    }
}

impl Section {
    /// The number of the packet's interface, if it is the latest one written for it.
    #[inline]
    fn id(&self, packet: &Packet) -> Option<u32> {
        let id = *self.latest.get(usize::from(packet.interface))?;
        let (_, link) = self.written.get(id)?;
        (*link == packet.link).then_some(id as u32)
    }
}

impl Container {
    /// The container for the extension of a file name.
    #[must_use]
    pub fn named(path: &Path) -> Option<Self> {
        by_name(path).0
    }
}

/// Format and compression for the extension of a file name.
fn by_name(path: &Path) -> (Option<Container>, Option<Compression>) {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().to_ascii_lowercase());
    let (stem, compression) = match name.rsplit_once('.') {
        Some((stem, "gz")) => (stem, Some(Compression::Gzip)),
        Some((stem, "zst")) => (stem, Some(Compression::Zstd)),
        _ => (name.as_str(), None),
    };
    let container = match stem.rsplit_once('.') {
        Some((_, "pcapng" | "ntar")) => Some(Container::PcapNg),
        Some((_, "pcap" | "cap" | "dmp")) => Some(Container::Pcap),
        _ => None,
    };
    (container, compression)
}

fn section_header(options: &[u8]) -> Vec<u8> {
    let unknown_length = u32::MAX;
    let mut behind = Vec::new();
    put_all(&mut behind, options);
    let len = (28 + behind.len()) as u32;
    let mut block = words::<6, 24>([SECTION_HEADER, len, BYTE_ORDER_MAGIC, 1, unknown_length, unknown_length]).to_vec();
    block.extend_from_slice(&behind);
    block.extend_from_slice(&len.to_le_bytes());
    block
}

/// Nanoseconds that a negative offset subtracts. Only negative offsets are written, because stamps before the epoch need them; others are
/// included in the stamps.
fn offset_nanos(offset_secs: i64) -> u64 {
    const SECS_MAX: i64 = 1 << 33;
    if (-SECS_MAX..0).contains(&offset_secs) { offset_secs.unsigned_abs() * 1_000_000_000 } else { 0 }
}

/// The stamp for this time and offset, saturating.
#[inline]
fn shifted(time: u64, shift: u64) -> u64 {
    if time == u64::MAX { time } else { time.wrapping_add(shift) }
}

/// The length of frame check sequences, as classic pcap stores it next to the link type.
fn fcs_bits(interface: &Interface) -> u32 {
    let mut facts = interface.facts.iter().filter(|(code, _)| *code == OPTION_FCS_LENGTH);
    let len = facts.next().and_then(|(_, value)| value.first().copied());
    len.filter(|len| *len < 32).map_or(0, |len| FCS_IS_TOLD | u32::from(len / 2) << 28)
}

fn interface_description(link: LinkType, described: Option<&Interface>, growth: u32) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(name) = described.and_then(|interface| interface.name.as_deref()) {
        put_option(&mut options, OPTION_NAME, name.as_bytes());
    }
    for (code, value) in described.iter().flat_map(|interface| &interface.facts) {
        put_option(&mut options, *code, value);
    }
    put_option(&mut options, OPTION_RESOLUTION, &[9]);
    if let Some(interface) = described.filter(|interface| offset_nanos(interface.time_offset_secs) > 0) {
        put_option(&mut options, OPTION_TIME_OFFSET, &interface.time_offset_secs.to_le_bytes());
    }
    put_option(&mut options, 0, &[]);
    let len = (20 + options.len()) as u32;
    // No limit stays no limit.
    let grown = |snaplen: u32| if snaplen == 0 { 0 } else { snaplen.saturating_add(growth) };
    let snaplen = described.map_or(0, |interface| grown(interface.snaplen));
    let mut block = words::<4, 16>([INTERFACE_DESCRIPTION, len, u32::from(link.number()), snaplen]).to_vec();
    block.extend_from_slice(&options);
    block.extend_from_slice(&len.to_le_bytes());
    block
}

/// Words in little-endian order.
#[inline]
fn words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == 4 * WORDS) };
    let mut bytes = [0; BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides() {
        let of = |name: &str| by_name(Path::new(name));
        assert_eq!(of("a.pcap"), (Some(Container::Pcap), None));
        assert_eq!(of("b/A.PCAPNG.ZST"), (Some(Container::PcapNg), Some(Compression::Zstd)));
        assert_eq!(of("a.cap.gz"), (Some(Container::Pcap), Some(Compression::Gzip)));
        assert_eq!(of("-"), (None, None));
        assert_eq!(of("pcapng"), (None, None));
        assert_eq!(of("a.trace.gz"), (None, Some(Compression::Gzip)));
    }
}
