//! Check of case files and of frames in words: any text gives cases or an error with a position, and a frame's description parses back.

use case::{Cases, Spec};

/// Reads the input as a case file, and describes it as a frame.
pub fn cases(bytes: &[u8]) {
    reads_back(bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Cases::read(text) {
        Ok(cases) => {
            for case in &cases.cases {
                let trace = case.trace();
                assert_eq!(trace.len(), case.steps.len());
                trace.iter().take(PACKETS_MAX).for_each(|(_, frame)| reads_back(frame));
            }
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            let lines = text.matches('\n').count() + 1;
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error:?} of {text:?}");
        }
    }
}

/// Maximum number of packets, to keep a run short.
const PACKETS_MAX: usize = 20;

/// A frame's description is a packet with the same description.
fn reads_back(frame: &[u8]) {
    if frame.is_empty() {
        return;
    }
    let shown = Spec::of(frame).to_string();
    let read = Spec::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(Spec::of(&read.to_frame()).to_string(), shown, "{frame:02x?}");
}
