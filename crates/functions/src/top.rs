//! Selects the heaviest flows of a table without copying all flows.

use alloc::vec::Vec;
use core::cmp::Reverse;

/// Returns the `count` flows with the greatest weight, heaviest first, ties by key. Flows of weight 0 are left out.
pub(crate) fn heaviest<K: Ord + Copy, F: Copy>(
    flows: &mut dyn Iterator<Item = (K, F)>,
    count: usize,
    weight: impl Fn(&F) -> u64,
) -> Vec<(K, F)> {
    let order = |(key, flow): &(K, F)| (Reverse(weight(flow)), *key);
    let mut candidates = Vec::new();
    // Minimum weight that can still be among the heaviest.
    let mut least = 1;
    for flow in flows {
        if weight(&flow.1) < least {
            continue;
        }
        candidates.push(flow);
        // Twice the room, so that sorting is rare.
        if candidates.len() >= 2 * count.max(32) {
            candidates.sort_unstable_by_key(order);
            candidates.truncate(count);
            least = candidates.last().map_or(least, |(_, flow)| weight(flow));
        }
    }
    candidates.sort_unstable_by_key(order);
    candidates.truncate(count);
    candidates
}

#[cfg(test)]
mod tests {
    use super::heaviest;
    use std::vec::Vec;

    #[test]
    fn agrees_with_sorting_everything() {
        let flows: Vec<(u32, u64)> = (0..1000_u32).map(|key| (key, u64::from(key * 7919 % 211))).collect();
        let mut sorted = flows.clone();
        sorted.sort_by_key(|(key, weight)| (u64::MAX - weight, *key));
        for count in [0, 1, 10, 100] {
            assert_eq!(heaviest(&mut flows.iter().copied(), count, |weight| *weight), sorted[..count]);
        }
        assert_eq!(heaviest(&mut [(1, 0_u64), (2, 3)].into_iter(), 9, |weight| *weight), [(2, 3)]);
    }
}
