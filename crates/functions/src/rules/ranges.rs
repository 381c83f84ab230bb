//! A map from addresses to values, made of networks, of which the longest prefix counts. It is a sorted list of ranges.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub(super) trait Address: Copy + Ord {
    const BITS: u32;
    const MAX: Self;
    /// The low bits of a number.
    fn of(bits: u128) -> Self;
    fn bits(self) -> u128;
}

impl Address for u32 {
    const BITS: u32 = 32;
    const MAX: Self = Self::MAX;

    #[inline(always)]
    fn of(bits: u128) -> Self {
        bits as Self
    }

    fn bits(self) -> u128 {
        self.into()
    }
}

impl Address for u128 {
    const BITS: u32 = 128;
    const MAX: Self = Self::MAX;

    #[inline(always)]
    fn of(bits: u128) -> Self {
        bits
    }

    fn bits(self) -> u128 {
        self
    }
}

/// A value for each address. Small maps are searched as a whole; large ones of IPv4 have an index by the leading 16 bits.
#[derive(Clone, Debug)]
pub(super) struct Ranges<A, V> {
    /// The first address of each range, ascending; the first is 0.
    starts: Box<[A]>,
    values: Box<[V]>,
    /// For each leading 16 bits, the number of ranges that begin before. Empty if there is no index.
    index: Box<[u32]>,
}

/// Fewer ranges than this are searched without an index.
const INDEXED_MIN: usize = 4_096;

impl<A: Address, V: Copy + PartialEq> Ranges<A, V> {
    /// The map of these networks, each with its first and last address. Of two for the same network, the first one counts. All other
    /// addresses have the value `none`.
    pub(super) fn new(mut networks: Vec<(A, A, V)>, none: V) -> Self {
        networks.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
        networks.dedup_by(|later, kept| (later.0, later.1) == (kept.0, kept.1));
        let mut ranges: Vec<(A, V)> = vec![(A::of(0), none)];
        let mut begin = |at: A, value: V| {
            if ranges.last().is_some_and(|(start, _)| *start == at) {
                ranges.pop();
            }
            if ranges.last().is_none_or(|(_, before)| *before != value) {
                ranges.push((at, value));
            }
        };
        // The networks around the present place, the outermost first.
        let mut around: Vec<(A, V)> = Vec::new();
        let leave = |around: &mut Vec<(A, V)>, begin: &mut dyn FnMut(A, V), until: Option<A>| {
            while let Some((last, _)) = around.last().copied().filter(|(last, _)| until.is_none_or(|at| *last < at)) {
                around.pop();
                if last != A::MAX {
                    begin(A::of(last.bits() + 1), around.last().map_or(none, |(_, value)| *value));
                }
            }
        };
        for (first, last, value) in networks {
            leave(&mut around, &mut begin, Some(first));
            begin(first, value);
            around.push((last, value));
        }
        leave(&mut around, &mut begin, None);
        let index: Box<[u32]> = match A::BITS == 32 && ranges.len() >= INDEXED_MIN {
            true => {
                let before = |top: u128| ranges.partition_point(|(start, _)| start.bits() < top << 16) as u32;
                (0..=1 << 16).map(before).collect()
            }
            false => Box::default(),
        };
        let (starts, values): (Vec<A>, Vec<V>) = ranges.into_iter().unzip();
        Self { starts: starts.into(), values: values.into(), index }
    }

    /// The value of an address.
    #[inline]
    pub(super) fn get(&self, address: A) -> V {
        let (first, last) = match self.index.get(address_top(address)..) {
            Some([first, last, ..]) => (*first as usize, *last as usize),
            Some(_) | None => (0, self.starts.len()),
        };
        let before = self.starts[first..last].partition_point(|start| *start <= address);
        self.values[first + before - 1]
    }
}

#[inline(always)]
fn address_top<A: Address>(address: A) -> usize {
    if A::BITS == 32 { (address.bits() >> 16) as usize } else { usize::MAX }
}

/// The networks that a range of addresses consists of, as first and last address.
pub(super) fn networks(first: u128, last: u128, bits: u32) -> impl Iterator<Item = (u128, u128)> {
    let mut next = (first <= last).then_some(first);
    core::iter::from_fn(move || {
        let start = next?;
        // The largest network that begins here and does not go beyond.
        let zeros = start.trailing_zeros().min(bits);
        let host = (0..=zeros).rev().map(ones).find(|host| start | host <= last)?;
        let end = start | host;
        next = end.checked_add(1).filter(|after| *after <= last);
        Some((start, end))
    })
}

/// A number with this many low bits set.
pub(super) const fn ones(bits: u32) -> u128 {
    match bits {
        0 => 0,
        bits => u128::MAX >> (128 - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Networks of few addresses, so that many lie in each other.
    fn some_networks() -> impl Strategy<Value = Vec<(u32, u32, u8)>> {
        let network = (0..=32_u32, any::<u8>(), any::<u8>()).prop_map(|(len, seed, value)| {
            let host = ones(32 - len) as u32;
            let first = u32::from(seed).wrapping_mul(0x0101_0101) & !host;
            (first, first | host, value % 4)
        });
        proptest::collection::vec(network, 0..40)
    }

    fn longest(networks: &[(u32, u32, u8)], address: u32) -> u8 {
        let around = networks.iter().filter(|(first, last, _)| (*first..=*last).contains(&address));
        // The first of the smallest ones.
        around.fold(None, smaller).map_or(9, |(_, _, value)| value)
    }

    fn smaller(best: Option<(u32, u32, u8)>, next: &(u32, u32, u8)) -> Option<(u32, u32, u8)> {
        Some(best.filter(|(first, last, _)| last - first <= next.1 - next.0).unwrap_or(*next))
    }

    proptest! {
        #[test]
        fn the_longest_prefix_counts(networks in some_networks(), seeds in proptest::collection::vec(any::<u8>(), 50)) {
            let map = Ranges::new(networks.clone(), 9);
            let wide = networks.iter().map(|(first, last, value)| {
                (u128::from(*first) << 96, u128::from(*last) << 96 | ones(96), *value)
            });
            let wide = Ranges::new(wide.collect(), 9);
            let of_seed = |seed: &u8| u32::from(*seed).wrapping_mul(0x0101_0101);
            let edges = networks.iter().flat_map(|(first, last, _)| [*first, *last, first.wrapping_sub(1), last.wrapping_add(1)]);
            for address in edges.chain(seeds.iter().map(of_seed)) {
                prop_assert_eq!(map.get(address), longest(&networks, address));
                prop_assert_eq!(wide.get(u128::from(address) << 96 | 5), longest(&networks, address));
            }
        }

        #[test]
        fn a_range_is_cut_into_networks(first: u16, len in 0..3_000_u128) {
            let (first, last) = (u128::from(first), u128::from(first) + len);
            let mut next = first;
            for (start, end) in networks(first, last, 32) {
                let host = start ^ end;
                prop_assert!(start == next && host & (host + 1) == 0 && start & host == 0);
                next = end + 1;
            }
            prop_assert_eq!(next, last + 1);
        }
    }

    #[test]
    fn a_large_map_has_an_index() {
        let networks: Vec<(u32, u32, bool)> = (0..20_000_u32).map(|nth| (nth * 200_000, nth * 200_000, true)).collect();
        let map = Ranges::new(networks, false);
        assert!(!map.index.is_empty());
        for address in (0..=u32::MAX).step_by(50_000) {
            assert_eq!(map.get(address), address % 200_000 == 0 && address < 4_000_000_000);
        }
        assert!(!map.get(u32::MAX));
        assert_eq!(networks_of_all(), 1);
    }

    fn networks_of_all() -> usize {
        networks(0, u128::MAX, 128).count() + networks(0, u32::MAX.into(), 32).count() - 1
    }
}
