//! The sessions of a table: the first ones.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::sessions::Session;

/// Keeps the sessions whose first packets are the earliest, and counts all.
pub(super) struct Shown {
    /// Maximum number of sessions kept; 0 for all.
    most: usize,
    /// The latest one on top.
    kept: BinaryHeap<ByFirst>,
    all: u64,
}

struct ByFirst(Session);

impl Shown {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, kept: BinaryHeap::new(), all: 0 }
    }

    pub(super) fn add(&mut self, session: Session) {
        self.all += 1;
        self.kept.push(ByFirst(session));
        if self.most > 0 && self.kept.len() > self.most {
            self.kept.pop();
        }
    }

    /// Number of sessions that were added.
    pub(super) const fn all(&self) -> u64 {
        self.all
    }

    /// The sessions kept, the earliest first.
    pub(super) fn into_sessions(self) -> Vec<Session> {
        self.kept.into_sorted_vec().into_iter().map(|ByFirst(session)| session).collect()
    }
}

impl Ord for ByFirst {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |Self(session): &Self| (session.first, session.source, session.destination, session.protocol);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for ByFirst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByFirst {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByFirst {}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use packet::{Endpoint, FiveTuple, Nanos, protocol};
    use proptest::prelude::*;

    use super::*;

    fn session(first: u64) -> Session {
        let end = |port| Endpoint::new(Ipv4Addr::LOCALHOST.into(), port);
        let tuple = FiveTuple::between(end(1), end(2), protocol::UDP).expect("one family");
        Session::new(&tuple, Nanos(first))
    }

    proptest! {
        #[test]
        fn the_first_ones_are_kept(mut times in proptest::collection::vec(0..50u64, 0..60), most in 0..20usize) {
            let mut shown = Shown::new(most);
            times.iter().for_each(|time| shown.add(session(*time)));
            prop_assert_eq!(shown.all(), times.len() as u64);
            times.sort_unstable();
            times.truncate(if most == 0 { usize::MAX } else { most });
            let kept: Vec<u64> = shown.into_sessions().iter().map(|session| session.first.0).collect();
            prop_assert_eq!(kept, times);
        }
    }
}
