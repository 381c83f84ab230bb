//! The look-up table of Maglev (Eisenbud et al., NSDI '16, section 3.4): consistent hashing by preference lists.
//!
//! Each backend has a permutation of the table's entries, made of two hashes of its endpoint. In turn, each backend takes the first free
//! entry of its permutation. So their numbers of entries differ by one at most, and when a backend leaves, most other entries stay.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use packet::{Endpoint, Family, FiveTuple, FlowKey, Key};

/// The look-up table: the backend of each entry.
#[derive(Clone, Debug)]
pub(super) struct Table(Box<[u16]>);

/// Seeds of the two hashes. Balancers side by side must use the same.
const OFFSET: u64 = 0x6d61_676c_6576_0001;
const SKIP: u64 = 0x6d61_676c_6576_0002;

impl Table {
    /// Builds a table of `size` entries, a prime, for backends with different endpoints.
    ///
    /// # Panics
    /// If there are more backends than entries, or none.
    pub(super) fn new(backends: &[Endpoint], size: usize) -> Self {
        assert!(!backends.is_empty() && backends.len() <= size && backends.len() < usize::from(FREE));
        // Because the size is a prime, any step but zero visits all entries.
        let list = |backend: &Endpoint| {
            let step = hash(backend, SKIP) % (size as u64 - 1) + 1;
            Preferences { next: (hash(backend, OFFSET) % size as u64) as usize, step: step as usize }
        };
        let mut lists: Vec<Preferences> = backends.iter().map(list).collect();
        let mut entries = vec![FREE; size].into_boxed_slice();
        for taken in 0..size {
            let backend = taken % backends.len();
            let Preferences { next, step } = &mut lists[backend];
            while entries[*next] != FREE {
                *next = (*next + *step) % size;
            }
            entries[*next] = backend as u16;
        }
        Self(entries)
    }

    /// Returns the backend of a hash.
    #[inline]
    pub(super) fn look_up(&self, hash: u64) -> usize {
        usize::from(self.0[(hash % self.0.len() as u64) as usize])
    }
}

/// A backend's position in its permutation: `next`, then `step` further each time.
struct Preferences {
    next: usize,
    step: usize,
}

const FREE: u16 = u16::MAX;

fn hash(backend: &Endpoint, seed: u64) -> u64 {
    let Some(name) = FiveTuple::between(*backend, *backend, 0) else { unreachable!("it is of its own family") };
    match name.family() {
        Family::V4(name) => name.hash(seed),
        Family::V6(name) => name.hash(seed),
    }
}

/// Returns true for a prime.
pub(super) const fn is_prime(number: u64) -> bool {
    let mut divisor = 2;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) {
            return false;
        }
        divisor += 1;
    }
    number >= 2
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const SMALL: usize = 65_537;

    fn backends(count: u16) -> Vec<Endpoint> {
        let v4 = |n: u16| Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, (n >> 8) as u8, n as u8)), 8_080);
        (0..count).map(v4).collect()
    }

    fn shares(table: &Table, backends: usize) -> Vec<usize> {
        let mut shares = vec![0; backends];
        table.0.iter().for_each(|backend| shares[usize::from(*backend)] += 1);
        shares
    }

    /// Counts entries that changed their backend although the old one is still there.
    fn disrupted(before: &Table, after: &Table, gone: usize) -> usize {
        let renamed = |backend: u16| usize::from(backend) + usize::from(usize::from(backend) >= gone);
        let pairs = before.0.iter().zip(&after.0);
        pairs.filter(|(old, new)| usize::from(**old) != gone && usize::from(**old) != renamed(**new)).count()
    }

    #[test]
    fn shares_differ_by_one_at_most() {
        for count in [1, 2, 3, 10, 100, 655] {
            let shares = shares(&Table::new(&backends(count), SMALL), usize::from(count));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count} backends get from {least} to {most} entries");
        }
    }

    #[test]
    fn a_backend_that_leaves_hardly_disturbs_the_others() {
        let all = backends(100);
        let before = Table::new(&all, SMALL);
        for gone in [0, 17, 50, 99] {
            let mut remaining = all.clone();
            remaining.remove(gone);
            let after = Table::new(&remaining, SMALL);
            let disrupted = disrupted(&before, &after, gone);
            // A hundredth must move: the leaver's own. Hashing modulo the number of backends would move nearly all others.
            assert!(disrupted * 100 < 2 * SMALL, "without {gone}, {disrupted} entries of others moved");
        }
    }

    #[test]
    fn larger_tables_are_disturbed_less() {
        let all = backends(100);
        let moved = |size| {
            let (before, after) = (Table::new(&all, size), Table::new(&all[..99], size));
            disrupted(&before, &after, 99) as f64 / size as f64
        };
        assert!(moved(655_373) < moved(65_537) && moved(65_537) < moved(10_007));
    }

    /// The paper's pseudocode 1 with its permutations written out.
    fn as_in_the_paper(backends: &[Endpoint], size: usize) -> Vec<u16> {
        let permutation = |backend: &Endpoint| -> Vec<usize> {
            let offset = (hash(backend, OFFSET) % size as u64) as usize;
            let skip = (hash(backend, SKIP) % (size as u64 - 1)) as usize + 1;
            (0..size).map(|j| (offset + j * skip) % size).collect()
        };
        let permutations: Vec<Vec<usize>> = backends.iter().map(permutation).collect();
        let mut next = vec![0; backends.len()];
        let mut entry = vec![-1_i32; size];
        let mut filled = 0;
        loop {
            for backend in 0..backends.len() {
                let mut candidate = permutations[backend][next[backend]];
                while entry[candidate] >= 0 {
                    next[backend] += 1;
                    candidate = permutations[backend][next[backend]];
                }
                entry[candidate] = backend as i32;
                next[backend] += 1;
                filled += 1;
                if filled == size {
                    return entry.into_iter().map(|backend| backend as u16).collect();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn is_the_papers(count in 1..13_u16, size in prop::sample::select(vec![13_usize, 251, 1_009]), v6: bool) {
            let mut backends = backends(count);
            if v6 {
                for (backend, n) in backends.iter_mut().zip(0..) {
                    backend.address = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
                }
            }
            prop_assert_eq!(&*Table::new(&backends, size).0, &*as_in_the_paper(&backends, size));
        }
    }

    #[test]
    fn primes_are_told() {
        let primes: Vec<u64> = (0..30).filter(|number| is_prime(*number)).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(is_prime(65_537) && is_prime(655_373) && !is_prime(65_537 * 3));
    }
}
