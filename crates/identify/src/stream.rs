//! Decoders of TCP streams.

pub(crate) mod calls;
pub(crate) mod data;
mod desktop;
pub(crate) mod directory;
pub(crate) mod http;
pub(crate) mod industry;
mod mail;
pub(crate) mod misc;
mod proxy;
pub(crate) mod tls;

use crate::decoder::{ANY, First, NORMAL, Reads, STRONG, StreamDecoder};
use Reads::{Both, BothByResponder, Either, Initiator, Responder};

const fn decoder(priority: u8, first: First, reads: Reads) -> StreamDecoder {
    StreamDecoder { priority, first, reads }
}

/// All decoders. At equal priority the first comes first.
pub(crate) const DECODERS: &[StreamDecoder] = &[
    decoder(STRONG, &[0x16..=0x16], Either(tls::hello)),
    decoder(STRONG, &[0x80..=0x8f], Initiator(tls::hello_of_ssl2)),
    decoder(STRONG, &[0x14..=0x15, 0x17..=0x17], Either(tls::records)),
    decoder(STRONG, &[b'A'..=b'Z', b'a'..=b'z', b'\r'..=b'\r'], Either(http::request)),
    decoder(STRONG, &[b'G'..=b'S'], Either(http::response)),
    decoder(STRONG, &[0..=0x7f], Either(directory::dns)),
    decoder(STRONG, &[0x30..=0x30], Either(directory::ldap)),
    decoder(STRONG, &[0..=0], Either(directory::kerberos)),
    decoder(STRONG, ANY, Either(data::mysql)),
    decoder(STRONG, &[0..=0], Initiator(data::postgresql)),
    decoder(STRONG, &[b'E'..=b'E', b'R'..=b'R'], Responder(data::postgresql_answer)),
    decoder(STRONG, ANY, Either(data::mongodb)),
    decoder(STRONG, &[0x01..=0x12], Either(data::tds)),
    decoder(STRONG, &[1..=1, 3..=3], Initiator(data::tds_request)),
    decoder(STRONG, &[1..=5, 0x81..=0x85], Either(data::cassandra)),
    decoder(STRONG, &[0x80..=0x81], Either(data::memcached)),
    decoder(STRONG, &[0..=0x0f], Either(data::oracle)),
    decoder(STRONG, ANY, Initiator(data::drda)),
    decoder(STRONG, &[0..=0], Initiator(data::kafka)),
    decoder(STRONG, &[0..=0], Initiator(data::zookeeper)),
    decoder(STRONG, &[0..=0, 0x80..=0x80], Either(calls::thrift)),
    decoder(STRONG, &[0x10..=0x10, 0x20..=0x20], Either(data::mqtt)),
    decoder(STRONG, &[0..=0], Either(calls::smb)),
    decoder(STRONG, &[0x81..=0x81], Initiator(calls::netbios_session)),
    decoder(STRONG, &[0x80..=0x80], Either(calls::sun_rpc)),
    decoder(STRONG, &[5..=5], Either(calls::dce_rpc)),
    decoder(STRONG, &[0..=1], Either(calls::afp)),
    decoder(STRONG, &[0x03..=0x03, 0x43..=0x43, 0x23..=0x23], Either(calls::iscsi)),
    decoder(STRONG, &[3..=3], Either(desktop::tpkt)),
    decoder(STRONG, &[b'B'..=b'B', b'l'..=b'l'], Initiator(desktop::x11)),
    decoder(STRONG, &[0xff..=0xff], Either(desktop::telnet)),
    decoder(NORMAL, &[0..=0, b'0'..=b'9'], Both(desktop::rsh)),
    decoder(NORMAL, &[b' '..=b'~', b'\r'..=b'\r'], Both(desktop::finger)),
    decoder(NORMAL, &[b'+'..=b'+', b'0'..=b'9', b'I'..=b'I', b'g'..=b'i', b's'..=b's'], Responder(desktop::gopher)),
    decoder(NORMAL, &[5..=5], Both(proxy::socks5)),
    decoder(NORMAL, &[4..=4], Both(proxy::socks4)),
    decoder(STRONG, &[0..=1], Either(proxy::stun)),
    decoder(STRONG, &[0..=3], Both(proxy::openvpn)),
    decoder(STRONG, &[0xff..=0xff], Either(misc::bgp)),
    decoder(STRONG, &[0..=0], Either(misc::ldp)),
    decoder(STRONG, &[1..=1], Either(misc::diameter)),
    decoder(STRONG, &[0xc0..=0xc1], Initiator(misc::tacacs)),
    decoder(STRONG, ANY, Either(misc::skinny)),
    decoder(STRONG, &[1..=1], Either(misc::fastcgi)),
    decoder(STRONG, &[0..=0], Either(misc::tplink)),
    decoder(STRONG, &[1..=1], Either(misc::dicom)),
    decoder(STRONG, &[0..=0], Either(misc::smpp)),
    decoder(NORMAL, &[3..=3], Both(misc::rtmp)),
    decoder(STRONG, &[0..=0xff], Initiator(misc::minecraft)),
    decoder(STRONG, &[0xe3..=0xe3, 0xc5..=0xc5, 0xd4..=0xd4], Either(misc::edonkey)),
    decoder(STRONG, &[0x02..=0x02], Either(misc::slp)),
    decoder(NORMAL, ANY, Both(industry::modbus)),
    decoder(NORMAL, ANY, Both(|bytes, answer| industry::modbus(answer, bytes))),
    decoder(STRONG, &[5..=5], Either(industry::dnp3)),
    decoder(STRONG, &[0x68..=0x68], Both(industry::iec104)),
    decoder(STRONG, &[0..=0x7f], Either(industry::ethernet_ip)),
    decoder(STRONG, &[0xaa..=0xaa], Either(industry::c37118)),
    decoder(STRONG, &[0x60..=0x60], Either(industry::c1222)),
    decoder(STRONG, ANY, Either(industry::someip)),
    decoder(STRONG, &[1..=3], Either(industry::doip)),
    decoder(STRONG, &[b'+'..=b'+'], BothByResponder(mail::pop3)),
    decoder(STRONG, &[b'1'..=b'5'], BothByResponder(mail::ftp_or_smtp)),
    decoder(STRONG, &[b'2'..=b'2'], BothByResponder(mail::nntp)),
    decoder(NORMAL, &[1..=0x12], Both(data::tds_heads)),
    // A session that is picked up when the server speaks seems to be opened by it.
    decoder(STRONG, &[b'+'..=b'+'], Both(|bytes, answer| mail::pop3(answer, bytes))),
    decoder(STRONG, &[b'1'..=b'5'], Both(|bytes, answer| mail::ftp_or_smtp(answer, bytes))),
    decoder(STRONG, &[b'<'..=b'<'], Either(mail::xmpp)),
    decoder(STRONG, &[b'0'..=b'z'], Initiator(mail::imap)),
];
