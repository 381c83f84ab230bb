//! Checks of protocol identification: answers do not depend on the cutting, states stay settled, and a signature file gives signatures or an
//! error with a position.

use std::sync::LazyLock;

use identify::{Answer, DatagramState, Names, Prefixes, Side, Signatures, Switch};

static SIGNATURES: LazyLock<Signatures> = LazyLock::new(Signatures::built_in);

/// Reads the input by its first byte: as both sides of a stream, as datagrams, or as a signature file.
pub fn identify(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => streams(rest),
        1 => datagrams(rest),
        _ => file(rest),
    }
}

/// The first byte divides both sides; then each byte behind the first two says where a side is cut.
fn streams(bytes: &[u8]) {
    let [split, cuts, rest @ ..] = bytes else { return };
    let (initiator, responder) = rest.split_at(usize::from(*split).min(rest.len()));
    let ask = |a: usize, b: usize, ended: bool| Prefixes {
        initiator: &initiator[..a.min(initiator.len())],
        responder: &responder[..b.min(responder.len())],
        initiator_ended: ended,
        responder_ended: ended,
    };
    let whole = ask(usize::MAX, usize::MAX, true);
    let last = SIGNATURES.stream(&whole);
    assert!(last.is_final());
    let step = usize::from(cuts % 16) + 1;
    let (mut a, mut b) = (0, 0);
    while a < initiator.len() || b < responder.len() {
        // Which side goes ahead depends on the cutting, too.
        (a, b) = if cuts & 16 == 0 || a >= initiator.len() { (a + step, b + step) } else { (a + step, b) };
        let answer = SIGNATURES.stream(&ask(a, b, false));
        assert!(answer == Answer::More || answer == last, "{answer:?} before {last:?}");
    }
    for (protocol, about) in SIGNATURES.protocols() {
        let late = SIGNATURES.switch(protocol, &whole);
        let early = SIGNATURES.switch(protocol, &ask(step, step, false));
        assert!(early == Switch::More || early == late, "{}", about.name);
        if let Switch::At { initiator: a, responder: b } = late {
            assert!(a <= initiator.len() && b <= responder.len(), "{}", about.name);
        }
        assert!(SIGNATURES.stream_names(protocol, &whole, &mut Names::default()), "{}", about.name);
    }
}

/// Datagrams, each behind its length.
fn datagrams(mut rest: &[u8]) {
    let mut state = DatagramState::default();
    let mut settled = None;
    while let Some((len, bytes)) = rest.split_first() {
        let (payload, behind) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = behind;
        let side = if len % 2 == 0 { Side::Initiator } else { Side::Responder };
        let answer = SIGNATURES.datagram(&mut state, side, payload);
        assert!(settled.is_none_or(|settled| settled == answer));
        if answer.is_final() {
            settled = Some(answer);
        }
        for (protocol, _) in SIGNATURES.protocols() {
            let _whole = SIGNATURES.datagram_names(protocol, payload, &mut Names::default());
        }
    }
    let end = SIGNATURES.datagrams_end(&state);
    assert!(end.is_final() && settled.is_none_or(|settled| settled == end));
}

fn file(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Signatures::check(text, "fuzz.sig") {
        Ok(()) => {}
        Err(error) => {
            let lines = text.matches('\n').count() + 2;
            assert!((1..=lines).contains(&error.line) && error.column > 0, "{error}");
            assert!(error.file == "fuzz.sig" && !error.message.is_empty());
        }
    }
}
