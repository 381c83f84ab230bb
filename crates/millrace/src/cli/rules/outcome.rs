//! What becomes of a packet, in words.

use functions::rules::Rules;
use functions::rules::trace::Trace;
use lab::Driver;
use nf::{NetworkFunction, PortId, Reason, Reply, Verdict};
use packet::{Endpoint, Headers, Rewrite, protocol};
use port::Packet;
use port::pcap::Misplaced;

use crate::cli::traffic::Traffic;
use crate::print::number::counted;
use crate::print::output::remark;
use crate::print::ports::Ports;

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

/// Notes on the ports of a router: those that the traffic lacks, and `unknown` packets that came in by others.
pub(super) fn note_ports(rules: &Rules, traffic: &Traffic, unknown: u64) {
    for note in Ports::of(rules.ports(), traffic.interfaces, &Misplaced::default()).told(&traffic.name, None) {
        remark(&format!("{note}\n"));
    }
    if unknown > 0 {
        let packets = counted(unknown, "packet", "packets");
        remark(&format!("{packets} came in by ports that no interface of --router has; the rules don't see them\n"));
    }
}

/// True if a packet came in by a port that no interface of the router has.
pub(super) fn is_by_unknown_port(verdict: &Verdict) -> bool {
    let own = <Rules>::DESCRIPTION.drop_reasons;
    matches!(verdict, Verdict::Drop(reason) if reason.name(own) == "unknown-port")
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
