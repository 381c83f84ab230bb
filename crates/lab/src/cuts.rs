//! Predicts a pipeline's rate for each place where its path can be cut (Wang et al., "Practice of Parallelizing Network Applications on
//! Multi-core Architectures", ICS '09, sections 3.3 and 4.4).
//!
//! Where the first core takes `C_in` for a packet, and the stages behind the cut take `C_app`, `n` ways need `max(C_in, C_app / n) + C_fifo`.

use engine::Cuts;

use crate::path::{DEFRAGMENT, PARSE, Path};

/// What a cut costs besides the stages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// Nanoseconds to pass a packet's descriptor through a queue between two cores.
    pub fifo_ns: f64,
    /// Nanoseconds to find a packet's way and to hand it out, where there are several ways and the packet isn't parsed yet.
    pub steer_ns: f64,
}

/// A pipeline: where it is cut, its ways, and the predicted rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Forked {
    /// The stages that the second core begins with, and the third, by their place in the path.
    pub at: Vec<usize>,
    /// The number of ways.
    pub ways: usize,
    /// Nanoseconds a packet on each core ahead of the ways.
    pub ahead_ns: Vec<f64>,
    /// Nanoseconds a packet on a way.
    pub way_ns: f64,
    /// Nanoseconds a packet of all: `max(C_in, C_app / n) + C_fifo`.
    pub ns: f64,
    /// The cuts of the engine `pipeline` that are these; `None` if the engine has none such.
    pub cuts: Option<Cuts>,
}

impl Forked {
    /// The number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.ahead_ns.len() + self.ways
    }

    /// Millions of packets a second.
    #[must_use]
    pub fn mpps(&self) -> f64 {
        1e3 / self.ns.max(LEAST_NS)
    }

    /// True if a core ahead of the ways limits the rate, so that more ways don't help.
    #[must_use]
    pub fn is_bound_ahead(&self) -> bool {
        self.ahead_ns.iter().any(|ns| *ns >= self.way_ns / self.ways as f64)
    }
}

/// Lower bound of a packet's time, in nanoseconds: smaller results are noise.
const LEAST_NS: f64 = 0.1;

/// The pipelines of two stages, cut between any two stages of the path, and those of three that the engine has, on up to `cores` cores.
/// Ordered by the first cut, then by the second, then by ways.
#[must_use]
pub fn forked(path: &Path, between: &Between, cores: usize) -> Vec<Forked> {
    let mut all = Vec::new();
    for at in 1..path.stages.len() {
        all.extend((1..cores).map(|ways| fork(path, between, vec![at], ways)));
        // The engine's second cut is the one before parsing.
        if let Some(parse) = place(path, PARSE).filter(|parse| place(path, DEFRAGMENT) == Some(at) && at < *parse) {
            all.extend((1..cores.saturating_sub(1)).map(|ways| fork(path, between, vec![at, parse], ways)));
        }
    }
    all
}

/// Index of the fastest that the engine has, on exactly `cores` cores; among equals the one with fewer stages.
#[must_use]
pub fn best(all: &[Forked], cores: usize) -> Option<usize> {
    let fits = |index: &usize| all[*index].cuts.is_some() && all[*index].cores() == cores;
    let order = |one: &usize, other: &usize| {
        let (one, other) = (&all[*one], &all[*other]);
        one.ns.total_cmp(&other.ns).then(one.at.len().cmp(&other.at.len()))
    };
    (0..all.len()).filter(fits).min_by(order)
}

fn place(path: &Path, name: &str) -> Option<usize> {
    path.stages.iter().position(|stage| stage.name == name)
}

fn fork(path: &Path, between: &Between, at: Vec<usize>, ways: usize) -> Forked {
    let sum = |from: usize, to: usize| path.stages[from..to].iter().map(|stage| stage.ns.median).sum::<f64>();
    let (parse, defragment) = (place(path, PARSE), place(path, DEFRAGMENT));
    let mut ahead_ns = Vec::with_capacity(at.len());
    let mut from = 0;
    for to in &at {
        // A core that takes from a queue and gives to one pays for both.
        let taken = if from == 0 { 0.0 } else { between.fifo_ns };
        ahead_ns.push(sum(from, *to) + taken);
        from = *to;
    }
    let is_parsed = parse.is_some_and(|parse| from > parse);
    if let Some(last) = ahead_ns.last_mut().filter(|_| ways > 1 && !is_parsed) {
        *last += between.steer_ns;
    }
    let way_ns = sum(from, path.stages.len());
    let slowest = ahead_ns.iter().copied().fold(way_ns / ways as f64, f64::max);
    let cuts = match at[..] {
        [one] if Some(one) == parse => Some(Cuts::Parse),
        [one] if Some(one) == defragment && ways == 1 => Some(Cuts::Defragment),
        [_, _] => Some(Cuts::Both),
        _ => None,
    };
    Forked { at, ways, ahead_ns, way_ns, ns: slowest + between.fifo_ns, cuts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{INPUT, Stage};
    use crate::spread::Spread;

    fn path(stages: &[(&'static str, f64)]) -> Path {
        let spread = |ns| Spread { min: ns, median: ns, max: ns };
        let stages = stages.iter().map(|(name, ns)| Stage { name, ns: spread(*ns) }).collect();
        Path { stages, steer: spread(0.0), packets: 1 }
    }

    /// The stages of the paper's table 3, in cycles, and its queue. Input is Pcap, malloc and memcpy.
    fn paper(input: f64) -> Path {
        path(&[(INPUT, input), (DEFRAGMENT, 250.0), ("TCP", 500.0), ("L7 DPI", 400.0)])
    }

    const QUEUE: Between = Between { fifo_ns: 100.0, steer_ns: 0.0 };

    fn at<'a>(all: &'a [Forked], at: &[usize], ways: usize) -> &'a Forked {
        all.iter().find(|one| one.at == at && one.ways == ways).unwrap()
    }

    #[test]
    fn the_papers_table_3_comes_out() {
        // Mode 2: cut between L3 and L4, 450 + 700 + 440 + 250 and the queue.
        let with_malloc = forked(&paper(450.0 + 700.0 + 440.0), &QUEUE, 3);
        assert_eq!(at(&with_malloc, &[2], 1).ns, 1940.0);
        // Mode 3: between L2 and L3.
        assert_eq!(at(&with_malloc, &[1], 1).ns, 1690.0);
        // Mode 4: without malloc. The application takes longest: 250 + 500 + 400.
        let without = forked(&paper(300.0 + 440.0), &QUEUE, 4);
        assert_eq!(at(&without, &[1], 1).ns, 1250.0);
        assert!(!at(&without, &[1], 1).is_bound_ahead());
        // Mode 5: two ways. Input takes longest: 300 + 440.
        assert_eq!(at(&without, &[1], 2).ns, 840.0);
        // A third way has no effect, as the paper says.
        assert_eq!(at(&without, &[1], 3).ns, 840.0);
        assert!(at(&without, &[1], 2).is_bound_ahead());
        assert!((at(&without, &[1], 2).mpps() - 1e3 / 840.0).abs() < 1e-12);
    }

    #[test]
    fn a_look_is_paid_where_several_ways_get_packets_that_nobody_parsed() {
        let path = path(&[(INPUT, 10.0), (DEFRAGMENT, 5.0), (PARSE, 20.0), ("track", 40.0), ("identify", 60.0)]);
        let between = Between { fifo_ns: 2.0, steer_ns: 7.0 };
        let all = forked(&path, &between, 5);
        // One way needs no look.
        assert_eq!((at(&all, &[2], 1).ahead_ns[0], at(&all, &[2], 1).ns), (15.0, 122.0));
        assert_eq!((at(&all, &[2], 2).ahead_ns[0], at(&all, &[2], 2).ns), (22.0, 62.0));
        assert_eq!(at(&all, &[2], 4).ns, 32.0);
        // Behind parsing the hash is there.
        assert_eq!((at(&all, &[3], 2).ahead_ns[0], at(&all, &[3], 2).ns), (35.0, 52.0));
        // Three stages: the second takes from a queue and gives to one.
        let three = at(&all, &[1, 2], 3);
        assert_eq!((&three.ahead_ns[..], three.way_ns, three.ns), (&[10.0, 5.0 + 2.0 + 7.0][..], 120.0, 42.0));
        assert_eq!(three.cores(), 5);
    }

    #[test]
    fn the_best_is_one_that_the_engine_has() {
        let path = path(&[(INPUT, 10.0), (DEFRAGMENT, 30.0), (PARSE, 20.0), ("track", 40.0), ("identify", 60.0)]);
        let between = Between { fifo_ns: 2.0, steer_ns: 7.0 };
        let all = forked(&path, &between, 8);
        let has = |places: &[usize], ways| at(&all, places, ways).cuts;
        assert_eq!(has(&[1], 1), Some(Cuts::Defragment));
        assert_eq!(has(&[1], 2), None, "fragments don't show their way");
        assert_eq!((has(&[2], 1), has(&[2], 6)), (Some(Cuts::Parse), Some(Cuts::Parse)));
        assert_eq!(has(&[1, 2], 2), Some(Cuts::Both));
        assert_eq!((has(&[3], 1), has(&[4], 3)), (None, None));
        // On two cores: 40 + 2 is ahead of 150 - 30 behind, so the cut before parsing wins by what the way does.
        let two = &all[best(&all, 2).unwrap()];
        assert_eq!((two.cuts, two.ns), (Some(Cuts::Parse), 122.0));
        // On five: max(47, 120 / 4) + 2 against max(10, 39, 120 / 3) + 2.
        let five = &all[best(&all, 5).unwrap()];
        assert_eq!((five.cuts, five.ns, five.ways), (Some(Cuts::Both), 42.0, 3));
        assert_eq!(best(&all, 9), None);
        assert_eq!(best(&all, 1), None);
    }

    #[test]
    fn a_function_that_wants_no_whole_datagrams_has_no_stage_for_them() {
        let path = path(&[(INPUT, 10.0), (PARSE, 20.0), ("conntrack", 30.0)]);
        let all = forked(&path, &QUEUE, 4);
        assert!(all.iter().all(|one| one.at.len() == 1));
        assert_eq!(
            all.iter().filter(|one| one.cuts.is_some()).count(),
            3,
            "cut before parsing, with one to three ways"
        );
    }
}
