//! What becomes of a packet, in words.

use functions::rules::Rules;
use functions::rules::trace::Trace;
use lab::Driver;
use nf::{PortId, Reason, Reply, Verdict};
use packet::{Endpoint, Headers, Rewrite, protocol};
use port::Packet;

/// The verdict on the next packet. An answer that can't be made is a drop, as in a run.
pub(super) fn verdict<T: Trace>(driver: &mut Driver<Rules<T>>, packet: &Packet, bytes: &[u8]) -> Verdict {
    let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
    match (driver.packet(packet.time, parsed.as_ref(), bytes), &parsed) {
        (Verdict::Reply(reply), Ok(headers)) if !is_answerable(reply, headers, bytes) => {
            Verdict::Drop(Reason::UNANSWERABLE)
        }
        (verdict, _) => verdict,
    }
}

fn is_answerable(reply: Reply, headers: &Headers, bytes: &[u8]) -> bool {
    match reply {
        Reply::TcpReset => packet::tcp_reset(&mut bytes.to_vec(), headers).is_some(),
        Reply::IcmpError(error) => {
            let mut answer = vec![0; usize::from(headers.network_offset) + packet::ICMP_ERROR_MAX];
            packet::icmp_error(bytes, headers, error, &mut answer).is_some()
        }
    }
}

/// Where a packet goes, and what of it is rewritten. `number` is its protocol's.
pub(super) fn forwarded(port: PortId, rewrite: &Rewrite, number: u8) -> String {
    let mut out = match port {
        PortId::ACROSS => "forwarded".to_owned(),
        PortId(number) => format!("forwarded by port {number}"),
    };
    let is_icmp = matches!(number, protocol::ICMP | protocol::ICMPV6);
    for (name, end) in [("source", rewrite.src), ("destination", rewrite.dst)] {
        if let Some(Endpoint { address, port }) = end {
            out += &match is_icmp {
                // In place of ports, an ICMP query has its identifier.
                true if rewrite.embedded => format!(", {name} {address}"),
                true => format!(", {name} {address}, identifier {port}"),
                false => format!(", {name} {}", Endpoint::new(address, port)),
            };
        }
    }
    if let Some(ttl) = rewrite.ttl {
        out += &format!(", ttl {ttl}");
    }
    if let Some(tos) = rewrite.tos {
        out += &format!(", type of service {tos:#04x}");
    }
    if let Some(bytes) = rewrite.mss_max {
        out += &format!(", segments of at most {bytes} bytes");
    }
    out
}
