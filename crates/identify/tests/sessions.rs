//! Names, tunnels and STARTTLS, false names of old, and signature files with mistakes.

use std::sync::LazyLock;

use millrace_identify::{
    Answer, Confidence, DatagramState, How, NameKind, Names, Prefixes, Side, Signatures, Switch, protocol,
};

static SIGNATURES: LazyLock<Signatures> = LazyLock::new(Signatures::built_in);

fn prefixes<'a>(initiator: &'a [u8], responder: &'a [u8]) -> Prefixes<'a> {
    Prefixes { initiator, responder, initiator_ended: true, responder_ended: true }
}

fn name(initiator: &[u8], responder: &[u8]) -> Option<&'static str> {
    SIGNATURES.stream(&prefixes(initiator, responder)).protocol().map(|protocol| SIGNATURES.name(protocol))
}

/// A client's hello with a name and a protocol, in records of `piece` bytes.
fn hello(server: &str, piece: usize) -> Vec<u8> {
    let server = server.as_bytes();
    let len = |len: usize| (len as u16).to_be_bytes();
    let sni = [&[0, 0][..], &len(server.len() + 5), &len(server.len() + 3), &[0], &len(server.len()), server].concat();
    let alpn = [&[0, 16][..], &len(5), &len(3), &[2], b"h2"].concat();
    let extensions = [sni, alpn].concat();
    let body =
        [&[3, 3][..], &[7; 32], &[0], &len(2), &[0x13, 1], &[1, 0], &len(extensions.len()), &extensions].concat();
    let message = [&[1, 0][..], &len(body.len()), &body].concat();
    message.chunks(piece).flat_map(|part| [&[22, 3, 1][..], &len(part.len()), part].concat()).collect()
}

#[test]
fn a_hello_may_lie_in_many_records() {
    for piece in [1, 3, 5, 40, 1_000] {
        let bytes = hello("www.example.org", piece);
        let prefixes = Prefixes { initiator: &bytes, ..Prefixes::default() };
        assert_eq!(SIGNATURES.stream(&prefixes).protocol(), Some(protocol::TLS), "{piece}");
        let mut names = Names::default();
        assert!(SIGNATURES.stream_names(protocol::TLS, &prefixes, &mut names), "{piece}");
        assert_eq!(names.main(), Some((NameKind::Server, &b"www.example.org"[..])));
        assert_eq!(names.get(NameKind::Alpn), Some(&b"h2"[..]));
        assert_eq!(names.get(NameKind::Host), None);
        // While a byte is missing, more names may come.
        let part = Prefixes { initiator: &bytes[..bytes.len() - 1], ..Prefixes::default() };
        assert!(!SIGNATURES.stream_names(protocol::TLS, &part, &mut names));
    }
}

#[test]
fn hosts_and_questions_are_names() {
    let mut names = Names::default();
    let request = b"GET / HTTP/1.1\r\nUser-Agent: a\r\nhost:  example.org:8080 \r\n\r\n";
    assert!(SIGNATURES.stream_names(protocol::HTTP, &prefixes(request, b""), &mut names));
    assert_eq!(names.get(NameKind::Host), Some(&b"example.org:8080"[..]));
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01";
    assert!(SIGNATURES.datagram_names(protocol::DNS, question, &mut names));
    assert_eq!(names.get(NameKind::Question), Some(&b"www.example.org"[..]));
    let tunnel = b"CONNECT example.org:443 HTTP/1.1\r\n\r\n";
    assert!(SIGNATURES.stream_names(protocol::HTTP_CONNECT, &prefixes(tunnel, b""), &mut names));
    assert_eq!(names.get(NameKind::Host), Some(&b"example.org:443"[..]));
}

/// Each: the protocol, what both sides say before the switch.
#[test]
fn another_protocol_begins_inside() {
    let ldap_request = [&[0x30, 0x1d, 2, 1, 1, 0x77, 0x18, 0x80, 0x16][..], b"1.3.6.1.4.1.1466.20037"].concat();
    let mysql_greeting = [&[12, 0, 0, 0, 10][..], b"8.0.36\0", &[0; 4]].concat();
    let mysql_request = [&[32, 0, 0, 1, 0x85, 0xae, 0xff, 1][..], &[0, 0, 0, 1, 0x21], &[0; 23]].concat();
    let cases: [(_, &[u8], &[u8]); 13] = [
        ("http-connect", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("socks", b"\x05\x01\x00\x05\x01\x00\x03\x01a\x01\xbb", b"\x05\x00\x05\x00\x00\x01\x0a\0\0\x01\0\x50"),
        (
            "socks",
            b"\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x01\x0a\0\0\x01\0\x50",
            b"\x05\x02\x01\x00\x05\x00\x00\x01\0\0\0\0\0\0",
        ),
        ("socks", b"\x04\x01\x01\xbb\0\0\0\x01u\0host\0", b"\0\x5a\0\0\0\0\0\0"),
        ("smtp", b"EHLO a\r\nSTARTTLS\r\n", b"220 a ESMTP\r\n250-a\r\n250 STARTTLS\r\n220 go ahead\r\n"),
        ("ftp", b"AUTH TLS\r\n", b"220-Welcome\r\n to FTP\r\n220 go\r\n234 go ahead\r\n"),
        ("pop3", b"CAPA\r\nSTLS\r\n", b"+OK POP3 ready\r\n+OK\r\nSTLS\r\n.\r\n+OK go\r\n"),
        ("imap", b"a CAPABILITY\r\nb STARTTLS\r\n", b"* OK IMAP4\r\n* CAPABILITY IMAP4rev1\r\na OK\r\nb OK go\r\n"),
        (
            "xmpp",
            b"<stream:stream a='b'><starttls xmlns='c'/>",
            b"<stream:stream><stream:features/><proceed xmlns='c'/>",
        ),
        ("ldap", &ldap_request, b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"),
        ("postgresql", b"\0\0\0\x08\x04\xd2\x16\x2f", b"S"),
        ("mysql", &mysql_request, &mysql_greeting),
        (
            "rdp",
            b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0",
            b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\0\x08\0\x02\0\0\0",
        ),
    ];
    for (name, initiator, responder) in cases {
        let protocol = SIGNATURES.find(name).expect("it is known");
        let inside = hello("inner.example.org", 500);
        let both = [[initiator, &inside].concat(), [responder, b"\x16\x03\x03\0\x7a\x02\0\0\x76\x03\x03"].concat()];
        let Switch::At { initiator: a, responder: b } = SIGNATURES.switch(protocol, &prefixes(&both[0], &both[1]))
        else {
            panic!("{name}: {:?}", SIGNATURES.switch(protocol, &prefixes(&both[0], &both[1])));
        };
        assert_eq!((a, b), (initiator.len(), responder.len()), "{name}");
        assert_eq!(self::name(&both[0][a..], &both[1][b..]), Some("tls"), "{name}");
        // Before the last byte of each side nothing is known.
        for (cut_a, cut_b) in [(1, 0), (0, 1)] {
            let part = Prefixes {
                initiator: &initiator[..initiator.len() - cut_a],
                responder: &responder[..responder.len() - cut_b],
                ..Prefixes::default()
            };
            assert_eq!(SIGNATURES.switch(protocol, &part), Switch::More, "{name}");
        }
    }
}

#[test]
fn a_refused_switch_is_none() {
    let refused = prefixes(b"EHLO a\r\nSTARTTLS\r\n", b"220 a ESMTP\r\n250 STARTTLS\r\n454 not now\r\n");
    assert_eq!(SIGNATURES.switch(protocol::SMTP, &refused), Switch::Never);
    let refused = prefixes(b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 403 No\r\n\r\n");
    assert_eq!(SIGNATURES.switch(protocol::HTTP_CONNECT, &refused), Switch::Never);
}

/// Names that the classifier of single packets gave wrongly.
#[test]
fn false_names_of_old() {
    // NATS is not Redis.
    assert_eq!(name(b"PING\r\n", b"INFO {\"server_id\":\"a\"}\r\n"), Some("nats"));
    assert_eq!(name(b"PING\r\n", b"PONG\r\n"), None);
    // RX is not SNMP.
    let mut state = DatagramState::default();
    let rx = [&[0x30, 26, 2, 1, 0, 4, 1, 9][..], &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0]]
        .concat();
    let answer = SIGNATURES.datagram(&mut state, Side::Initiator, &rx);
    assert_eq!(answer.protocol().map(|protocol| SIGNATURES.name(protocol)), Some("rx"));
    // Mining and Cassandra are not SOCKS.
    assert_eq!(name(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00", b""), Some("cassandra"));
    assert_eq!(name(b"{\"id\":1,\"method\":\"mining.subscribe\",\"params\":[]}\n", b"\x05\x00"), Some("stratum"));
    assert_eq!(name(b"\x05\x01\x00", b""), None);
    // DTLS is not STUN.
    let mut state = DatagramState::default();
    let record =
        [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 68, 1, 0, 0, 56, 0, 0, 0, 0, 0, 0, 0, 56][..], &[9; 56]].concat();
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &record).protocol(), Some(protocol::DTLS));
}

#[test]
fn several_datagrams_make_rtp() {
    let mut state = DatagramState::default();
    let rtp = |number: u8| [&[0x80, 0, 0, number, 0, 0, number, 160, 0, 0, 0, 9][..], &[7; 160]].concat();
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &rtp(1)), Answer::More);
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &rtp(2)), Answer::More);
    let Answer::Is(identified) = SIGNATURES.datagram(&mut state, Side::Initiator, &rtp(3)) else {
        panic!("three are enough")
    };
    assert_eq!((identified.protocol, identified.how), (protocol::RTP, How::Datagrams));
    // Numbers that jump are none.
    let mut state = DatagramState::default();
    for number in [1, 90, 7, 200, 40, 120] {
        assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &rtp(number)), Answer::More);
    }
    assert_eq!(SIGNATURES.datagrams_end(&state), Answer::Unknown);
}

#[test]
fn both_sides_make_utp() {
    let mut state = DatagramState::default();
    let header = |kind: u8, connection: u16| {
        [&[kind << 4 | 1, 0][..], &connection.to_be_bytes(), &[5; 12], &[0, 1, 0, 0]].concat()
    };
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &header(4, 0x3a1b)), Answer::More);
    let answer = SIGNATURES.datagram(&mut state, Side::Responder, &header(2, 0x3a1b));
    assert_eq!(answer.protocol(), Some(protocol::BITTORRENT));
}

const MINE: &str = "protocol mine test\nsource us\ntcp initiator 90 certain MINE[0-9]\nmatch tcp initiator \"MINE1\"\n";

#[test]
fn a_file_of_ones_own() {
    let signatures = Signatures::built_in_and(MINE, "mine.sig").expect("the file is right");
    let answer = signatures.stream(&Prefixes { initiator: b"MINE7! and so on", ..Prefixes::default() });
    let Answer::Is(identified) = answer else { panic!("{answer:?}") };
    assert_eq!((signatures.name(identified.protocol), identified.confidence), ("mine", Confidence::Certain));
    let (_, about) = signatures.protocols().find(|(_, about)| about.name == "mine").expect("it is listed");
    assert!(about.by_pattern && !about.by_decoder && about.category == "test" && about.source == "us");
    // At equal priority one's own comes first.
    let own = "protocol own test\nsource us\ntcp responder 90 certain SSH-2\\.0-mine\n";
    let signatures = Signatures::built_in_and(own, "own.sig").expect("the file is right");
    let answer = signatures.stream(&prefixes(b"", b"SSH-2.0-mine\r\n"));
    assert_eq!(answer.protocol().map(|protocol| signatures.name(protocol)), Some("own"));
}

#[test]
fn mistakes_have_a_place() {
    let head = "protocol mine test\nsource us\n";
    for (line, column, message) in [
        ("tcp both 90 certain MINE", 5, "a side is `initiator`, `responder` or `either`"),
        ("tcp either 0 certain MINE", 12, "a priority is a number from 1 to 99"),
        ("tcp either 90 sure MINE", 15, "a confidence is `certain`, `likely` or `guess`"),
        ("tcp either 90 certain MI", 23, "four bytes"),
        ("tcp either 90 certain MINE(", 27, "unclosed group"),
        ("tcp either 90 certain ^MINE", 23, "leave out"),
        ("tcp either 90 certain len=9 MINE", 23, "for datagrams"),
        ("udp either 90 certain size=be17@2 MINE", 23, "size=be16@2+8"),
        ("tcp either 90 certain (MINE.{0,900}){40}x", 23, "too large"),
        ("tcp either 90 certain", 22, "a pattern is missing"),
        ("match tcp initiator \"a", 21, "closing quote"),
        ("match tcp initiator 4x", 21, "hexadecimal"),
        ("  sauce us", 3, "is no directive"),
        ("match tcp initiator \"nothing\"", 1, "should be mine, and is no protocol"),
    ] {
        let text = format!("{head}{line}\n");
        let error = Signatures::built_in_and(&text, "mine.sig").expect_err(line);
        assert_eq!((error.line, error.column), (3, column), "{line}: {error}");
        assert!(error.message.contains(message), "{line}: {error}");
        assert!(error.to_string().starts_with("mine.sig:3:"), "{error}");
    }
    let error = Signatures::built_in_and("protocol mine\n", "mine.sig").expect_err("it has no category");
    assert_eq!((error.line, error.column), (1, 1));
    let error = Signatures::built_in_and("source us\n", "mine.sig").expect_err("it has no protocol");
    assert!(error.message.contains("must come first"), "{error}");
}

/// A bare question is of DNS if its answer comes in the same session. Otherwise it went to many hosts.
#[test]
fn dns_and_llmnr_share_a_format() {
    let question = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x011\x0210\x07in-addr\x04arpa\0\0\x0c\0\x01";
    let answer =
        [&b"\x12\x34\x80\0\0\x01\0\x01\0\0\0\0"[..], &question[12..], b"\xc0\x0c\0\x0c\0\x01\0\0\0\x3c\0\x03\x01a\0"]
            .concat();
    let mut state = DatagramState::default();
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, question), Answer::More);
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, question), Answer::More);
    assert_eq!(SIGNATURES.datagrams_end(&state).protocol(), Some(protocol::LLMNR));
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Responder, &answer).protocol(), Some(protocol::DNS));
    let mut state = DatagramState::default();
    assert_eq!(SIGNATURES.datagram(&mut state, Side::Initiator, &answer), Answer::More);
    assert_eq!(SIGNATURES.datagrams_end(&state).protocol(), Some(protocol::LLMNR));
}
