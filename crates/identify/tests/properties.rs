//! What holds for any bytes: an answer does not depend on the cutting, noise has no name, nothing panics.

use std::sync::LazyLock;

use millrace_identify::{Answer, DatagramState, LIMIT, Names, Prefixes, Side, Signatures, Switch};
use proptest::prelude::*;

static SIGNATURES: LazyLock<Signatures> = LazyLock::new(Signatures::built_in);

/// The examples of the built-in files: sides of streams, and datagrams.
struct Examples {
    streams: Vec<Vec<u8>>,
    datagrams: Vec<Vec<u8>>,
}

fn examples() -> Examples {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/signatures");
    let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let text = std::fs::read_to_string(entry.expect("it can be read").path()).expect("it is text");
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("match ").or_else(|| line.strip_prefix("miss ")) else { continue };
            let (carrier, rest) = rest.split_once(' ').expect("a carrier");
            let (_side, rest) = rest.split_once(' ').expect("a side");
            if carrier == "tcp" { &mut streams } else { &mut datagrams }.push(bytes(rest));
        }
    }
    Examples { streams, datagrams }
}

static EXAMPLES: LazyLock<Examples> = LazyLock::new(examples);

/// Reads the bytes of an example, more simply than the crate does.
fn bytes(text: &str) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let mut piece = Vec::new();
        if let Some(string) = rest.strip_prefix('"') {
            let mut at = 0;
            let string = string.as_bytes();
            while string[at] != b'"' {
                if string[at] == b'\\' {
                    at += 1;
                    piece.push(match string[at] {
                        b'r' => b'\r',
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'0' => 0,
                        other => other,
                    });
                } else {
                    piece.push(string[at]);
                }
                at += 1;
            }
            rest = &rest[at + 2..];
        } else {
            piece.push(u8::from_str_radix(&rest[..2], 16).expect("hexadecimal"));
            rest = &rest[2..];
        }
        let mut times = 1;
        if let Some(behind) = rest.strip_prefix('*') {
            let len = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
            times = behind[..len].parse().expect("a number");
            rest = &behind[len..];
        }
        found.extend(std::iter::repeat_n(piece, times).flatten());
        rest = rest.trim_start();
    }
    found
}

fn ask(initiator: &[u8], responder: &[u8], ended: [bool; 2]) -> Answer {
    let [initiator_ended, responder_ended] = ended;
    SIGNATURES.stream(&Prefixes { initiator, responder, initiator_ended, responder_ended })
}

/// Asks as a caller does, with each piece: the first final answer.
fn ask_in_pieces(initiator: &[u8], responder: &[u8], cuts: &[(bool, usize)]) -> Answer {
    let (mut a, mut b) = (0, 0);
    for (first, len) in cuts {
        if *first {
            a = initiator.len().min(a + len);
        } else {
            b = responder.len().min(b + len);
        }
        let answer = ask(&initiator[..a], &responder[..b], [false; 2]);
        if answer.is_final() {
            return answer;
        }
    }
    ask(initiator, responder, [true; 2])
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let example = (0..EXAMPLES.streams.len()).prop_map(|index| EXAMPLES.streams[index].clone());
    let changed = (example.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    let longer = (example.clone(), example.clone()).prop_map(|(a, b)| [a, b].concat());
    let long = (example.clone(), LIMIT - 50..LIMIT + 50).prop_map(|(mut bytes, len)| {
        bytes.resize(len, b'a');
        bytes
    });
    prop_oneof![4 => example, 4 => changed, 2 => longer, 1 => long, 1 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn cutting_changes_nothing(
        initiator in stream(),
        responder in stream(),
        cuts in prop::collection::vec((any::<bool>(), prop_oneof![1..4_usize, 1..40_usize, 500..1_500_usize]), 0..40),
    ) {
        let whole = ask(&initiator, &responder, [true; 2]);
        prop_assert!(whole.is_final());
        prop_assert_eq!(ask_in_pieces(&initiator, &responder, &cuts), whole);
    }

    #[test]
    fn switches_stay(initiator in stream(), responder in stream(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
        for (protocol, _) in SIGNATURES.protocols() {
            let (a, b) = (a.index(initiator.len() + 1), b.index(responder.len() + 1));
            let part = Prefixes { initiator: &initiator[..a], responder: &responder[..b], ..Prefixes::default() };
            let whole = Prefixes { initiator: &initiator, responder: &responder, initiator_ended: true, responder_ended: true };
            let early = SIGNATURES.switch(protocol, &part);
            let late = SIGNATURES.switch(protocol, &whole);
            prop_assert!(early == Switch::More || early == late);
            if let Switch::At { initiator: a, responder: b } = late {
                prop_assert!(a <= initiator.len() && b <= responder.len());
            }
            let _complete = SIGNATURES.stream_names(protocol, &part, &mut Names::default());
        }
    }

    #[test]
    fn any_datagram_is_taken(index in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = EXAMPLES.datagrams[index.index(EXAMPLES.datagrams.len())].clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() + 1));
        let mut state = DatagramState::default();
        let first = SIGNATURES.datagram(&mut state, Side::Initiator, &bytes);
        if first.is_final() {
            prop_assert_eq!(SIGNATURES.datagram(&mut state, Side::Responder, b"other"), first);
            prop_assert_eq!(SIGNATURES.datagrams_end(&state), first);
        }
        for (protocol, _) in SIGNATURES.protocols() {
            let _found = SIGNATURES.datagram_names(protocol, &bytes, &mut Names::default());
        }
    }
}

/// A small generator, so that a failure is the same again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }
}

/// Asserts that bytes have no name, in a stream or in datagrams.
fn assert_nameless(one: &[u8], other: &[u8], what: &str) {
    for (initiator, responder) in [(one, &[][..]), (&[][..], one), (one, other)] {
        let answer = ask(initiator, responder, [true; 2]);
        let name = answer.protocol().map(|protocol| SIGNATURES.name(protocol));
        assert_eq!(name, None, "{what} of {} bytes in a stream: {:?}", one.len(), &one[..one.len().min(40)]);
    }
    let mut state = DatagramState::default();
    for payload in [one, other, one, other, one] {
        let _answer = SIGNATURES.datagram(&mut state, Side::Initiator, payload);
    }
    let name = SIGNATURES.datagrams_end(&state).protocol().map(|protocol| SIGNATURES.name(protocol));
    assert_eq!(name, None, "{what} of {} bytes in datagrams: {:?}", one.len(), &one[..one.len().min(40)]);
}

#[test]
fn noise_has_no_name() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let rounds: usize = std::env::var("NOISE").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    for _ in 0..rounds {
        let (len, other_len) = (1 + random.below(1_500), 1 + random.below(200));
        // Most answers hang on the first bytes, so most rounds are short.
        let len = if random.below(8) == 0 { len } else { 1 + len % 120 };
        let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let other: Vec<u8> = (0..other_len).map(|_| random.next() as u8).collect();
        assert_nameless(&noise, &other, "noise");
        let text: Vec<u8> = noise.iter().map(|byte| b' ' + byte % 95).collect();
        let other_text: Vec<u8> = other.iter().map(|byte| b' ' + byte % 95).collect();
        assert_nameless(&text, &other_text, "text");
        // Small numbers and zeros, as heads of binary protocols have.
        let small: Vec<u8> = noise.iter().map(|byte| if byte & 3 == 0 { byte >> 5 } else { 0 }).collect();
        let _answer = ask(&small, &other, [true; 2]);
    }
}

#[test]
fn one_byte_over_and_over_has_no_name() {
    for byte in [0, 1, 0x20, b'a', 0x30, 0x80, 0xff] {
        for len in 1..=1_500 {
            assert_nameless(&vec![byte; len], &vec![byte; len], "one byte");
        }
    }
}

#[test]
fn nothing_has_no_name() {
    assert_eq!(ask(b"", b"", [true; 2]), Answer::Unknown);
    assert_eq!(ask(b"", b"", [false; 2]), Answer::More);
    assert_eq!(SIGNATURES.datagrams_end(&DatagramState::default()), Answer::Unknown);
    assert_eq!(SIGNATURES.datagram(&mut DatagramState::default(), Side::Initiator, b""), Answer::More);
    assert!(size_of::<DatagramState>() <= 64);
}
