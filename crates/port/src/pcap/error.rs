//! What can be wrong with a capture, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use packet::LinkType;

use super::format::Compression;

/// What is wrong with a capture that is read or written: which file, where in it, and what to do.
#[derive(Debug)]
pub struct Error {
    /// The file; `-` for standard input or output.
    pub path: PathBuf,
    /// Where the record begins that is at fault, in bytes from the start of the (decompressed) capture.
    pub offset: u64,
    /// How many whole packets lie before it.
    pub packets: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a capture.
#[derive(Debug)]
pub enum Fault {
    /// The file can't be opened.
    Open(io::Error),
    /// The file is a directory.
    Directory,
    /// The system can't read on.
    Read(io::Error),
    /// The file is neither pcap nor pcapng; these are its first bytes.
    NotACapture(Vec<u8>),
    /// A relative of pcap that is not read.
    Variant(&'static str),
    /// A version of pcap or pcapng that is not read.
    Version(u16, u16),
    /// The compressed stream is damaged or cut off.
    Compressed(Compression, io::Error),
    /// The capture ends in its header, of which this many bytes are there.
    Header(u64),
    /// The capture ends in the middle of a record, of which this many bytes are there.
    Truncated(u64),
    /// A record claims to have this many bytes.
    RecordLength(u64),
    /// A block of pcapng contradicts itself.
    Block(&'static str),
    /// A packet names an interface that the section has not described.
    UnknownInterface(u32),
    /// There are more than 65,536 interfaces.
    TooManyInterfaces,
    /// The output can't be created.
    Create(io::Error),
    /// The system can't write on.
    Write(io::Error),
    /// The disk that the output lies on is full.
    DiskFull,
    /// Whoever reads the output has gone.
    BrokenPipe,
    /// A classic pcap holds one link type; here come two.
    MixedLinks(LinkType, LinkType),
    /// A classic pcap tells time from 1970 until the year 2106; this packet's lies outside.
    LateTime,
}

impl Error {
    /// Whether the capture simply ends too early: what was read before is good.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        match &self.fault {
            Fault::Truncated(_) => true,
            Fault::Compressed(_, source) => source.kind() == io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }

    /// Whether the reader of the output has gone, which programs in a pipe take for a quiet end.
    #[must_use]
    pub const fn is_broken_pipe(&self) -> bool {
        matches!(self.fault, Fault::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_os_str() == "-", self.fault.is_of_output()) {
            (true, false) => f.write_str("standard input")?,
            (true, true) => f.write_str("standard output")?,
            (false, _) => write!(f, "{}", self.path.display())?,
        }
        write!(f, ": {}", self.fault)?;
        if self.fault.has_place() {
            write!(f, " (at byte {}, packet {})", self.offset, self.packets + 1)?;
        }
        let advice = self.fault.advice();
        let of_packets = advice.strip_prefix(READ_BEFORE).filter(|_| self.packets == 0);
        write!(f, "; {}", of_packets.unwrap_or(advice))
    }
}

/// Said where there are any.
const READ_BEFORE: &str = "the packets before it were read; ";

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Open(source)
            | Fault::Read(source)
            | Fault::Create(source)
            | Fault::Write(source)
            | Fault::Compressed(_, source) => Some(source),
            _ => None,
        }
    }
}

impl Fault {
    /// The fault that a failed write comes from.
    #[must_use]
    pub fn from_write(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Write(source),
        }
    }

    /// Whether it is a fault of what is written.
    const fn is_of_output(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Write(_)
            | Self::DiskFull
            | Self::BrokenPipe
            | Self::MixedLinks(..)
            | Self::LateTime => true,
            Self::Open(_)
            | Self::Directory
            | Self::Read(_)
            | Self::NotACapture(_)
            | Self::Variant(_)
            | Self::Version(..)
            | Self::Compressed(..)
            | Self::Header(_)
            | Self::Truncated(_)
            | Self::RecordLength(_)
            | Self::Block(_)
            | Self::UnknownInterface(_)
            | Self::TooManyInterfaces => false,
        }
    }

    /// Whether the fault lies at a place inside the capture.
    const fn has_place(&self) -> bool {
        match self {
            Self::Read(_)
            | Self::Compressed(..)
            | Self::Truncated(_)
            | Self::RecordLength(_)
            | Self::Block(_)
            | Self::UnknownInterface(_)
            | Self::TooManyInterfaces
            | Self::MixedLinks(..)
            | Self::LateTime => true,
            Self::Open(_)
            | Self::Directory
            | Self::NotACapture(_)
            | Self::Variant(_)
            | Self::Version(..)
            | Self::Header(_)
            | Self::Create(_)
            | Self::Write(_)
            | Self::DiskFull
            | Self::BrokenPipe => false,
        }
    }

    const fn advice(&self) -> &'static str {
        match self {
            Self::Open(_) => "check the path and its permissions",
            Self::Directory => "name a file in it",
            Self::Read(_) => "the packets before it were read; check the disk",
            Self::NotACapture(_) => "give a pcap or pcapng file, plain or as .gz or .zst",
            Self::Variant(_) | Self::Version(..) => "convert it with `editcap -F pcapng`",
            Self::Compressed(..) => "the packets before it were read; compress or copy the file again",
            Self::Header(_) => "there is no packet in it; copy the file again",
            Self::Truncated(_) => {
                "the packets before it were read; copy the file again or cut the rest off with `editcap`"
            }
            Self::RecordLength(_) | Self::Block(_) | Self::UnknownInterface(_) => {
                "the packets before it were read; the file is damaged from here on"
            }
            Self::TooManyInterfaces => "the packets before it were read; split the file with `editcap`",
            Self::Create(_) => "check that the folder exists and can be written",
            Self::Write(_) => "the output is incomplete",
            Self::DiskFull => "make room or write elsewhere; the output is incomplete",
            Self::BrokenPipe => "the output is incomplete",
            Self::MixedLinks(..) => "write to a name that ends in .pcapng, which holds several",
            Self::LateTime => "write to a name that ends in .pcapng, which holds others",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(source) => write!(f, "can't be opened: {source}"),
            Self::Directory => f.write_str("is a directory"),
            Self::Read(source) => write!(f, "can't be read on: {source}"),
            Self::NotACapture(first) if first.is_empty() => f.write_str("is empty, not a capture"),
            Self::NotACapture(first) => {
                f.write_str("is not a capture: it begins with")?;
                first.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
                guess(first).map_or(Ok(()), |guess| write!(f, " ({guess})"))
            }
            Self::Variant(name) => write!(f, "is {name}, which is not read"),
            Self::Version(major, minor) => write!(f, "is of version {major}.{minor}, which is not read"),
            Self::Compressed(compression, source) => write!(f, "the {compression} stream is damaged: {source}"),
            Self::Header(have) => write!(f, "ends {have} bytes into its header"),
            Self::Truncated(have) => write!(f, "ends {have} bytes into a record"),
            Self::RecordLength(len) => write!(f, "a record claims to be {len} bytes long"),
            Self::Block(what) => write!(f, "a block contradicts itself: {what}"),
            Self::UnknownInterface(id) => write!(f, "a packet names interface {id}, which was not described"),
            Self::TooManyInterfaces => f.write_str("has more than 65536 interfaces"),
            Self::Create(source) => write!(f, "can't be created: {source}"),
            Self::Write(source) => write!(f, "can't be written on: {source}"),
            Self::DiskFull => f.write_str("the disk is full"),
            Self::BrokenPipe => f.write_str("nobody reads the output any more"),
            Self::MixedLinks(first, other) => {
                write!(f, "pcap holds one link type; the input has packets of {first} and of {other}")
            }
            Self::LateTime => f.write_str("pcap tells time from 1970 until 2106; the packet's lies outside"),
        }
    }
}

/// What a file that begins so most likely is.
fn guess(first: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"snoop\0", "a Solaris snoop capture; convert it with `editcap -F pcapng`"),
        (b"BZh", "bzip2; decompress it first"),
        (b"\xfd7zXZ", "xz; decompress it first"),
        (b"\x04\x22\x4d\x18", "lz4; decompress it first"),
        (b"PK\x03\x04", "a zip archive; unpack it first"),
        (b"\x7fELF", "a program"),
        (b"XCP\0", "a NetXRay capture; convert it with `editcap -F pcapng`"),
        (b"TRSNIFF data", "a Sniffer capture; convert it with `editcap -F pcapng`"),
        (b"\xed\xab\xee\xdb", "an RPM package"),
    ];
    let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let known = KNOWN.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, name)| *name);
    known.or_else(|| first.iter().all(text).then_some("text"))
}
