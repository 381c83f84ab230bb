//! The guard that `bench --guard atomic` and `verify --guard atomic` take: steps that add up are added to the entry with one atomic
//! operation. It is a baseline of the figures; `shared` itself locks the entry.

use std::sync::Arc;

use flow::shared::{Adding, EpochMember, GuardedEntry};
use nf::{Effects, NetworkFunction, Speed, Sum, Verdict};
use packet::{Key, Nanos};

use crate::placement::entries::{Guarding, Stepping};

impl Guarding for Adding {
    fn passes(cores: usize) -> (Vec<EpochMember>, Self::Epochs) {
        let members = EpochMember::all(cores);
        let epochs = Arc::clone(members.first().expect("there is at least one core").epochs());
        (members, epochs)
    }

    /// The atomic operation may fail and the step run again, so the caller computes the verdict afterwards from the returned flow, which is
    /// small.
    #[inline(always)]
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow, Self::Sum>,
        now: Nanos,
        _: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>> {
        let (nf, mut before) = (step.nf(), *entry);
        Self::fold_sum_in(nf, &mut before);
        let mut after = before.value;
        let (_, Effects { deadline, close, assured }) = step.packet(&mut after, now);
        let granted = !close
            && (entry.protected || !assured)
            && entry.add(N::Speed::amount(step.lane.meta).into(), now, deadline?);
        // Checks that `add` accepts the sum. Debug builds also compare the outcome.
        let mut added = entry.value;
        let adds = granted && N::Speed::add(nf, &mut added, &sum(entry));
        debug_assert!(!adds || added == after, "steps add up");
        adds.then_some(Some(before.value))
    }

    #[inline(always)]
    fn fold_sum_in<K: Key, N: NetworkFunction>(nf: &N, entry: &mut GuardedEntry<K, N::Flow, Self::Sum>) {
        if entry.sum.count > 0 {
            let sum = sum(entry);
            let adds = N::Speed::add(nf, &mut entry.value, &sum);
            debug_assert!(adds, "it was asked when the last of these steps was taken");
            entry.sum = flow::shared::Sum::default();
        }
    }
}

/// The sum of an entry, in the form that functions take.
#[inline(always)]
const fn sum<K, V>(entry: &GuardedEntry<K, V, flow::shared::Sum>) -> Sum {
    Sum { count: entry.sum.count, amount: entry.sum.amount, last: entry.now }
}
