//! Rounds in which several contenders take turns, and which of them count.

use std::time::Duration;

use crate::bench::BenchError;
use crate::gauge::{Gauge, Strain};
use crate::spread::Spread;

/// Maximum number of rounds for each round that counts.
const PATIENCE: usize = 20;

/// Number of rounds that ran and that count, as the gauge decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Number of rounds that ran.
    pub run: usize,
    /// Number of rounds in which other programs used the cores.
    pub disturbed: usize,
    /// Number of rounds in the figures: all, or only the undisturbed ones if requested and if there are any.
    pub counted: usize,
    /// True if only undisturbed rounds should count.
    pub only_undisturbed: bool,
    /// Largest reading of the gauge, as a multiple of the smallest.
    pub worst: f64,
}

impl Rounds {
    /// Sums of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            disturbed: self.disturbed + other.disturbed,
            counted: self.counted + other.counted,
            only_undisturbed: self.only_undisturbed || other.only_undisturbed,
            worst: self.worst.max(other.worst),
        }
    }
}

/// Number of rounds that must count, and whether only undisturbed rounds count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) rounds: usize,
    pub(crate) undisturbed: bool,
}

/// Figures of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Millions of packets a second, all cores together.
    pub(crate) mpps: f64,
    /// Nanoseconds that a core spends on each of its own packets.
    pub(crate) own_ns: f64,
    strain: Strain,
}

impl Reading {
    /// From cores that took `elapsed` each for `packets` packets in all, `together` of them at the same time. The time of the gauges is
    /// subtracted.
    pub(crate) fn of(packets: u64, elapsed: &[Duration], gauges: &[Gauge], together: usize) -> Self {
        let cores =
            elapsed.iter().zip(gauges).map(|(elapsed, gauge)| elapsed.saturating_sub(gauge.spent).as_secs_f64());
        let (slowest, busy) = cores.fold((0.0f64, 0.0), |(slowest, busy), core| (slowest.max(core), busy + core));
        let (mpps, own_ns) = (packets as f64 / slowest / 1e6, busy * 1e9 / packets as f64);
        Self { mpps, own_ns, strain: Strain::of(gauges, together) }
    }
}

/// All readings of a contender.
#[derive(Debug)]
pub(crate) struct Readings {
    all: Vec<Reading>,
    undisturbed: bool,
}

impl Readings {
    /// No readings yet. `undisturbed`: only undisturbed ones will count.
    pub(crate) const fn new(undisturbed: bool) -> Self {
        Self { all: Vec::new(), undisturbed }
    }

    pub(crate) fn push(&mut self, reading: Reading) {
        self.all.push(reading);
    }

    /// Drops the readings of the warm-up. The gauge remembers its minimum.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// The readings that count.
    pub(crate) fn counted(&self) -> Vec<Reading> {
        let is_quiet = |reading: &&Reading| !self.undisturbed || !reading.strain.is_disturbed();
        let counted: Vec<Reading> = self.all.iter().filter(is_quiet).copied().collect();
        if counted.is_empty() { self.all.clone() } else { counted }
    }

    /// Number of readings of the requested kind.
    pub(crate) fn len(&self) -> usize {
        self.all.iter().filter(|reading| !self.undisturbed || !reading.strain.is_disturbed()).count()
    }

    pub(crate) fn rounds(&self) -> Rounds {
        Rounds {
            run: self.all.len(),
            disturbed: self.all.iter().filter(|reading| reading.strain.is_disturbed()).count(),
            counted: self.counted().len(),
            only_undisturbed: self.undisturbed,
            worst: self.all.iter().map(|reading| reading.strain.times_least()).fold(1.0, f64::max),
        }
    }

    /// # Panics
    /// When there are none.
    pub(crate) fn spread(&self, figure: impl Fn(&Reading) -> f64) -> Spread {
        let figures: Vec<f64> = self.counted().iter().map(figure).collect();
        Spread::of(&figures).expect("there were rounds")
    }

    /// Median time that a core spends on each of its own packets, in nanoseconds.
    pub(crate) fn own_ns(&self) -> f64 {
        if self.all.is_empty() { 0.0 } else { self.spread(|reading| reading.own_ns).median }
    }
}

/// A participant in the rounds.
pub(crate) trait Contender {
    fn round(&mut self) -> Result<(), BenchError>;
    /// Number of its rounds of the requested kind.
    fn counted(&self) -> usize;
}

/// Runs rounds in which all contenders take turns, until each has enough rounds that count, or [`PATIENCE`] ends. A contender with enough
/// rounds rests. If only one still needs rounds, a resting one runs in between, so that none runs twice in a row with warm caches. Calls
/// `progress` with the number of rounds that count.
pub(crate) fn take_turns(
    contenders: &mut [&mut dyn Contender],
    rules: Rules,
    mut progress: impl FnMut(u64),
) -> Result<(), BenchError> {
    let all = (contenders.len() * rules.rounds) as u64;
    let most = if rules.undisturbed { rules.rounds * PATIENCE } else { rules.rounds };
    let mut last = None;
    for _ in 0..most {
        for at in 0..contenders.len() {
            let counted = contenders.iter().map(|contender| contender.counted().min(rules.rounds) as u64);
            progress(counted.sum());
            if contenders[at].counted() < rules.rounds {
                if last == Some(at) && contenders.len() > 1 {
                    contenders[(at + 1) % contenders.len()].round()?;
                }
                contenders[at].round()?;
                last = Some(at);
            }
        }
    }
    progress(all);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody of whose rounds every so many counts, and in what order all ran.
    struct Every<'a>(usize, usize, &'a std::cell::RefCell<Vec<usize>>);

    impl Contender for Every<'_> {
        fn round(&mut self) -> Result<(), BenchError> {
            self.1 += 1;
            self.2.borrow_mut().push(self.0);
            Ok(())
        }

        fn counted(&self) -> usize {
            self.1 / self.0
        }
    }

    #[test]
    fn who_has_enough_rests_and_patience_ends() {
        let order = std::cell::RefCell::new(Vec::new());
        let (mut quiet, mut half, mut never) = (Every(1, 0, &order), Every(2, 0, &order), Every(usize::MAX, 0, &order));
        let rules = Rules { rounds: 3, undisturbed: true };
        let mut reported = Vec::new();
        take_turns(&mut [&mut quiet, &mut half, &mut never], rules, |done| reported.push(done)).expect("none fails");
        let alone = 3 * PATIENCE - 6;
        assert_eq!((quiet.1, half.1, never.1), (3 + alone, 6, 3 * PATIENCE));
        assert_eq!(order.borrow()[..6], [1, 2, usize::MAX, 1, 2, usize::MAX], "in turn");
        assert!(order.borrow().array_windows().all(|[one, next]| one != next), "nobody comes to its own caches");
        assert!(reported.is_sorted() && reported[0] == 0 && reported.last() == Some(&9), "{reported:?}");
    }

    #[test]
    fn without_the_gauge_all_rounds_count_and_no_more_are_run() {
        let order = std::cell::RefCell::new(Vec::new());
        let (mut one, mut other) = (Every(1, 0, &order), Every(1, 0, &order));
        take_turns(&mut [&mut one, &mut other], Rules { rounds: 2, undisturbed: false }, |_| ()).expect("none fails");
        assert_eq!(*order.borrow(), [1, 1, 1, 1]);
    }

    fn gauge(us: u64) -> Gauge {
        Gauge::of(1, Duration::from_micros(us))
    }

    #[test]
    fn the_gauge_is_no_part_of_the_figures() {
        let ms = Duration::from_millis;
        let reading = Reading::of(4_000, &[ms(3), ms(2)], &[gauge(1_000), gauge(500)], 2_001);
        assert!((reading.mpps - 2.0).abs() < 1e-9, "{reading:?}");
        assert!((reading.own_ns - 875.0).abs() < 1e-9, "{reading:?}");
    }

    #[test]
    fn undisturbed_rounds_count_alone_if_there_are_any() {
        let of = |us| Reading::of(1_000, &[Duration::from_millis(us)], &[gauge(us)], 2_002);
        for undisturbed in [false, true] {
            let mut readings = Readings::new(undisturbed);
            [30, 10, 20].into_iter().for_each(|us| readings.push(of(us)));
            let counted = if undisturbed { 1 } else { 3 };
            assert_eq!(
                readings.rounds(),
                Rounds { run: 3, disturbed: 2, counted, only_undisturbed: undisturbed, worst: 3.0 }
            );
            assert_eq!(readings.len(), counted);
        }
        let mut disturbed = Readings::new(true);
        disturbed.push(of(15));
        let rounds = Rounds { run: 1, disturbed: 1, counted: 1, only_undisturbed: true, worst: 1.5 };
        assert_eq!(disturbed.rounds(), rounds);
        assert_eq!(disturbed.len(), 0, "it is not what was asked for, and all that there is");
    }
}
