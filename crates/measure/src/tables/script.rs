//! A tracker's day: look-ups, with a flow that opens and one that ends now and then.

use packet::FiveTuple4;

use super::keys::{BURST, Random};

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Look,
    Open,
    End,
}

/// Acts with their keys. It can be run over and over: between runs the flows of [`out`](Self::out) are taken out of a full
/// table, after a run those of [`back`](Self::back) are put in.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) acts: Vec<(Act, FiveTuple4)>,
    /// How many of them are look-ups.
    pub(super) looks: u64,
    pub(super) out: Vec<FiveTuple4>,
    pub(super) back: Vec<FiveTuple4>,
}

/// One act of so many is not a look-up; these take turns between ends and openings.
const CHANGES: u64 = 10;
/// Acts of a script, at most.
const ACTS_MAX: usize = 1 << 20;

impl Script {
    /// A script over a table of `flows`, whose look-ups are `queries`.
    pub(super) fn new(flows: &[FiveTuple4], queries: &[FiveTuple4], random: &mut Random) -> Self {
        if flows.is_empty() || queries.is_empty() {
            return Self::default();
        }
        // The flows that come and go. Between end and opening lie some others, or the entry would still be near.
        let changing = &flows[..(flows.len() / 2).clamp(1, ACTS_MAX)];
        let lag = BURST.min(changing.len() / 2);
        let one = |number: usize| changing[number % changing.len()];
        let mut acts = Vec::with_capacity(queries.len().min(ACTS_MAX));
        let (mut ended, mut opened) = (lag, 0);
        for query in queries.iter().take(ACTS_MAX) {
            let owed = ended > opened + lag;
            let act = match random.below(CHANGES) {
                0 if owed => Act::Open,
                0 => Act::End,
                _ => Act::Look,
            };
            acts.push((
                act,
                match act {
                    Act::Look => *query,
                    Act::End => one(ended),
                    Act::Open => one(opened),
                },
            ));
            ended += usize::from(act == Act::End);
            opened += usize::from(act == Act::Open);
        }
        let out = (0..lag).map(one).collect();
        let back = (opened..ended).map(one).collect();
        let looks = acts.iter().filter(|(act, _)| *act == Act::Look).count() as u64;
        Self { acts, looks, out, back }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::tables::keys::made_up;

    #[test]
    fn what_ends_was_in_and_what_opens_was_not() {
        for entries in [1, 2, 3, 100, 10_000] {
            let flows: Vec<FiveTuple4> = (0..entries).map(made_up).collect();
            let queries: Vec<FiveTuple4> = flows.iter().copied().cycle().take(1 << 16).collect();
            let script = Script::new(&flows, &queries, &mut Random(1));
            let mut table: HashSet<FiveTuple4> = flows.iter().copied().collect();
            for _ in 0..2 {
                assert!(script.out.iter().all(|key| table.remove(key)));
                let mut looks = 0;
                for (act, key) in &script.acts {
                    match act {
                        Act::Look => looks += 1,
                        Act::Open => assert!(table.insert(*key)),
                        Act::End => assert!(table.remove(key)),
                    }
                }
                assert!((0.89..0.91).contains(&(f64::from(looks) / script.acts.len() as f64)));
                assert!(script.back.iter().all(|key| table.insert(*key)));
                assert_eq!(table.len(), flows.len());
            }
        }
    }
}
