//! How many packets flows have.
//!
//! Sources: AGH university's border, 4.03e9 unsampled NetFlow records of 30 days of 2015, fitted by Jurkiewicz, Rzym and
//! Borylo, arXiv:1809.03486, `flow-models` data/agh_201506 (its records are of one direction; here a drawn length is a
//! conversation's). The web search workload of DCTCP (Alizadeh et al., SIGCOMM '10), as tabulated in
//! alibaba-edu/High-Precision-Congestion-Control, traffic_gen/WebSearch_distribution.txt. CAIDA's talk `myths2002`,
//! slide 16, on a day of a backbone link: half of the packets in flows of more than 8192, the longest flow 9 million.

use super::{FlowTransport, Params, Profile, SHARE_MAX, SynthError};
use crate::rng::Rng;

/// How many packets flows have, before they are made to fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    shape: Shape,
    /// No flow is shorter.
    min: u64,
}

/// A distribution of flow lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// All alike, fifty packets each by default.
    Equal,
    /// One flow.
    One,
    /// All alike, a packet each by default.
    Apart,
    Zipf(f64),
    Agh,
    Backbone,
    WebSearch,
}

/// Mixture of the lengths in packets: weight, distribution. What is drawn is rounded up.
const AGH_PACKETS: [(f64, Part); 7] = [
    (0.3072, Part::Uniform(1.0)),
    (0.2465, Part::Uniform(2.0)),
    (0.0495, Part::Uniform(3.0)),
    (0.0537, Part::Uniform(4.0)),
    (0.1043, Part::Uniform(6.0)),
    (0.0940, Part::Pareto { shape: 1.450_289_555_235_508, from: 16.0, scale: 23.204_632_883_768_134 }),
    (0.1448, Part::Weibull { shape: 2.296_901_396_361_971, scale: 9.594_128_278_908_507 }),
];

/// A part of a mixture, by its quantiles.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Uniform(f64),
    Pareto { shape: f64, from: f64, scale: f64 },
    Weibull { shape: f64, scale: f64 },
}

/// Size in bytes, percent of flows up to it; linear between.
const WEB_SEARCH_BYTES: [(f64, f64); 12] = [
    (0.0, 0.0),
    (10_000.0, 15.0),
    (20_000.0, 20.0),
    (30_000.0, 30.0),
    (50_000.0, 40.0),
    (80_000.0, 53.0),
    (200_000.0, 60.0),
    (1_000_000.0, 70.0),
    (2_000_000.0, 80.0),
    (5_000_000.0, 90.0),
    (10_000_000.0, 97.0),
    (30_000_000.0, 100.0),
];

/// The exponent at which a Pareto distribution from 1 to [`BACKBONE_MAX`] has half of its packets in flows of more than
/// 8192: the solution of (8192^(1-a) - 1) / (9e6^(1-a) - 1) = 1/2.
const BACKBONE_EXPONENT: f64 = 0.968_3;
const BACKBONE_MAX: f64 = 9e6;

/// Up to here flows are mice: made to fit only when the elephants alone can't give way.
const MOUSE: u64 = 100;

/// The most sources of a flood, unless more are asked for.
const APART_MAX: u64 = 1_000_000;

/// Packets of a TCP conversation that says nothing: three to open, three to close.
pub(super) const TCP_MIN: u64 = 6;

/// Payload of a full segment.
pub(super) const SEGMENT: u64 = 1_460;

impl Lengths {
    /// The profile's, unless the parameters say otherwise.
    pub(super) fn new(profile: Profile, params: &Params) -> Self {
        let own = match profile {
            Profile::UniversityDc => Shape::Agh,
            Profile::Backbone => Shape::Backbone,
            Profile::Hyperscaler => Shape::WebSearch,
            Profile::Uniform => Shape::Equal,
            Profile::SynFlood => Shape::Apart,
            Profile::SingleFlow => Shape::One,
        };
        let all_tcp = match (profile, params.transport) {
            (Profile::SynFlood, _) => false,
            (_, Some(carrier)) => carrier == FlowTransport::Tcp,
            (Profile::Hyperscaler | Profile::SingleFlow, None) => true,
            (Profile::UniversityDc | Profile::Backbone | Profile::Uniform, None) => false,
        };
        let shape = match (profile, params.skew) {
            (Profile::SynFlood | Profile::SingleFlow, _) | (_, None) => own,
            (_, Some(skew)) => Shape::Zipf(skew),
        };
        Self { shape, min: if all_tcp { TCP_MIN } else { 1 } }
    }

    /// The lengths of all flows, which add up to the packets asked for.
    pub(super) fn draw(self, params: &Params, rng: &mut Rng) -> Result<Vec<u32>, SynthError> {
        let (packets, share) = (params.packets, params.packets.div_ceil(SHARE_MAX).max(self.min));
        let mut lengths = match (self.shape, params.flows) {
            (Shape::Equal, flows) => vec![1; flows.unwrap_or_else(|| self.flows_by_default(packets)) as usize],
            (Shape::One, _) => vec![1],
            (Shape::Apart, flows) => vec![1; flows.unwrap_or_else(|| packets.min(APART_MAX)) as usize],
            (Shape::Zipf(skew), flows) => zipf(flows.unwrap_or_else(|| self.flows_by_default(packets)), skew, packets),
            (Shape::Agh | Shape::Backbone | Shape::WebSearch, Some(flows)) => {
                (0..flows).map(|_| self.one(rng).min(share)).collect()
            }
            (Shape::Agh | Shape::Backbone | Shape::WebSearch, None) => {
                let (mut lengths, mut sum) = (Vec::new(), 0);
                while sum < packets {
                    let length = self.one(rng).clamp(self.min, share);
                    if sum > 0 && packets - sum < self.min {
                        break;
                    }
                    lengths.push(length.min(packets - sum));
                    sum += length;
                }
                lengths
            }
        };
        lengths.iter_mut().for_each(|length| *length = (*length).max(self.min));
        let flows = lengths.len() as u64;
        let need = flows * self.min;
        if need > packets {
            return Err(SynthError::Packets { flows, need, packets });
        }
        fit(&mut lengths, packets, self.min);
        // The largest came first: where they are must not depend on how long they are.
        if matches!(self.shape, Shape::Zipf(_)) {
            shuffle(&mut lengths, rng);
        }
        Ok(lengths.into_iter().map(|length| length as u32).collect())
    }

    fn flows_by_default(self, packets: u64) -> u64 {
        (packets / 50.max(self.min)).max(1)
    }

    /// One flow's length.
    fn one(self, rng: &mut Rng) -> u64 {
        match self.shape {
            Shape::Equal | Shape::One | Shape::Apart | Shape::Zipf(_) => 1,
            Shape::Agh => {
                let mut pick = rng.unit();
                let part = AGH_PACKETS.iter().find(|(weight, _)| {
                    pick -= weight;
                    pick < 0.0
                });
                part.unwrap_or(&AGH_PACKETS[0]).1.quantile(rng.unit()).ceil().max(1.0) as u64
            }
            Shape::Backbone => {
                let tail = 1.0 - BACKBONE_MAX.powf(-BACKBONE_EXPONENT);
                (1.0 - rng.unit() * tail).powf(-1.0 / BACKBONE_EXPONENT) as u64
            }
            Shape::WebSearch => {
                let data = (web_search_bytes(rng.unit() * 100.0).ceil() as u64).div_ceil(SEGMENT).max(1);
                // Opening and closing, a request, and an acknowledgement for every second segment.
                TCP_MIN + 1 + data + data / 2
            }
        }
    }
}

impl Part {
    fn quantile(self, unit: f64) -> f64 {
        match self {
            Self::Uniform(to) => to * unit,
            Self::Pareto { shape, from, scale } => from + scale / shape * ((1.0 - unit).powf(-shape) - 1.0),
            Self::Weibull { shape, scale } => scale * (-(1.0 - unit).ln()).powf(1.0 / shape),
        }
    }
}

fn web_search_bytes(percent: f64) -> f64 {
    let above = WEB_SEARCH_BYTES.partition_point(|(_, up_to)| *up_to <= percent).min(WEB_SEARCH_BYTES.len() - 1);
    let ((low, from), (high, to)) = (WEB_SEARCH_BYTES[above - 1], WEB_SEARCH_BYTES[above]);
    low + (high - low) * (percent - from) / (to - from)
}

/// Lengths by Zipf's law, largest first.
fn zipf(flows: u64, skew: f64, packets: u64) -> Vec<u64> {
    let weights: Vec<f64> = (1..=flows).map(|rank| (rank as f64).powf(-skew)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| (weight / sum * packets as f64) as u64).collect()
}

/// Makes the lengths add up to `packets`, none below `min`, which must be possible: by the part of each elephant that
/// makes it one; if that isn't enough, by capping all; if there are no elephants, by the same factor for all.
fn fit(lengths: &mut [u64], packets: u64, min: u64) {
    let mice: u64 = lengths.iter().map(|length| (*length).min(MOUSE)).sum();
    let sum: u64 = lengths.iter().sum();
    let excess = sum - mice;
    if mice > packets {
        let capped = |cap: u64| lengths.iter().map(|length| (*length).min(cap)).sum::<u64>();
        let (mut low, mut high) = (min, MOUSE);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if capped(middle) <= packets { low = middle } else { high = middle }
        }
        lengths.iter_mut().for_each(|length| *length = (*length).min(low));
    } else if excess > 0 {
        let wanted = u128::from(packets - mice);
        for length in lengths.iter_mut().filter(|length| **length > MOUSE) {
            *length = MOUSE + (u128::from(*length - MOUSE) * wanted / u128::from(excess)) as u64;
        }
    } else {
        for length in lengths.iter_mut() {
            *length = (u128::from(*length) * u128::from(packets) / u128::from(sum)) as u64;
        }
    }
    // Rounding down leaves fewer over than there are flows, capping fewer than that too: one for each.
    let mut over = packets - lengths.iter().sum::<u64>();
    let each = over / lengths.len() as u64;
    over %= lengths.len() as u64;
    for (length, number) in lengths.iter_mut().zip(0..) {
        *length += each + u64::from(number < over);
    }
}

fn shuffle(lengths: &mut [u64], rng: &mut Rng) {
    for last in (1..lengths.len()).rev() {
        lengths.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    fn draws(shape: Shape) -> Vec<u64> {
        let mut rng = Rng::new(7);
        (0..DRAWS).map(|_| Lengths { shape, min: 1 }.one(&mut rng)).collect()
    }

    fn share_up_to(draws: &[u64], limit: u64) -> f64 {
        100.0 * draws.iter().filter(|length| **length <= limit).count() as f64 / draws.len() as f64
    }

    /// The data's own table, percent of flows of up to so many packets; the published mixture fits it to 1.1 %.
    #[test]
    fn agh_follows_its_table() {
        let draws = draws(Shape::Agh);
        for (limit, percent) in [
            (1, 47.8326),
            (2, 65.3421),
            (4, 74.8933),
            (8, 84.1319),
            (10, 86.5086),
            (100, 97.3478),
            (1_000, 99.4544),
            (10_000, 99.8922),
        ] {
            let got = share_up_to(&draws, limit);
            assert!((got - percent).abs() < 1.2, "up to {limit} packets: {got} %, published {percent} %");
        }
    }

    #[test]
    fn backbone_has_half_of_its_packets_in_long_flows() {
        // The drawn tail varies too much to be tested by draws; the density is integrated over the logarithm.
        let packets = |from: f64, to: f64| {
            let steps = 100_000;
            let width = (to / from).ln() / f64::from(steps);
            (0..steps)
                .map(|step| (from * ((f64::from(step) + 0.5) * width).exp()).powf(1.0 - BACKBONE_EXPONENT) * width)
                .sum::<f64>()
        };
        let share = packets(8_192.0, BACKBONE_MAX) / packets(1.0, BACKBONE_MAX);
        assert!((share - 0.5).abs() < 0.002, "{share}");
        let draws = draws(Shape::Backbone);
        assert!(draws.iter().all(|length| (1..=BACKBONE_MAX as u64).contains(length)));
        assert!((share_up_to(&draws, 1) - 100.0 * (1.0 - 0.5_f64.powf(BACKBONE_EXPONENT))).abs() < 0.3);
    }

    #[test]
    fn web_search_follows_its_table() {
        let draws = draws(Shape::WebSearch);
        for (bytes, percent) in WEB_SEARCH_BYTES {
            let data = (bytes as u64).div_ceil(SEGMENT);
            let got = share_up_to(&draws, TCP_MIN + 1 + data + data / 2);
            assert!((got - percent).abs() < 3.0, "up to {bytes} bytes: {got} %, published {percent} %");
        }
    }

    #[test]
    fn fitting_is_exact_and_spares_mice() {
        let mut rng = Rng::new(3);
        for (packets, flows, min) in
            [(1_000, 10, 1), (50_000, 1_000, 1), (1_000_000, 1_000, 6), (7_000, 1_000, 6), (6_000, 1_000, 6)]
        {
            let mut lengths: Vec<u64> =
                (0..flows).map(|_| (Lengths { shape: Shape::Agh, min }.one(&mut rng)).max(min)).collect();
            let before = lengths.clone();
            fit(&mut lengths, packets, min);
            assert_eq!(lengths.iter().sum::<u64>(), packets);
            assert!(lengths.iter().all(|length| *length >= min));
            let mice: u64 = before.iter().map(|length| (*length).min(MOUSE)).sum();
            let spared = before
                .iter()
                .zip(&lengths)
                .filter(|(before, after)| **before <= MOUSE && **after > **before + 1)
                .count();
            assert!(
                mice > packets || mice == before.iter().sum::<u64>() || spared == 0,
                "{packets} packets, {flows} flows: {spared} mice grew"
            );
        }
    }

    #[test]
    fn zipf_and_equal_lengths() {
        let mut rng = Rng::new(3);
        let params = Params { packets: 10_000, flows: Some(100), skew: Some(1.0), ..Params::default() };
        let mut lengths = Lengths::new(Profile::Uniform, &params).draw(&params, &mut rng).unwrap();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1, 2, 10] {
            let expected = 10_000.0 / harmonic / rank as f64;
            assert!(
                (f64::from(lengths[rank - 1]) - expected).abs() <= expected * 0.02 + 2.0,
                "{rank}: {}",
                lengths[rank - 1]
            );
        }
        let params = Params { packets: 1_003, flows: Some(100), ..Params::default() };
        let lengths = Lengths::new(Profile::Uniform, &params).draw(&params, &mut rng).unwrap();
        assert_eq!((lengths.iter().max(), lengths.iter().min()), (Some(&11), Some(&10)));
    }
}
