//! RSS++ (Barbette et al., CoNEXT '19): counts the load of each bucket of the indirection table, and moves buckets between cores to even
//! out the cores' loads.
//!
//! It weighs the squared deviation of the loads from their mean against the number of moves, since every move costs cache misses. The
//! search is greedy: one best move from the busiest core to the idlest at a time.

/// Counts the load of buckets and decides which move to another core.
#[derive(Clone, Debug)]
pub struct Balancer {
    cores: usize,
    /// The number of cores in use: cores 0 to `active - 1`.
    active: usize,
    /// Each bucket's load in this epoch.
    counts: Vec<u32>,
    /// Each bucket's expected load: the mean of the last epoch's load and the load expected for it.
    expected: Vec<u32>,
    /// Each core's load; a buffer.
    loads: Vec<u64>,
}

/// A bucket that moves to another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The bucket.
    pub bucket: u16,
    /// Its present core.
    pub from: u16,
    /// Its new core.
    pub to: u16,
}

/// The busiest core may exceed its share by this percentage before anything moves.
const SLACK_PERCENT: u64 = 5;
/// The most moves in one epoch.
const MOVES_MAX: usize = 32;
/// Utilisation in percent: above the first, one more core is used; one core less is used if the others then stay below the second.
const SCALE_PERCENT: [u64; 2] = [85, 70];

impl Balancer {
    /// A balancer with nothing counted and all cores in use.
    ///
    /// # Panics
    /// If `cores` is 0.
    #[must_use]
    pub fn new(cores: usize, buckets: usize) -> Self {
        assert!(cores > 0, "there is a core");
        Self { cores, active: cores, counts: vec![0; buckets], expected: vec![0; buckets], loads: vec![0; cores] }
    }

    /// Counts a packet.
    #[inline]
    pub fn count(&mut self, bucket: u16) {
        self.counts[usize::from(bucket)] += 1;
    }

    /// Ends an epoch: updates the expected load of each bucket and returns it.
    pub fn end_epoch(&mut self) -> &mut [u32] {
        for (expected, count) in self.expected.iter_mut().zip(&mut self.counts) {
            *expected = if *expected == 0 { *count } else { u32::midpoint(*expected, *count) };
            *count = 0;
        }
        &mut self.expected
    }

    /// The expected load of each bucket.
    #[must_use]
    pub fn expected(&self) -> &[u32] {
        &self.expected
    }

    /// The number of cores in use.
    #[must_use]
    pub const fn active(&self) -> usize {
        self.active
    }

    /// Uses one more core if those in use are too busy, or one less if the others can do its work. `work` is the work since the last call,
    /// in percent of what one core can do. [`rebalance`](Self::rebalance) then fills or empties the core.
    pub fn scale(&mut self, work: u64) {
        let [high, low] = SCALE_PERCENT;
        if work > high * self.active as u64 {
            self.active = (self.active + 1).min(self.cores);
        } else if self.active > 1 && work < low * (self.active as u64 - 1) {
            self.active -= 1;
        }
    }

    /// Decides which buckets move, and updates the table. `extra` is the load of each core in use that belongs to no bucket.
    pub fn rebalance(&mut self, table: &mut [u16], extra: u64, migrations: &mut Vec<Migration>) {
        migrations.clear();
        let mut loads = std::mem::take(&mut self.loads);
        loads.fill(0);
        loads[..self.active].fill(extra);
        for (core, load) in table.iter().zip(&self.expected) {
            loads[usize::from(*core)] += u64::from(*load);
        }
        self.retire(table, &mut loads, migrations);
        self.even_out(table, &mut loads, migrations);
        migrations.retain(|migration| migration.from != migration.to);
        self.loads = loads;
    }

    /// Moves buckets from the busiest core to the idlest, while it pays.
    fn even_out(&self, table: &mut [u16], loads: &mut [u64], migrations: &mut Vec<Migration>) {
        let mean = loads.iter().sum::<u64>() / self.active as u64;
        let idle = self.active < 2;
        while !idle && migrations.len() < MOVES_MAX {
            let (busiest, idlest) = extremes(&loads[..self.active]);
            if loads[busiest] * 100 <= mean * (100 + SLACK_PERCENT) {
                return;
            }
            let gap = loads[busiest] - loads[idlest];
            // Moving a load b changes the squared deviation by 2 b (b - gap), so the best bucket is nearest half the gap.
            let gain = |load: u64| load * gap.saturating_sub(load);
            let of_busiest = table.iter().zip(&self.expected).enumerate();
            let of_busiest = of_busiest.filter(|(_, (core, _))| usize::from(**core) == busiest);
            let best = of_busiest.map(|(bucket, (_, load))| (gain(u64::from(*load)), bucket)).max();
            let Some((gained, bucket)) = best else { return };
            // A move costs cache misses, so it must gain more than a hundredth of a core's share, squared.
            if gained <= (mean / 100).pow(2) {
                return;
            }
            move_bucket(table, loads, &self.expected, migrations, bucket, idlest);
        }
    }

    /// Empties cores that are no longer in use: each bucket goes to the idlest core.
    fn retire(&self, table: &mut [u16], loads: &mut [u64], migrations: &mut Vec<Migration>) {
        for bucket in 0..table.len() {
            if usize::from(table[bucket]) >= self.active {
                let (_, idlest) = extremes(&loads[..self.active]);
                move_bucket(table, loads, &self.expected, migrations, bucket, idlest);
            }
        }
    }
}

fn move_bucket(
    table: &mut [u16],
    loads: &mut [u64],
    expected: &[u32],
    migrations: &mut Vec<Migration>,
    bucket: usize,
    to: usize,
) {
    let from = table[bucket];
    loads[usize::from(from)] -= u64::from(expected[bucket]);
    loads[to] += u64::from(expected[bucket]);
    table[bucket] = to as u16;
    // All moves happen at once, so a bucket that moves again still comes from its first core.
    match migrations.iter_mut().find(|migration| usize::from(migration.bucket) == bucket) {
        Some(earlier) => earlier.to = to as u16,
        None => migrations.push(Migration { bucket: bucket as u16, from, to: to as u16 }),
    }
}

/// The busiest and the idlest core, the first of equals.
fn extremes(loads: &[u64]) -> (usize, usize) {
    let (mut busiest, mut idlest) = (0, 0);
    for (core, load) in loads.iter().enumerate() {
        if *load > loads[busiest] {
            busiest = core;
        }
        if *load < loads[idlest] {
            idlest = core;
        }
    }
    (busiest, idlest)
}

/// The busiest core's load after dealing out the buckets, the heaviest first, each to the idlest core. Approximates what balancing can
/// achieve.
pub(crate) fn balanced(loads: &mut [u32], by_core: &mut [u64]) -> u64 {
    loads.sort_unstable_by(|a, b| b.cmp(a));
    by_core.fill(0);
    for load in loads.iter() {
        let (_, idlest) = extremes(by_core);
        by_core[idlest] += u64::from(*load);
    }
    by_core.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(cores: usize, loads: &[u32]) -> Balancer {
        let mut balancer = Balancer::new(cores, loads.len());
        for (bucket, load) in loads.iter().enumerate() {
            (0..*load).for_each(|_| balancer.count(bucket as u16));
        }
        balancer.end_epoch();
        balancer
    }

    fn dealt(buckets: usize, cores: usize) -> Vec<u16> {
        (0..buckets).map(|bucket| (bucket % cores) as u16).collect()
    }

    fn loads(table: &[u16], expected: &[u32], cores: usize) -> Vec<u32> {
        let mut loads = vec![0; cores];
        table.iter().zip(expected).for_each(|(core, load)| loads[usize::from(*core)] += load);
        loads
    }

    #[test]
    fn even_loads_stay() {
        let mut migrations = Vec::new();
        let mut table = dealt(128, 4);
        balancer(4, &[100; 128]).rebalance(&mut table, 0, &mut migrations);
        assert_eq!((migrations, table), (vec![], dealt(128, 4)));
    }

    #[test]
    fn two_heavy_buckets_of_one_core_are_parted_by_one_move() {
        let mut heavy = vec![0; 8];
        (heavy[0], heavy[2]) = (1000, 1000);
        let mut table = dealt(8, 2);
        let mut migrations = Vec::new();
        balancer(2, &heavy).rebalance(&mut table, 0, &mut migrations);
        assert_eq!(migrations.len(), 1);
        assert_eq!(loads(&table, &heavy, 2), [1000, 1000]);
    }

    #[test]
    fn a_single_elephant_is_left_alone() {
        let mut heavy = vec![0; 8];
        heavy[3] = 1000;
        let mut table = dealt(8, 2);
        let mut migrations = Vec::new();
        balancer(2, &heavy).rebalance(&mut table, 0, &mut migrations);
        assert_eq!(migrations, []);
    }

    #[test]
    fn skew_is_evened_out_to_within_the_slack() {
        // Zipf over 512 buckets: no bucket exceeds a core's share but the first.
        let skewed: Vec<u32> = (1..=512).map(|rank| 100_000 / (rank + 8)).collect();
        for cores in [2, 3, 7, 16] {
            let mut table = dealt(512, cores);
            let mut migrations = Vec::new();
            let mut balancer = balancer(cores, &skewed);
            (0..20).for_each(|_| balancer.rebalance(&mut table, 0, &mut migrations));
            let loads = loads(&table, &skewed, cores);
            let mean = skewed.iter().sum::<u32>() / cores as u32;
            let most = loads.iter().max().unwrap();
            assert!(u64::from(*most) * 100 <= u64::from(mean) * (101 + SLACK_PERCENT), "{cores} cores: {loads:?}");
            assert_eq!(migrations, [], "a balanced table moves nothing");
        }
    }

    #[test]
    fn migrations_lead_from_the_old_table_to_the_new_each_bucket_once() {
        let skewed: Vec<u32> = (0..64).map(|bucket| (bucket * 7919 % 131) * (bucket % 3)).collect();
        for cores in 2..9 {
            let mut balancer = balancer(cores, &skewed);
            let mut table = vec![0; 64];
            (table[40], table[50]) = (1, 1);
            let before = table.clone();
            let mut migrations = Vec::new();
            balancer.rebalance(&mut table, 0, &mut migrations);
            let mut followed = before;
            for Migration { bucket, from, to } in &migrations {
                assert_eq!(followed[usize::from(*bucket)], *from);
                followed[usize::from(*bucket)] = *to;
            }
            assert_eq!(followed, table);
            let mut buckets: Vec<_> = migrations.iter().map(|migration| migration.bucket).collect();
            buckets.sort_unstable();
            buckets.dedup();
            assert_eq!(buckets.len(), migrations.len());
        }
    }

    #[test]
    fn cores_come_and_go_with_the_load() {
        let mut balancer = balancer(4, &[10; 64]);
        let mut table = dealt(64, 4);
        let mut migrations = Vec::new();
        for (work, active) in [(80, 3), (60, 2), (40, 1), (10, 1), (95, 2), (190, 3), (285, 4), (380, 4), (300, 4)] {
            balancer.scale(work);
            assert_eq!(balancer.active(), active);
            for _ in 0..4 {
                balancer.rebalance(&mut table, 0, &mut migrations);
            }
            let loads = loads(&table, balancer.expected(), 4);
            assert!(loads[..active].iter().all(|load| *load > 0), "{active}: {loads:?}");
            assert!(loads[active..].iter().all(|load| *load == 0), "{active}: {loads:?}");
        }
    }

    #[test]
    fn dealing_out_knows_the_best() {
        assert_eq!(balanced(&mut [5, 5, 5], &mut [7, 7]), 10);
        assert_eq!(balanced(&mut [1, 2, 3, 4], &mut [0, 0]), 5);
        assert_eq!(balanced(&mut [], &mut [0, 0]), 0);
    }
}
