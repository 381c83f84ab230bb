//! Headers of transport protocols: TCP options, `esp`, `ah`, `ipcomp`, `sctp`, `dccp`, `mh`.

use iptables::matches::{ChunkScope, Dccp, SctpChunk, SctpChunks};
use iptables::{Condition, Interval};
use packet::protocol;

use super::{Packet, holds};

/// net/netfilter/xt_tcpudp.c: an option of this kind is there. Options that were not captured as a whole are not searched.
pub(super) fn tcp_option(packet: &Packet<'_>, option: Condition<u8>) -> bool {
    let look = || {
        let at = packet.transport(protocol::TCP)?;
        let header_len = usize::from(packet.byte(at + 12)? >> 4) * 4;
        let options = packet.bytes.get(at + 20..at + header_len)?;
        Some(option.holds(has_option(options, option.value)))
    };
    look().unwrap_or(false)
}

/// Walks options of one byte, or of a kind and a length.
fn has_option(options: &[u8], wanted: u8) -> bool {
    let mut rest = options;
    while let Some(kind) = rest.first() {
        if *kind == wanted {
            return true;
        }
        // The kernel reads a length of 0, or one behind the end, as 1.
        let len = if *kind < 2 { 1 } else { rest.get(1).map_or(1, |len| usize::from(*len).max(1)) };
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

/// net/netfilter/xt_esp.c.
pub(super) fn esp(packet: &Packet<'_>, spi: Option<Condition<Interval<u32>>>) -> bool {
    let header = packet.transport(protocol::ESP).and_then(|at| packet.array(at));
    header.is_some_and(|[a, b, c, d, _, _, _, _]| holds(spi, u32::from_be_bytes([a, b, c, d])))
}

/// net/ipv4/netfilter/ipt_ah.c.
pub(super) fn ah(packet: &Packet<'_>, spi: Option<Condition<Interval<u32>>>) -> bool {
    let header: Option<[u8; 12]> = packet.transport(protocol::AH).and_then(|at| packet.array(at));
    header.is_some_and(|[_, _, _, _, a, b, c, d, ..]| holds(spi, u32::from_be_bytes([a, b, c, d])))
}

/// net/netfilter/xt_ipcomp.c.
pub(super) fn ipcomp(packet: &Packet<'_>, cpi: Option<Condition<Interval<u32>>>) -> bool {
    const IPCOMP: u8 = 108;
    let header = packet.transport(IPCOMP).and_then(|at| packet.array(at));
    header.is_some_and(|[_, _, high, low]| holds(cpi, u16::from_be_bytes([high, low]).into()))
}

/// net/ipv6/netfilter/ip6t_mh.c: the type, if no header follows.
pub(super) fn mobility(packet: &Packet<'_>, kind: Option<Condition<Interval<u8>>>) -> bool {
    const MOBILITY: u8 = 135;
    let header: Option<[u8; 6]> = packet.transport(MOBILITY).and_then(|at| packet.array(at));
    header.is_some_and(|[next, _, given, ..]| next == protocol::NO_NEXT && holds(kind, given))
}

/// net/netfilter/xt_sctp.c: the chunks of a packet.
pub(super) fn chunks(packet: &Packet<'_>, test: &Condition<SctpChunks>) -> bool {
    const HEADER_LEN: usize = 12;
    let Some(at) = packet.transport(protocol::SCTP) else { return false };
    match scan(packet, at + HEADER_LEN, &test.value) {
        Some(matches) => test.holds(matches),
        // The kernel drops the packet.
        None => false,
    }
}

/// `None` if a chunk's header is not there, or has the length 0.
fn scan(packet: &Packet<'_>, mut at: usize, SctpChunks { scope, chunks }: &SctpChunks) -> Option<bool> {
    let mut missing = [0_u64; 4];
    for chunk in chunks {
        missing[usize::from(chunk.kind / 64)] |= 1 << (chunk.kind % 64);
    }
    let listed = missing;
    loop {
        let [kind, flags, high, low] = packet.array(at)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len == 0 {
            return None;
        }
        at += len.next_multiple_of(4);
        let (word, bit) = (usize::from(kind / 64), 1 << (kind % 64));
        let is_listed = listed[word] & bit != 0;
        match scope {
            ChunkScope::Any if is_listed && flags_fit(chunks, kind, flags) => return Some(true),
            ChunkScope::All if is_listed && flags_fit(chunks, kind, flags) => missing[word] &= !bit,
            ChunkScope::Only if !is_listed || !flags_fit(chunks, kind, flags) => return Some(false),
            ChunkScope::Any | ChunkScope::All | ChunkScope::Only => {}
        }
        if at >= packet.len {
            break;
        }
    }
    Some(match scope {
        ChunkScope::All => missing == [0; 4],
        ChunkScope::Any => false,
        ChunkScope::Only => true,
    })
}

/// The first entry with flags for this type decides.
fn flags_fit(chunks: &[SctpChunk], kind: u8, flags: u8) -> bool {
    let with_flags = chunks.iter().find(|chunk| chunk.kind == kind && chunk.mask != 0);
    with_flags.is_none_or(|chunk| flags & chunk.mask == chunk.set)
}

/// net/netfilter/xt_dccp.c.
pub(super) fn dccp(packet: &Packet<'_>, test: &Dccp) -> bool {
    const DCCP: u8 = 33;
    let Some(at) = packet.transport(DCCP) else { return false };
    let Some([a, b, c, d, data_offset, _, _, _, bits, _, _, _]) = packet.array(at) else { return false };
    let kind = bits >> 1 & 0xf;
    if !holds(test.source, u16::from_be_bytes([a, b])) || !holds(test.destination, u16::from_be_bytes([c, d])) {
        return false;
    }
    if test.types.is_some_and(|types| !types.holds(types.value >> kind & 1 != 0)) {
        return false;
    }
    let Some(option) = test.option else { return true };
    let extended = if bits & 1 != 0 { 4 } else { 0 };
    let header_len = 12 + extended + type_len(kind);
    let end = usize::from(data_offset) * 4;
    let options = if end < header_len { None } else { packet.bytes.get(at + header_len..at + end) };
    options.is_some_and(|options| option.holds(has_option(options, option.value)))
}

/// Bytes between the common header of DCCP and its options, by type of packet (the kernel's `dccp_packet_hdr_len`).
const fn type_len(kind: u8) -> usize {
    const REQUEST: u8 = 0;
    const DATA: u8 = 2;
    match kind {
        DATA => 0,
        REQUEST => 4,
        // All that acknowledge and have nothing else.
        3..=6 | 8 | 9 => 8,
        // A response, a reset, and what has no meaning.
        _ => 12,
    }
}
