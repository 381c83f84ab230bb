use std::vec::Vec;

use packet::protocol::{TCP, UDP};

use super::*;

fn told(protocol: u8, dst_port: u16, bytes: &[u8]) -> Option<&'static str> {
    let payload = Payload { protocol, src_port: 40_000, dst_port, bytes, wire_len: bytes.len() as u32 };
    Signatures.classify(&payload).map(|Application(number)| Signatures::APPLICATIONS[usize::from(number)].name)
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// First messages as the specifications have them, at ports that say nothing.
fn examples() -> Vec<(u8, &'static str, Vec<u8>)> {
    let hello = joined(&[&[0x16, 3, 1, 0, 0x2f, 1, 0, 0, 0x2b, 3, 3], &[7; 41]]);
    let query = joined(&[&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"\x03www\x07example\x03com\0", &[0, 1, 0, 1]]);
    let mut dhcp = Vec::from([0; 240]);
    (dhcp[0], dhcp[1], dhcp[2]) = (1, 1, 6);
    dhcp[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    let mut ntp = [0; 48];
    ntp[0] = 0x23;
    let rpc = [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0];
    Vec::from([
        (TCP, "tls", hello),
        (TCP, "http", b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        (TCP, "http", b"HTTP/1.1 404 Not Found\r\n".to_vec()),
        (TCP, "http2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        (TCP, "ssh", b"SSH-2.0-OpenSSH_9.7\r\n".to_vec()),
        (TCP, "dns", joined(&[&(query.len() as u16).to_be_bytes(), &query])),
        (UDP, "dns", query),
        (TCP, "smtp", b"220 mail.example.com ESMTP ready\r\n".to_vec()),
        (TCP, "ftp", b"220 (vsFTPd 3.0.5) FTP server\r\n".to_vec()),
        (TCP, "pop3", b"+OK POP3 ready <1@a>\r\n".to_vec()),
        (TCP, "imap", b"* OK [CAPABILITY IMAP4rev1] ready\r\n".to_vec()),
        (TCP, "imap", b"a001 LOGIN x y\r\n".to_vec()),
        (UDP, "sip", b"INVITE sip:bob@example.com SIP/2.0\r\n".to_vec()),
        (TCP, "rtsp", b"DESCRIBE rtsp://a/b RTSP/1.0\r\n".to_vec()),
        (UDP, "ssdp", b"M-SEARCH * HTTP/1.1\r\nHOST:239.255.255.250:1900\r\n".to_vec()),
        (TCP, "redis", b"*1\r\n$4\r\nPING\r\n".to_vec()),
        (TCP, "memcached", b"set key 0 60 5\r\nvalue\r\n".to_vec()),
        (UDP, "memcached", b"\0\x01\0\0\0\x01\0\0get key\r\n".to_vec()),
        (TCP, "vnc", b"RFB 003.008\n".to_vec()),
        (TCP, "bittorrent", b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0".to_vec()),
        (UDP, "bittorrent", b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe".to_vec()),
        (TCP, "rdp", joined(&[&[3, 0, 0, 19, 14, 0xe0, 0, 0, 0, 0, 0], &[1, 0, 8, 0, 3, 0, 0, 0]])),
        (TCP, "mysql", joined(&[&[0x0b, 0, 0, 0, 10], b"8.0.36\0", &[1, 0, 0]])),
        (TCP, "postgresql", joined(&[&[0, 0, 0, 15, 0, 3, 0, 0], b"user\0x\0"])),
        (TCP, "postgresql", Vec::from([0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f])),
        (TCP, "mqtt", joined(&[&[0x10, 16], b"\0\x04MQTT\x04\x02\0\x3c\0\x04dev1"])),
        (TCP, "bgp", joined(&[&[0xff; 16], &[0, 19, 4]])),
        (TCP, "sun-rpc", joined(&[&[0x80, 0, 0, 28], &rpc])),
        (UDP, "sun-rpc", rpc.to_vec()),
        (UDP, "snmp", joined(&[&[0x30, 0x0d, 2, 1, 1, 4, 6], b"public", &[0xa0, 0]])),
        (TCP, "ldap", Vec::from([0x30, 0x0c, 2, 1, 1, 0x60, 7, 2, 1, 3, 4, 0, 0x80, 0])),
        (UDP, "dhcp", dhcp),
        (UDP, "ntp", ntp.to_vec()),
        (UDP, "stun", joined(&[&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], &[5; 12]])),
        (UDP, "quic", joined(&[&[0xc0, 0, 0, 0, 1, 4, 1, 2, 3, 4, 0], &[0; 40]])),
        (UDP, "wireguard", joined(&[&[1, 0, 0, 0], &[7; 144]])),
        (UDP, "openvpn", joined(&[&[0x38], &[7; 8], &[0; 5]])),
        (UDP, "radius", joined(&[&[1, 1, 0, 25], &[7; 16], &[1, 5, b'a', b'b', b'c']])),
        (UDP, "tftp", b"\0\x01boot.img\0octet\0".to_vec()),
        (UDP, "syslog", b"<34>Oct 11 22:14:15 host su: failed\n".to_vec()),
        (TCP, "telnet", Vec::from([0xff, 0xfd, 0x18, 0xff, 0xfd, 0x20])),
        (UDP, "dtls", joined(&[&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4], &[1; 4]])),
        (UDP, "rtcp", Vec::from([0x80, 201, 0, 1, 0, 0, 0, 9])),
        (UDP, "rtp", joined(&[&[0x80, 0, 0, 1, 0, 0, 0, 160, 0, 0, 0, 9], &[0xff; 160]])),
        (TCP, "smb", joined(&[&[0, 0, 0, 64, 0xfe], b"SMB", &[0; 60]])),
    ])
}

#[test]
fn first_messages_are_told_whatever_the_port() {
    for (protocol, name, bytes) in examples() {
        assert_eq!(told(protocol, 50_000, &bytes), Some(name), "{bytes:?}");
        // The same in both directions.
        assert_eq!(told(protocol, 443, &bytes), Some(name));
    }
}

#[test]
fn a_port_alone_tells_nothing() {
    for port in [21, 22, 25, 53, 80, 123, 161, 443, 546, 1_194, 3_306, 5_353, 51_820] {
        for protocol in [TCP, UDP] {
            assert_eq!(told(protocol, port, b"\x99nothing that anyone says"), None, "port {port}");
        }
    }
}

/// Three protocols of one format: the port decides between them.
#[test]
fn names_are_told_by_their_port() {
    let query = joined(&[&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"\x04host\x05local\0", &[0, 1, 0x80, 1]]);
    for (port, name) in [(53, "dns"), (5_353, "mdns"), (5_355, "llmnr"), (9_999, "dns")] {
        assert_eq!(told(UDP, port, &query), Some(name));
    }
}

#[test]
fn what_two_protocols_say_is_told_of_neither() {
    for bytes in [&b"+OK\r\n"[..], b"-ERR unknown\r\n", b"220 ready\r\n", b"USER anonymous\r\n", b"QUIT\r\n"] {
        assert_eq!(told(TCP, 110, bytes), None, "{bytes:?}");
    }
}

/// Messages cut anywhere, or with any byte changed, cause no panic; a cut message is not taken for another protocol.
#[test]
fn cut_and_broken_messages_are_safe() {
    for (protocol, name, bytes) in examples() {
        for len in 1..bytes.len() {
            let cut =
                Payload { protocol, src_port: 1, dst_port: 2, bytes: &bytes[..len], wire_len: bytes.len() as u32 };
            if let Some(Application(number)) = Signatures.classify(&cut) {
                let other = Signatures::APPLICATIONS[usize::from(number)].name;
                assert_eq!(other, name, "{len} of {bytes:?}");
            }
        }
        for at in 0..bytes.len().min(64) {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = byte;
                let _ = (told(protocol, 53, &broken), told(TCP + UDP - protocol, 5_353, &broken));
            }
        }
    }
}

#[test]
fn names_are_no_two_alike() {
    let mut names: Vec<_> = Signatures::APPLICATIONS.iter().map(|label| label.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Signatures::APPLICATIONS.len());
    assert!(Signatures::APPLICATIONS.iter().all(|label| label.evidence >= 1 && label.name != "unknown"));
}
