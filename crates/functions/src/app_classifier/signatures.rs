//! The built-in classifier: signatures of the first messages of well-known protocols, each after its specification.
//!
//! No protocol is identified by a port alone. Ports only separate protocols that share a format: DNS, multicast DNS and LLMNR.

mod asn1;
mod datagrams;
mod names;
mod records;
mod text;

use packet::protocol;

use super::classifier::{Application, Classifier, Label, Payload};

/// The built-in classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signatures;

/// Tests whether a payload belongs to a protocol. `None` if it is too short to tell.
type Looks = fn(&Payload<'_>) -> Option<bool>;

/// Declares the protocols: name, evidence, tests of TCP and UDP payloads.
macro_rules! protocols {
    ($($variant:ident $name:literal $evidence:literal $tcp:expr, $udp:expr;)*) => {
        /// The protocols, in the order of [`Signatures::APPLICATIONS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Protocol { $($variant),* }

        impl Classifier for Signatures {
            const APPLICATIONS: &'static [Label] = &[$(Label { name: $name, evidence: $evidence }),*];

            #[inline]
            fn classify(&self, payload: &Payload<'_>) -> Option<Application> {
                tell(payload).map(|protocol| Application(protocol as u8))
            }
        }

        /// The protocols with their tests, in order.
        const PROTOCOLS: &[(Protocol, Looks, Looks)] = &[$((Protocol::$variant, $tcp, $udp)),*];
    };
}

const fn never(_: &Payload<'_>) -> Option<bool> {
    Some(false)
}

// The first match decides, so the signatures that are least likely to match by chance come first.
protocols! {
    Tls "tls" 1 records::tls, never;
    Http "http" 1 text::http, never;
    Http2 "http2" 1 text::http2, never;
    Ssh "ssh" 1 text::ssh, never;
    Quic "quic" 1 never, datagrams::quic;
    Mdns "mdns" 1 never, names::mdns;
    Llmnr "llmnr" 1 never, names::llmnr;
    Netbios "netbios" 1 never, names::netbios;
    Dns "dns" 1 names::dns_over_tcp, names::dns;
    Smb "smb" 1 records::smb, never;
    Smtp "smtp" 1 text::smtp, never;
    Ftp "ftp" 1 text::ftp, never;
    Pop3 "pop3" 1 text::pop3, never;
    Imap "imap" 1 text::imap, never;
    Sip "sip" 1 text::sip, text::sip;
    Rtsp "rtsp" 1 text::rtsp, never;
    Ssdp "ssdp" 1 never, text::ssdp;
    Redis "redis" 1 text::redis, never;
    Memcached "memcached" 1 text::memcached, text::memcached_datagram;
    Irc "irc" 1 text::irc, never;
    Xmpp "xmpp" 1 text::xmpp, never;
    Rfb "vnc" 1 text::rfb, never;
    BitTorrent "bittorrent" 1 text::bittorrent, text::bittorrent_datagram;
    Rdp "rdp" 1 records::rdp, never;
    Mysql "mysql" 1 records::mysql, never;
    Postgresql "postgresql" 1 records::postgresql, never;
    Mongodb "mongodb" 1 records::mongodb, never;
    Tds "tds" 1 records::tds, never;
    Mqtt "mqtt" 1 records::mqtt, never;
    Bgp "bgp" 1 records::bgp, never;
    Dnp3 "dnp3" 1 records::dnp3, records::dnp3;
    DceRpc "dce-rpc" 1 records::dce_rpc, never;
    SunRpc "sun-rpc" 1 records::sun_rpc, datagrams::sun_rpc;
    Kerberos "kerberos" 1 asn1::kerberos_over_tcp, asn1::kerberos;
    Snmp "snmp" 1 never, asn1::snmp;
    Ldap "ldap" 1 asn1::ldap, asn1::ldap;
    Dhcp "dhcp" 1 never, datagrams::dhcp;
    Dhcpv6 "dhcpv6" 1 never, datagrams::dhcpv6;
    Dtls "dtls" 1 never, datagrams::dtls;
    Stun "stun" 1 records::stun, datagrams::stun;
    Rtcp "rtcp" 1 never, datagrams::rtcp;
    Ike "ike" 1 never, datagrams::ike;
    WireGuard "wireguard" 1 never, datagrams::wireguard;
    OpenVpn "openvpn" 1 records::openvpn, datagrams::openvpn;
    Radius "radius" 1 never, datagrams::radius;
    Ntp "ntp" 1 never, datagrams::ntp;
    Tftp "tftp" 1 never, datagrams::tftp;
    Syslog "syslog" 1 text::syslog, text::syslog;
    Telnet "telnet" 1 records::telnet, never;
    Socks "socks" 2 records::socks, never;
    Rtp "rtp" 4 never, datagrams::rtp;
}

fn tell(payload: &Payload<'_>) -> Option<Protocol> {
    let is_tcp = payload.protocol == protocol::TCP;
    let fits = |(_, tcp, udp): &&(Protocol, Looks, Looks)| (if is_tcp { tcp } else { udp })(payload) == Some(true);
    PROTOCOLS.iter().find(fits).map(|(protocol, ..)| *protocol)
}

#[cfg(test)]
mod tests;
