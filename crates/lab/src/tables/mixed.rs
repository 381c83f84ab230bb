//! The mixed workload of a connection tracker: look-ups, and now and then a flow that opens or ends.

use packet::FiveTuple4;

use super::keys::{BURST, Random};

/// Operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixedOp {
    Look,
    Open,
    End,
}

/// Operations with their keys. It can run repeatedly: before a run, the flows of [`out`](Self::out) are removed from a full table; after
/// it, those of [`back`](Self::back) are inserted.
#[derive(Clone, Debug, Default)]
pub(super) struct MixedWorkload {
    pub(super) ops: Vec<(MixedOp, FiveTuple4)>,
    /// Number of look-ups.
    pub(super) looks: u64,
    pub(super) out: Vec<FiveTuple4>,
    pub(super) back: Vec<FiveTuple4>,
}

/// One of this many operations is not a look-up; openings and ends alternate.
const CHANGES: u64 = 10;
/// Maximum number of operations.
const OPS_MAX: usize = 1 << 20;

impl MixedWorkload {
    /// A workload for a table of `flows`, with the look-ups `queries`.
    pub(super) fn new(flows: &[FiveTuple4], queries: &[FiveTuple4], random: &mut Random) -> Self {
        if flows.is_empty() || queries.is_empty() {
            return Self::default();
        }
        // The flows that open and end. Other operations lie between an end and the next opening, so that the entry has left the cache.
        let changing = &flows[..(flows.len() / 2).clamp(1, OPS_MAX)];
        let lag = BURST.min(changing.len() / 2);
        let one = |number: usize| changing[number % changing.len()];
        let mut ops = Vec::with_capacity(queries.len().min(OPS_MAX));
        let (mut ended, mut opened) = (lag, 0);
        for query in queries.iter().take(OPS_MAX) {
            let owed = ended > opened + lag;
            let act = match random.below(CHANGES) {
                0 if owed => MixedOp::Open,
                0 => MixedOp::End,
                _ => MixedOp::Look,
            };
            ops.push((
                act,
                match act {
                    MixedOp::Look => *query,
                    MixedOp::End => one(ended),
                    MixedOp::Open => one(opened),
                },
            ));
            ended += usize::from(act == MixedOp::End);
            opened += usize::from(act == MixedOp::Open);
        }
        let out = (0..lag).map(one).collect();
        let back = (opened..ended).map(one).collect();
        let looks = ops.iter().filter(|(act, _)| *act == MixedOp::Look).count() as u64;
        Self { ops, looks, out, back }
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
            let mixed = MixedWorkload::new(&flows, &queries, &mut Random(1));
            let mut table: HashSet<FiveTuple4> = flows.iter().copied().collect();
            for _ in 0..2 {
                assert!(mixed.out.iter().all(|key| table.remove(key)));
                let mut looks = 0;
                for (act, key) in &mixed.ops {
                    match act {
                        MixedOp::Look => looks += 1,
                        MixedOp::Open => assert!(table.insert(*key)),
                        MixedOp::End => assert!(table.remove(key)),
                    }
                }
                assert!((0.89..0.91).contains(&(f64::from(looks) / mixed.ops.len() as f64)));
                assert!(mixed.back.iter().all(|key| table.insert(*key)));
                assert_eq!(table.len(), flows.len());
            }
        }
    }
}
