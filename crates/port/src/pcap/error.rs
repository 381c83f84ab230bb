//! Errors in captures, with their position.

use std::fmt;
use std::io;
use std::path::PathBuf;

use packet::LinkType;

use super::format::Compression;

/// An error while reading or writing a capture: file, position, and what to do.
#[derive(Debug)]
pub struct Error {
    /// The file; `-` for standard input or output.
    pub path: PathBuf,
    /// Start of the faulty record, in bytes from the start of the (decompressed) capture.
    pub offset: u64,
    /// Number of whole packets before it.
    pub packets: u64,
    /// The fault.
    pub fault: Fault,
}

/// Kinds of faults in a capture.
#[derive(Debug)]
pub enum Fault {
    /// The file can't be opened.
    Open(io::Error),
    /// The file is a directory.
    Directory,
    /// The file can't be read further.
    Read(io::Error),
    /// The file is neither pcap nor pcapng; these are its first bytes.
    NotACapture(Vec<u8>),
    /// A variant of pcap that is not supported.
    Variant(&'static str),
    /// A version of pcap or pcapng that is not supported.
    Version(u16, u16),
    /// The compressed stream is damaged or cut off.
    Compressed(Compression, io::Error),
    /// The capture ends in its header, after this many bytes.
    Header(u64),
    /// The capture ends in a record, after this many bytes of it.
    Truncated(u64),
    /// A record has an impossible length, in bytes.
    RecordLength(u64),
    /// A pcapng block is inconsistent.
    Block(&'static str),
    /// A packet has an interface that the section does not declare.
    UnknownInterface(u32),
    /// There are more than 65,536 interfaces.
    TooManyInterfaces,
    /// The output can't be created.
    Create(io::Error),
    /// The file can't be written further.
    Write(io::Error),
    /// The disk that the output lies on is full.
    DiskFull,
    /// The reader of the output has closed it.
    BrokenPipe,
    /// A classic pcap allows one link type, but the packets have two.
    MixedLinks(LinkType, LinkType),
    /// A classic pcap supports times from 1970 to 2106; the packet's time is outside.
    LateTime,
}

impl Error {
    /// True if the capture just ends too early. Packets before that are good.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        match &self.fault {
            Fault::Truncated(_) => true,
            Fault::Compressed(_, source) => source.kind() == io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }

    /// True if the reader of the output has closed it. Programs in a pipe end quietly then.
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
    /// Classifies a failed write.
    #[must_use]
    pub fn from_write(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Write(source),
        }
    }

    /// True for faults while writing.
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

    /// True if the fault has a position in the capture.
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
            Self::Directory => "give a file in it",
            Self::Read(_) => "the packets before it were read; check the disk",
            Self::NotACapture(_) => "give a pcap or pcapng file, plain or as .gz or .zst",
            Self::Variant(_) | Self::Version(..) => "convert it with `editcap -F pcapng`",
            Self::Compressed(..) => "the packets before it were read; compress or copy the file again",
            Self::Header(_) => "it has no packet; copy the file again",
            Self::Truncated(_) => {
                "the packets before it were read; copy the file again or cut the rest off with `editcap`"
            }
            Self::RecordLength(_) | Self::Block(_) | Self::UnknownInterface(_) => {
                "the packets before it were read; the file is damaged from here on"
            }
            Self::TooManyInterfaces => "the packets before it were read; split the file with `editcap`",
            Self::Create(_) => "check that the folder exists and can be written",
            Self::Write(_) => "the output is incomplete",
            Self::DiskFull => "free some space or write elsewhere; the output is incomplete",
            Self::BrokenPipe => "the output is incomplete",
            Self::MixedLinks(..) => "write to a name that ends in .pcapng, which allows several",
            Self::LateTime => "write to a name that ends in .pcapng, which allows other times",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(source) => write!(f, "can't be opened: {source}"),
            Self::Directory => f.write_str("is a directory"),
            Self::Read(source) => write!(f, "can't be read further: {source}"),
            Self::NotACapture(first) if first.is_empty() => f.write_str("is empty, not a capture"),
            Self::NotACapture(first) => {
                f.write_str("is not a capture: it begins with")?;
                first.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
                guess(first).map_or(Ok(()), |guess| write!(f, " ({guess})"))
            }
            Self::Variant(name) => write!(f, "is {name}, which is not supported"),
            Self::Version(major, minor) => write!(f, "has version {major}.{minor}, which is not supported"),
            Self::Compressed(compression, source) => write!(f, "the {compression} stream is damaged: {source}"),
            Self::Header(have) => write!(f, "ends {have} bytes into its header"),
            Self::Truncated(have) => write!(f, "ends {have} bytes into a record"),
            Self::RecordLength(len) => write!(f, "a record has a length of {len} bytes"),
            Self::Block(what) => write!(f, "a block is inconsistent: {what}"),
            Self::UnknownInterface(id) => write!(f, "a packet has interface {id}, which is not declared"),
            Self::TooManyInterfaces => f.write_str("has more than 65536 interfaces"),
            Self::Create(source) => write!(f, "can't be created: {source}"),
            Self::Write(source) => write!(f, "can't be written further: {source}"),
            Self::DiskFull => f.write_str("the disk is full"),
            Self::BrokenPipe => f.write_str("the reader of the output has closed it"),
            Self::MixedLinks(first, other) => {
                write!(f, "pcap holds one link type; the input has packets of {first} and of {other}")
            }
            Self::LateTime => f.write_str("pcap supports times from 1970 to 2106; the packet's time is outside"),
        }
    }
}

/// The likely format of a file with these first bytes.
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
