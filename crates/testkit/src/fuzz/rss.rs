//! Check of packet sets for cards, in a file or a line: any text gives packet sets or an error with a position. A key that is found does
//! what it promises.

use rss::{Card, Driver, Outcome, PacketSets, Problem, SetsError};

/// Reads the input as a file and as a line, and asks a card about the packet sets.
pub fn rss(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for read in [PacketSets::parse(text), PacketSets::from_line(text, None)] {
        match read {
            Ok(sets) => ask(&sets, bytes),
            Err(error) => points_into(text, &error),
        }
    }
}

fn points_into(text: &str, error: &SetsError) {
    assert!(!error.message().is_empty());
    assert!((1..=text.matches('\n').count() + 1).contains(&error.line()), "line {} of {text:?}", error.line());
    assert!(error.of("sets").contains(error.message()), "{error:?}");
}

/// Maximum numbers of ports, types and fields, because they make systems of equations larger.
const PORTS_MAX: usize = 3;

fn ask(sets: &PacketSets, bytes: &[u8]) {
    for port in &sets.ports {
        assert!(!port.types.is_empty(), "{} has packets", port.name);
        assert!(port.types.iter().all(|of_type| !of_type.fields.is_empty()));
    }
    // One card and driver for each input, to keep a run short.
    let sum: usize = bytes.iter().map(|byte| usize::from(*byte)).sum();
    let cards: Vec<&Card> = Card::all().iter().collect();
    let (card, driver) = (cards[sum % cards.len()], Driver::ALL[sum / cards.len() % Driver::ALL.len()]);
    let one_card = !sum.is_multiple_of(3);
    let checks = rss::check(card, driver, sets, one_card);
    assert_eq!(checks.len(), sets.ports.iter().map(|port| port.types.len()).sum::<usize>(), "an answer for each");
    if sets.ports.len() > PORTS_MAX {
        return;
    }
    let problem = Problem { one_card, ..Problem::new(card, driver, sets) };
    if let Outcome::Solved(solution) = rss::solve(&problem) {
        assert_eq!(rss::verify(&solution, 64, 7), Ok(()), "{} {driver:?}", card.name);
    }
}
