//! Calls, games, and files between peers.

use crate::bytes::{Bytes, Found, Told, ensure};
use crate::protocol::{BITTORRENT, H323, IAX2, RAKNET, RTCP, STUN};

/// RFC 8489 by its cookie; RFC 3489, which had none, by attributes that fill the datagram.
pub(super) fn stun(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, len) = (bytes.be16(0)?, usize::from(bytes.be16(2)?));
    if bytes.has(4, &[0x21, 0x12, 0xa4, 0x42]).is_ok() {
        ensure(kind & 0xc000 == 0 && len.is_multiple_of(4) && len + 20 <= bytes.datagram_len())?;
        return Ok(STUN.certain());
    }
    ensure(matches!(kind, 1 | 0x0101 | 0x0111 | 2 | 0x0102 | 0x0112) && len + 20 == bytes.datagram_len())?;
    // An identifier that is not of zeros, and attributes that are known.
    let id: [u8; 16] = bytes.array(4)?;
    ensure(id.iter().filter(|byte| **byte == 0).count() < 12)?;
    let mut at = 20;
    while at < bytes.datagram_len() {
        let kind = bytes.be16(at)?;
        ensure(matches!(kind, 1..=0x40 | 0x8000..=0x80ff))?;
        at += 4 + usize::from(bytes.be16(at + 2)?).next_multiple_of(4);
    }
    ensure(at == bytes.datagram_len())?;
    // A bare request has few bits that are fixed.
    ensure(len > 0 || id.iter().any(|byte| *byte != id[0]))?;
    Ok(if len > 0 { STUN.certain() } else { STUN.guess() })
}

/// RFC 3550, section 6: packets that fill the datagram, the first a report. Encrypted (RFC 3711), the first alone can be read.
pub(super) fn rtcp(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    let (first, kind, words) = (bytes.u8(0)?, bytes.u8(1)?, usize::from(bytes.be16(2)?));
    let reports = usize::from(first & 0x1f);
    let head = 4 * (words + 1);
    ensure(bytes.be32(4)? != 0)?;
    // Few reports fit in a datagram, and padding belongs to the last packet.
    let fits = match kind {
        200 => words == 6 + 6 * reports || (reports == 0 && words == 7),
        201 => words == 1 + 6 * reports,
        // Feedback (RFC 4585) stands alone where reduced size is agreed (RFC 5506): a picture is lost, a rate is wished.
        206 if reports == 1 => words == 2 && len == head,
        206 if reports == 15 => bytes.has(12, b"REMB").is_ok(),
        _ => false,
    };
    ensure(fits && head <= len && first & 0x20 == 0 && (reports <= 4 || kind == 206))?;
    let mut at = head;
    while at < len {
        let (Ok(first), Ok(kind), Ok(words)) = (bytes.u8(at), bytes.u8(at + 1), bytes.be16(at + 2)) else { break };
        if first & 0xc0 != 0x80 || !matches!(kind, 200..=213) {
            break;
        }
        at += 4 * (usize::from(words) + 1);
    }
    // What is encrypted ends with an index and a tag.
    ensure(at == len || (at == head && len - at >= 8 && kind != 206) || (at < len && len - at <= 14))?;
    Ok(RTCP.likely())
}

/// RFC 5456, section 8.1.1: a full frame of the protocol's own kind: numbers that start, a known message.
pub(super) fn iax2(bytes: &Bytes<'_>) -> Told<Found> {
    let (source, destination) = (bytes.be16(0)?, bytes.be16(2)?);
    ensure(source & 0x8000 != 0 && source & 0x7fff != 0)?;
    let [out, back, kind, message] = bytes.array(8)?;
    ensure(kind == 6 && (1..=40).contains(&message) && out <= 2 && back <= 2)?;
    ensure(destination & 0x7fff == 0 || message != 1)?;
    // Elements of information fill the rest.
    let mut at = 12;
    while at < bytes.datagram_len() {
        ensure((1..=56).contains(&bytes.u8(at)?))?;
        at += 2 + usize::from(bytes.u8(at + 1)?);
    }
    ensure(at == bytes.datagram_len() && at > 12)?;
    Ok(IAX2.certain())
}

/// H.225.0, registration, admission and status: near the beginning stands the protocol's identifier, 0.0.8.2250.0.
pub(super) fn ras(bytes: &Bytes<'_>) -> Told<Found> {
    let head = bytes.slice(0, 14)?;
    ensure(head.windows(6).any(|six| six == [0x06, 0x00, 0x08, 0x91, 0x4a, 0x00]))?;
    Ok(H323.certain())
}

/// The sixteen bytes that mark messages before a connection.
pub(super) fn raknet(bytes: &Bytes<'_>) -> Told<Found> {
    const MARK: [u8; 16] = [0, 0xff, 0xff, 0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfd, 0xfd, 0xfd, 0xfd, 0x12, 0x34, 0x56, 0x78];
    let at = match bytes.u8(0)? {
        // Pings have a time before it, pongs also an identity; requests and replies to connect have it at once.
        1 | 2 => 9,
        0x1c => 17,
        5 | 6 | 7 | 8 | 0x10 | 0x11 | 0x19 | 0x1a => 1,
        _ => 1,
    };
    either_at(bytes, at, &MARK)?;
    Ok(RAKNET.certain())
}

fn either_at(bytes: &Bytes<'_>, at: usize, mark: &[u8]) -> Told<()> {
    ensure(bytes.has(at, mark).is_ok() || bytes.has(2, mark).is_ok())
}

/// BEP 5 (the hash table), BEP 15 (a tracker's first request), and the handshake inside uTP (BEP 29).
pub(super) fn bittorrent(bytes: &Bytes<'_>) -> Told<Found> {
    let table = bytes.u8(0)? == b'd' && is_table(bytes);
    let tracker =
        bytes.datagram_len() >= 16 && bytes.has(0, &[0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0]).is_ok();
    let handshake = bytes.has(20, b"\x13BitTorrent protocol").is_ok();
    ensure(table || tracker || handshake)?;
    Ok(BITTORRENT.certain())
}

/// A dictionary of KRPC: it begins with arguments, an answer, an error or an address, and has a kind.
fn is_table(bytes: &Bytes<'_>) -> bool {
    let whole = bytes.whole();
    let begins =
        [&b"d1:ad2:id20:"[..], b"d1:rd2:id20:", b"d1:eli2", b"d2:ip", b"d1:rd2:ip", b"d1:ad", b"d1:t", b"d1:v"];
    let kind = [&b"1:y1:q"[..], b"1:y1:r", b"1:y1:e"];
    begins.iter().any(|begin| whole.starts_with(begin))
        && (whole.starts_with(b"d1:ad2:id20:") || whole.starts_with(b"d1:rd2:id20:") || {
            kind.iter().any(|kind| whole.windows(kind.len()).any(|window| window == *kind))
        })
}
