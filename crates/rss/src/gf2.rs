//! Linear algebra over GF(2): homogeneous equations, and the space of their solutions.

/// A row of bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// A row of `len` zeros.
    #[must_use]
    pub fn zero(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Bit `bit`.
    ///
    /// # Panics
    /// Beyond the end.
    #[must_use]
    pub fn get(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Inverts bit `bit`.
    ///
    /// # Panics
    /// It is beyond the end.
    pub fn flip(&mut self, bit: usize) {
        self.0[bit / 64] ^= 1 << (bit % 64);
    }

    /// Adds another row of the same length.
    pub fn add(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word ^= other;
        }
    }

    /// The first bit that is one.
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }

    /// The first bit that is one and of which `wanted` is true.
    pub(crate) fn first_where(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.0.len() * 64).find(|bit| self.get(*bit) && wanted(*bit))
    }

    /// True if all are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.first().is_none()
    }
}

/// Equations: the sum of some unknowns is zero.
#[derive(Clone, Debug)]
pub struct System {
    unknowns: usize,
    /// In echelon form: each row's first bit is its pivot, and no two rows have the same.
    rows: Vec<Option<Bits>>,
}

impl System {
    /// No equations over so many unknowns.
    #[must_use]
    pub fn new(unknowns: usize) -> Self {
        Self { unknowns, rows: vec![None; unknowns] }
    }

    /// Adds an equation: the sum of these unknowns is zero. An unknown that occurs twice cancels. Returns `false` if the equation follows
    /// from the others.
    ///
    /// # Panics
    /// There is no such unknown.
    pub fn add(&mut self, unknowns: &[usize]) -> bool {
        let mut row = Bits::zero(self.unknowns);
        for unknown in unknowns {
            assert!(*unknown < self.unknowns, "unknown {unknown} of {}", self.unknowns);
            row.flip(*unknown);
        }
        while let Some(pivot) = row.first() {
            match &self.rows[pivot] {
                Some(other) => row.add(other),
                None => {
                    self.rows[pivot] = Some(row);
                    return true;
                }
            }
        }
        false
    }

    /// All that solves the equations.
    #[must_use]
    pub fn solve(&self) -> Space {
        let free = (0..self.unknowns).filter(|unknown| self.rows[*unknown].is_none());
        let basis = free.map(|free| self.solution(free)).collect();
        Space { unknowns: self.unknowns, basis }
    }

    /// The solution in which the free unknown `free` is one, and all other free ones are zero.
    fn solution(&self, free: usize) -> Bits {
        let mut solution = Bits::zero(self.unknowns);
        solution.flip(free);
        // From the last pivot to the first: all unknowns behind it are settled then.
        for pivot in (0..free).rev() {
            if let Some(row) = &self.rows[pivot] {
                let ones = row.0.iter().zip(&solution.0).map(|(row, solution)| (row & solution).count_ones());
                if ones.sum::<u32>() % 2 == 1 {
                    solution.flip(pivot);
                }
            }
        }
        solution
    }
}

/// The solutions of a [`System`].
#[derive(Clone, Debug)]
pub struct Space {
    unknowns: usize,
    basis: Vec<Bits>,
}

impl Space {
    /// How many unknowns may be chosen freely.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.basis.len()
    }

    /// A basis: every solution is the sum of some of these, in exactly one way.
    #[must_use]
    pub fn basis(&self) -> &[Bits] {
        &self.basis
    }

    /// True if this unknown is zero in every solution.
    #[must_use]
    pub fn is_forced(&self, unknown: usize) -> bool {
        !self.basis.iter().any(|solution| solution.get(unknown))
    }

    /// The sum of the basis vectors for which `choose` returns true.
    pub fn combine(&self, mut choose: impl FnMut() -> bool) -> Bits {
        let mut sum = Bits::zero(self.unknowns);
        for member in &self.basis {
            if choose() {
                sum.add(member);
            }
        }
        sum
    }

    /// True if these bits are a solution.
    #[must_use]
    pub fn contains(&self, bits: &Bits) -> bool {
        let mut rows = vec![None; self.unknowns];
        for member in &self.basis {
            reduce(&mut rows, member.clone(), true);
        }
        reduce(&mut rows, bits.clone(), false)
    }
}

/// Brings a row into the echelon form of others; `true` when they say as much. Otherwise it may be kept.
fn reduce(rows: &mut [Option<Bits>], mut row: Bits, keep: bool) -> bool {
    while let Some(pivot) = row.first() {
        match &rows[pivot] {
            Some(other) => row.add(other),
            None => {
                if keep {
                    rows[pivot] = Some(row);
                }
                return false;
            }
        }
    }
    true
}

/// The rank of a matrix with rows of up to 64 bits.
pub(crate) fn rank(rows: impl IntoIterator<Item = u64>) -> usize {
    let mut pivots: Vec<u64> = Vec::new();
    for mut row in rows {
        for pivot in &pivots {
            row = row.min(row ^ pivot);
        }
        if row != 0 {
            pivots.push(row);
        }
    }
    pivots.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from_word(word: u32, len: usize) -> Bits {
        let mut bits = Bits::zero(len);
        (0..len).filter(|bit| word >> bit & 1 == 1).for_each(|bit| bits.flip(bit));
        bits
    }

    proptest! {
        /// All 2^n assignments are tried: those that satisfy every equation are the space, no more and no fewer.
        #[test]
        fn space_is_what_brute_force_finds(
            unknowns in 1_usize..=10,
            equations in prop::collection::vec(prop::collection::vec(0_usize..10, 1..5), 0..12),
        ) {
            let equations: Vec<Vec<usize>> = equations.into_iter()
                .map(|equation| equation.into_iter().map(|unknown| unknown % unknowns).collect()).collect();
            let mut system = System::new(unknowns);
            let mut independent = 0;
            for equation in &equations {
                independent += usize::from(system.add(equation));
            }
            let space = system.solve();
            prop_assert_eq!(space.dimension(), unknowns - independent);
            let mut count = 0_u32;
            let mut seen = vec![false; unknowns];
            for word in 0..1_u32 << unknowns {
                let holds = equations.iter()
                    .all(|equation| equation.iter().filter(|unknown| word >> **unknown & 1 == 1).count() % 2 == 0);
                prop_assert_eq!(space.contains(&from_word(word, unknowns)), holds, "{:b}", word);
                count += u32::from(holds);
                (0..unknowns).filter(|unknown| holds && word >> unknown & 1 == 1).for_each(|unknown| seen[unknown] = true);
            }
            prop_assert_eq!(count, 1 << space.dimension());
            for (unknown, seen) in seen.into_iter().enumerate() {
                prop_assert_eq!(space.is_forced(unknown), !seen);
            }
        }

        #[test]
        fn rank_counts_what_rows_span(rows in prop::collection::vec(0_u64..64, 0..7)) {
            let sums: std::collections::BTreeSet<u64> = (0..1_u32 << rows.len())
                .map(|choice| rows.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1).fold(0, |sum, (_, row)| sum ^ row))
                .collect();
            prop_assert_eq!(1 << rank(rows), sums.len());
        }
    }

    #[test]
    fn sums_of_the_basis_are_solutions() {
        let mut system = System::new(130);
        for first in 0..100 {
            system.add(&[first, first + 16]);
        }
        assert!(!system.add(&[0, 32]), "that follows");
        let space = system.solve();
        assert_eq!(space.dimension(), 30);
        let mut turn = false;
        let sum = space.combine(|| {
            turn = !turn;
            turn
        });
        assert!(space.contains(&sum) && !sum.is_zero());
        for first in 0..100 {
            assert_eq!(sum.get(first), sum.get(first + 16));
        }
    }
}
