//! What the tests of this crate share: the shared captures, read without any code of the house, and checksums computed
//! anew from the definition.
#![allow(dead_code, unreachable_pub)]

pub mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_packet::{Embedded, FiveTuple, Headers, LinkType, Network, Transport, protocol};

/// The folder of the shared captures, if it is there.
pub fn traces() -> Option<PathBuf> {
    let path = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from).unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("inside a workspace").join("shared/traces")
    });
    path.is_dir().then_some(path)
}

pub fn is_deep() -> bool {
    std::env::var_os("MILLRACE_DEEP").is_some()
}

/// One captured frame.
#[derive(Clone, Debug)]
pub struct Frame {
    pub file: String,
    /// From 1, as capture tools count.
    pub number: usize,
    pub link: u16,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn parse(&self) -> Result<Headers, millrace_packet::Malformed> {
        millrace_packet::parse(LinkType::from_number(self.link), &self.bytes, self.wire_len, 0)
    }
}

/// All captures in `folders`, up to `frames_max` frames of each.
pub fn frames(folders: &[&str], frames_max: usize) -> Vec<Frame> {
    let mut all = Vec::new();
    let Some(root) = traces() else { return all };
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.to_string_lossy().contains(".pcap")) {
            let name = format!("{folder}/{}", file.file_name().expect("a file").to_string_lossy());
            read(&contents(file), &name, frames_max, &mut all);
        }
    }
    all
}

fn contents(file: &Path) -> Vec<u8> {
    if file.extension().is_some_and(|extension| extension == "zst") {
        return Command::new("zstd")
            .args(["-dc", "--long=27"])
            .arg(file)
            .output()
            .map_or_else(|_| Vec::new(), |out| out.stdout);
    }
    std::fs::read(file).expect("a readable capture")
}

/// Reads the two capture formats as far as whole records go.
fn read(bytes: &[u8], file: &str, frames_max: usize, out: &mut Vec<Frame>) {
    let Some(magic) = bytes.first_chunk::<4>() else { return };
    match u32::from_le_bytes(*magic) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => read_pcap(bytes, true, file, frames_max, out),
        0xd4c3_b2a1 | 0x4d3c_b2a1 => read_pcap(bytes, false, file, frames_max, out),
        0x0a0d_0d0a => read_pcapng(bytes, file, frames_max, out),
        _ => {}
    }
}

fn word(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
}

fn read_pcap(bytes: &[u8], little: bool, file: &str, frames_max: usize, out: &mut Vec<Frame>) {
    let Some(link) = word(bytes, 20, little) else { return };
    let mut at = 24;
    for number in 1..=frames_max {
        let (Some(len), Some(wire_len)) = (word(bytes, at + 8, little), word(bytes, at + 12, little)) else { return };
        let Some(frame) = bytes.get(at + 16..).and_then(|rest| rest.get(..len as usize)) else { return };
        out.push(Frame { file: file.into(), number, link: link as u16, wire_len, bytes: frame.into() });
        at += 16 + len as usize;
    }
}

fn read_pcapng(bytes: &[u8], file: &str, frames_max: usize, out: &mut Vec<Frame>) {
    let (mut at, mut number, mut little) = (0, 0, true);
    let mut links = Vec::new();
    while number < frames_max {
        if bytes.get(at..at + 4) == Some(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            little = word(bytes, at + 8, true) == Some(0x1a2b_3c4d);
            links.clear();
        }
        let (Some(kind), Some(len)) = (word(bytes, at, little), word(bytes, at + 4, little)) else { return };
        let Some(block) = bytes.get(at..).and_then(|rest| rest.get(..len as usize)).filter(|_| len >= 12) else {
            return;
        };
        let field = |at| word(block, at, little);
        let packet = match kind {
            1 => {
                // The link type is the first half of its word.
                let link = field(8).unwrap_or(0);
                links.push(if little { link as u16 } else { (link >> 16) as u16 });
                None
            }
            6 => Some((field(8), field(20), field(24), 28)),
            3 => Some((Some(0), Some(len - 16), field(8), 12)),
            _ => None,
        };
        if let Some((Some(interface), Some(captured), Some(wire_len), start)) = packet
            && let Some(&link) = links.get(interface as usize)
            && let Some(frame) = block.get(start..).and_then(|rest| rest.get(..captured.min(wire_len) as usize))
        {
            number += 1;
            out.push(Frame { file: file.into(), number, link, wire_len, bytes: frame.into() });
        }
        at += len as usize;
    }
}

/// Writes a capture of the frames, which are all of one link type.
pub fn write_pcap<'a>(path: &Path, link: u16, frames: impl Iterator<Item = &'a Frame>) {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, u32::from(link)] {
        out.extend(word.to_le_bytes());
    }
    for (index, frame) in frames.enumerate() {
        for word in [index as u32, 0, frame.bytes.len() as u32, frame.wire_len.max(frame.bytes.len() as u32)] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&frame.bytes);
    }
    std::fs::write(path, out).expect("a writable folder");
}

/// The Internet checksum by its definition: 0 over data that includes its right checksum.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !(sum as u16)
}

/// CRC32c bit by bit.
pub fn crc32c(message: &[u8]) -> u32 {
    !message.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

/// What a look at a packet's checksums says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub ip: Option<bool>,
    pub transport: Option<bool>,
    pub quoted_ip: Option<bool>,
    pub quoted_transport: Option<bool>,
}

impl Verdicts {
    /// Nothing that was right has become wrong, and nothing wrong right.
    pub fn all_right(self) -> bool {
        [self.ip, self.transport, self.quoted_ip, self.quoted_transport].iter().all(|verdict| *verdict != Some(false))
    }
}

/// Looks at every checksum in a packet that was captured whole.
pub fn checksums(bytes: &[u8], headers: &Headers) -> Verdicts {
    let end = headers.payload_offset as usize + headers.payload_len as usize;
    let mut verdicts = Verdicts::default();
    if end > bytes.len() {
        return verdicts;
    }
    let bytes = &bytes[..end];
    let (at, transport_at) = (usize::from(headers.network_offset), usize::from(headers.transport_offset));
    if matches!(headers.network, Network::V4(_)) {
        verdicts.ip = Some(internet_checksum(&[&bytes[at..transport_at]]) == 0);
    }
    // A routing header or a home address option (RFC 6275) puts other addresses into the sum than the header's.
    let is_routed =
        matches!(headers.network, Network::V6(ip) if ip.header_len > 40 && matches!(bytes[at + 6], 0 | 43 | 60));
    if headers.fragment == millrace_packet::Fragment::Whole && headers.transport != Transport::None && !is_routed {
        verdicts.transport = transport(bytes, at, transport_at, headers.protocol);
    }
    if let Transport::Icmp(icmp) = headers.transport
        && let Some(quoted) = icmp.embedded
    {
        quote(bytes, &quoted, &mut verdicts);
    }
    verdicts
}

/// True if the IP payload goes on behind UDP's own end (RFC 9868).
pub fn has_surplus(headers: &Headers) -> bool {
    let end = headers.payload_offset as usize + headers.payload_len as usize;
    match headers.network {
        Network::V4(ip) => end < usize::from(headers.network_offset) + usize::from(ip.total_len),
        Network::V6(ip) => end < usize::from(headers.network_offset) + 40 + usize::from(ip.payload_len),
        Network::None | Network::Unreadable | Network::Arp => false,
    }
}

fn quote(bytes: &[u8], quoted: &Embedded, verdicts: &mut Verdicts) {
    let (at, transport_at) = (usize::from(quoted.network_offset), usize::from(quoted.transport_offset));
    let is_v4 = matches!(quoted.tuple, FiveTuple::V4(_));
    let len = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let end = if is_v4 { at + len(at + 2) } else { at + 40 + len(at + 4) };
    if is_v4 {
        verdicts.quoted_ip = Some(internet_checksum(&[&bytes[at..transport_at]]) == 0);
    }
    let is_first_fragment = is_v4 && bytes[at + 6] & 0x20 != 0;
    if transport_at + 8 <= end && end <= bytes.len() && !is_first_fragment {
        verdicts.quoted_transport = transport(&bytes[..end], at, transport_at, quoted.tuple.protocol());
    }
}

/// Whether the checksum is right; `None` where there is none.
fn transport(bytes: &[u8], at: usize, transport_at: usize, kind: u8) -> Option<bool> {
    let segment = &bytes[transport_at..];
    let addresses = if bytes[at] >> 4 == 4 { &bytes[at + 12..at + 20] } else { &bytes[at + 8..at + 40] };
    let len = (segment.len() as u32).to_be_bytes();
    let pseudo = [addresses, &len, &[0, kind]];
    let with_pseudo = || internet_checksum(&[pseudo[0], pseudo[1], pseudo[2], segment]) == 0;
    match kind {
        protocol::UDP if segment[6..8] == [0, 0] => None,
        protocol::UDP if usize::from(u16::from_be_bytes([segment[4], segment[5]])) != segment.len() => None,
        protocol::TCP if segment.len() < 20 => None,
        protocol::TCP | protocol::UDP | protocol::ICMPV6 => Some(with_pseudo()),
        protocol::ICMP => Some(internet_checksum(&[segment]) == 0),
        protocol::SCTP if segment.len() >= 12 => {
            let mut blank = segment.to_vec();
            blank[8..12].fill(0);
            Some(crc32c(&blank).to_le_bytes() == segment[8..12])
        }
        _ => None,
    }
}
