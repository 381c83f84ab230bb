//! Decoders of datagrams.

mod calls;
mod directory;
mod local;
mod network;
pub(crate) mod quic;
mod tunnels;
mod voice;

pub(crate) use tunnels::openvpn_reset;

use crate::bytes::{Bytes, Found, Told};
use crate::decoder::{ANY, DatagramDecoder, First, STRONG, WEAK};
use crate::stream;

const fn decoder(priority: u8, first: First, read: fn(&Bytes<'_>) -> Told<Found>) -> DatagramDecoder {
    DatagramDecoder { priority, first, read, repeats: 1 }
}

/// A decoder that must find the same in several datagrams.
const fn several(repeats: u8, first: First, read: fn(&Bytes<'_>) -> Told<Found>) -> DatagramDecoder {
    DatagramDecoder { priority: WEAK, first, read, repeats }
}

/// All decoders. At equal priority the first comes first.
pub(crate) const DECODERS: &[DatagramDecoder] = &[
    decoder(STRONG, &[0x80..=0xff], quic::quic),
    decoder(STRONG, &[0x00..=0x7f], quic::google),
    decoder(STRONG, ANY, local::netbios),
    decoder(STRONG, ANY, local::dns),
    several(u8::MAX, ANY, local::dns_or_llmnr),
    decoder(STRONG, &[20..=26], network::dtls),
    decoder(STRONG, &[0..=0x3f], voice::stun),
    decoder(STRONG, &[1..=2], local::dhcp),
    decoder(STRONG, &[1..=13], local::dhcpv6),
    decoder(STRONG, &[0x80..=0xbf], voice::rtcp),
    decoder(STRONG, &[b'A'..=b'Z', b'a'..=b'z'], stream::http::datagram),
    decoder(STRONG, &[0x30..=0x30], directory::snmp),
    decoder(STRONG, &[0x30..=0x30], directory::ldap),
    decoder(STRONG, &[0x60..=0x7e], directory::kerberos),
    decoder(STRONG, ANY, tunnels::ike),
    decoder(STRONG, &[1..=3], tunnels::wireguard),
    several(2, &[4..=4], tunnels::wireguard_data),
    decoder(STRONG, &[0x38..=0x50], tunnels::openvpn),
    decoder(STRONG, &[0xc0..=0xcf, 0x80..=0x8f, 0x40..=0x4f], tunnels::l2tp),
    decoder(STRONG, &[0x30..=0x3f, 0x40..=0x5f], tunnels::gtp),
    decoder(STRONG, &[0..=0x3f], tunnels::geneve),
    decoder(STRONG, &[8..=8], tunnels::vxlan),
    decoder(STRONG, &[0..=0, 0x60..=0x60], tunnels::teredo),
    decoder(STRONG, &[0x10..=0x48, 0x80..=0x88], tunnels::lisp),
    decoder(STRONG, &[0..=1], tunnels::capwap),
    decoder(STRONG, &[0x40..=0x44], tunnels::ayiya),
    decoder(STRONG, &[1..=45], directory::radius),
    decoder(STRONG, ANY, network::ntp),
    decoder(STRONG, ANY, network::ptp),
    decoder(STRONG, &[0..=0], network::tftp),
    several(3, &[0..=0], network::tftp_blocks),
    decoder(STRONG, &[b'<'..=b'<'], network::syslog),
    decoder(STRONG, &[0..=0], network::flows),
    decoder(STRONG, &[0..=0], network::sflow),
    decoder(STRONG, &[1..=2], network::rip),
    decoder(STRONG, &[0..=1], network::hsrp),
    decoder(STRONG, &[0..=0], stream::misc::ldp),
    decoder(STRONG, ANY, calls::sun_rpc),
    decoder(STRONG, &[4..=4], calls::dce_rpc),
    decoder(STRONG, ANY, calls::rx),
    decoder(STRONG, &[1..=2], local::slp),
    decoder(STRONG, &[0..=0], local::pana),
    decoder(STRONG, &[0xd0..=0xd0], local::tplink),
    decoder(STRONG, &[b'<'..=b'<'], local::wsd),
    decoder(STRONG, &[0..=0], local::xdmcp),
    decoder(STRONG, &[0x40..=0x7f], network::coap),
    decoder(STRONG, &[0x80..=0x8f], voice::iax2),
    decoder(STRONG, &[0..=0x7f], voice::ras),
    several(4, &[0..=9], network::eaq),
    decoder(STRONG, ANY, voice::raknet),
    decoder(STRONG, &[0..=0x70], network::ethernet_ip),
    decoder(STRONG, &[5..=5], stream::industry::dnp3),
    decoder(STRONG, &[0xaa..=0xaa], stream::industry::c37118),
    decoder(STRONG, &[0x60..=0x60], stream::industry::c1222),
    decoder(STRONG, ANY, network::someip),
    decoder(STRONG, &[1..=3], network::doip),
    decoder(STRONG, &[0x80..=0x81, 0..=0], calls::memcached),
    decoder(STRONG, ANY, voice::bittorrent),
    decoder(STRONG, ANY, tunnels::rdpeudp),
];
