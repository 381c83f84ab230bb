//! Agreement with nDPI on the labelled captures, where they are at hand: beside the repository, or in the folder `MILLRACE_TRACES`.
#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use millrace_identify::{Prefixes, Signatures};
use proptest::prelude::*;

#[path = "../examples/score/judge.rs"]
#[allow(dead_code)]
mod judge;

fn traces() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    given.into_iter().chain([beside]).find(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// The measured values, rounded down.
#[test]
fn agreement_with_ndpi() {
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared captures");
        return;
    };
    let report = judge::compare(&traces, judge::labels(&traces, "apps/"));
    assert!(report.captures > 600, "{report}");
    assert!(report.recall() >= 0.981, "{report}");
    assert!(report.precision() >= 0.993, "{report}");
}

/// Both sides of each stream of the captures.
static STREAMS: LazyLock<Vec<[Vec<u8>; 2]>> = LazyLock::new(|| {
    let Some(traces) = traces() else { return Vec::new() };
    let sessions = judge::files(&traces, "apps/").into_iter().filter_map(|file| judge::sessions(&traces.join(file)));
    let streams = sessions.flat_map(|all| all.into_values()).filter(|session| session.first_datagram().is_none());
    streams.filter(judge::Session::speaks).map(|session| [session.stream(0), session.stream(1)]).collect()
});

static SIGNATURES: LazyLock<Signatures> = LazyLock::new(Signatures::built_in);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Streams of captures, cut anywhere and read in any order of their sides.
    #[test]
    fn cutting_real_streams_changes_nothing(
        stream in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<bool>(), prop_oneof![1..4_usize, 1..60_usize, 500..1_500_usize]), 0..60),
    ) {
        if STREAMS.is_empty() {
            return Ok(());
        }
        let [initiator, responder] = stream.get(&STREAMS);
        let ask = |a: usize, b: usize, ended: bool| {
            let (initiator_ended, responder_ended) = (ended, ended);
            SIGNATURES.stream(&Prefixes {
                initiator: &initiator[..a.min(initiator.len())],
                responder: &responder[..b.min(responder.len())],
                initiator_ended,
                responder_ended,
            })
        };
        let whole = ask(usize::MAX, usize::MAX, true);
        let (mut a, mut b) = (0, 0);
        for (first, len) in cuts {
            *if first { &mut a } else { &mut b } += len;
            let answer = ask(a, b, false);
            prop_assert!(!answer.is_final() || answer == whole, "{a} and {b} bytes: {answer:?} before {whole:?}");
        }
    }
}
