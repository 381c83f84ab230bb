//! Options of a bench beyond throughput: loss-free rates, the model, added work, a report.

use std::path::PathBuf;
use std::time::Duration;

use lab::{Calibration, DelayPlan, LossFreePlan, MOST_NS, Work};
use port::DESCRIPTORS;

use crate::cli::engines;
use crate::cli::failure::Failed;

/// Options of a bench beyond throughput.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Find the maximum loss-free forwarding rate of each measured row, by bisection over trials (RFC 2544)
    #[arg(long, help_heading = "Loss-free rate")]
    mlffr: bool,
    /// Loss from which on a trial fails, as a share of its packets: 4% or 0.1%; 0 means that any loss fails
    #[arg(long, default_value = "4%", value_name = "PERCENT", value_parser = percent, requires = "mlffr", help_heading = "Loss-free rate")]
    loss_threshold: f64,
    /// Precision of the rate, in millions of packets a second: the search ends when its range is this small
    #[arg(long, default_value = "0.4", value_name = "MPPS", value_parser = resolution, requires = "mlffr", help_heading = "Loss-free rate")]
    resolution: f64,
    /// Duration of the part of a trial that counts
    #[arg(long, default_value = "50ms", value_name = "TIME", value_parser = span, requires = "mlffr", help_heading = "Loss-free rate")]
    trial: Duration,
    /// Duration of the part of a trial before that, which does not count
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = span_or_none, requires = "mlffr", help_heading = "Loss-free rate")]
    warm_up: Duration,
    /// Number of failed trials in a row after which a rate is too high
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=100), requires = "mlffr", help_heading = "Loss-free rate")]
    attempts: u8,
    /// Descriptors of each core's receive ring
    #[arg(long, default_value_t = DESCRIPTORS as u32, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1 << 20), requires = "mlffr", help_heading = "Loss-free rate")]
    ring: u32,
    /// Measure times from a packet's arrival to its transmit, at loads that are shares of each row's own throughput
    #[arg(long, help_heading = "Latency")]
    latency: bool,
    /// Loads to measure them at
    #[arg(long, value_delimiter = ',', default_value = "10%,50%,90%", value_name = "LIST", value_parser = load, requires = "latency", help_heading = "Latency")]
    load: Vec<f64>,
    /// Also model more cores, up to this many. scr is computed from its cost model. Where the machine has too few cores, scr and rss are
    /// also computed from the shares of the cores, each measured alone
    #[arg(long, value_name = "CORES", value_parser = engines::cores)]
    model_to: Option<usize>,
    /// Extra work for each received packet, as a driver would need: 104ns, as in the SCR paper
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    dispatch: Option<f64>,
    /// Extra time for a cache line of the history that another core used last, on more cores than this machine has: 12.5ns, as on a
    /// server with sixteen cores [default: measured between two cores here]
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    far_line: Option<f64>,
    /// Measure something else: scr behind a link that loses these shares of the packets with their history, with loss recovery on and
    /// off: 0.01%,1%
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = loss_ppm, conflicts_with_all = ["mlffr", "latency", "model_to", "report", "engines"])]
    pub(super) link_loss: Vec<u32>,
    /// Write a page with plots into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) report: Option<PathBuf>,
}

impl Options {
    /// Refuses options that this kind of bench doesn't support.
    pub(super) fn refuse(&self, what: &str) -> Result<(), Failed> {
        let asked = [
            (self.mlffr, "--mlffr"),
            (self.latency, "--latency"),
            (self.model_to.is_some(), "--model-to"),
            (self.dispatch.is_some(), "--dispatch"),
            (self.far_line.is_some(), "--far-line"),
            (!self.link_loss.is_empty(), "--link-loss"),
            (self.report.is_some(), "--report"),
        ];
        match asked.into_iter().find(|(asked, _)| *asked) {
            Some((_, option)) => Err(Failed::usage(format_args!("{what} doesn't support {option}; omit it"))),
            None => Ok(()),
        }
    }

    /// How to measure latency; `None` without --latency.
    pub(super) fn delay(&self) -> Option<DelayPlan> {
        self.latency.then(|| DelayPlan { loads: self.load.clone(), ..DelayPlan::default() })
    }

    /// How to search for loss-free rates; `None` without --mlffr.
    pub(super) fn loss_free(&self) -> Option<LossFreePlan> {
        self.mlffr.then_some(LossFreePlan {
            threshold: self.loss_threshold,
            resolution_mpps: self.resolution,
            warm_up: self.warm_up,
            trial: self.trial,
            attempts: usize::from(self.attempts),
            descriptors: self.ring as usize,
        })
    }

    pub(super) fn model_to(&self) -> usize {
        self.model_to.unwrap_or(0)
    }

    /// The work that is added to each received packet, by this machine's calibration.
    pub(super) const fn far_line(&self) -> Option<f64> {
        self.far_line
    }

    pub(super) fn dispatch(&self) -> Work {
        self.dispatch.map_or(Work::NONE, |ns| Calibration::here().work(ns))
    }
}

/// Parses a load as a share of the throughput.
fn load(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no load: write a share of the throughput above 0 and up to 200%, such as 50%");
    let number: f64 = text.trim_end().trim_end_matches('%').trim_end().parse().map_err(|_| wrong())?;
    if number > 0.0 && number <= 200.0 { Ok(number / 100.0) } else { Err(wrong()) }
}

/// Parses `4%`, `0.1 %` or `0` as a share.
pub(in crate::cli) fn percent(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a share of packets: write 4%, 0.1% or 0, below 100%");
    let number: f64 = text.trim_end().trim_end_matches('%').trim_end().parse().map_err(|_| wrong())?;
    if (0.0..100.0).contains(&number) { Ok(number / 100.0) } else { Err(wrong()) }
}

/// Parses a share as packets per million.
fn loss_ppm(text: &str) -> Result<u32, String> {
    let ppm = percent(text)? * 1e6;
    if ppm == 0.0 || ppm >= 1.0 {
        Ok(ppm.round() as u32)
    } else {
        Err(format!("`{text}` is less than one packet in a million"))
    }
}

fn resolution(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(mpps @ 0.001..=1000.0) => Ok(mpps),
        _ => Err(format!("`{text}` is not a resolution: write 0.001 to 1000 Mpps")),
    }
}

/// Parses `104ns`, `1.5us`, `50ms`, `2s`; nanoseconds without a unit.
pub(in crate::cli) fn nanoseconds(text: &str) -> Result<f64, String> {
    match time(text) {
        Some(ns @ 0.0..=MOST_NS) => Ok(ns),
        _ => Err(format!("`{text}` is not a time from 0 to 1ms: write 104ns or 1.5us")),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    span_or_none(text).ok().filter(|span| !span.is_zero()).ok_or_else(|| wrong_span(text))
}

fn span_or_none(text: &str) -> Result<Duration, String> {
    // A number without a unit is ambiguous.
    let has_unit = text.ends_with('s');
    match time(text).filter(|_| has_unit || text == "0") {
        Some(ns @ 0.0..=600e9) => Ok(Duration::from_nanos(ns as u64)),
        _ => Err(wrong_span(text)),
    }
}

fn wrong_span(text: &str) -> String {
    format!("`{text}` is not a trial time: write 50ms or 2s, at most 600s")
}

/// A time in nanoseconds.
pub(in crate::cli) fn time(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("", 1.0)];
    let (number, factor) = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim_end().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_times_and_rates_are_read() {
        for (text, share) in [("4%", 0.04), ("4", 0.04), ("0.1 %", 0.001), ("0", 0.0), ("0%", 0.0)] {
            assert!((percent(text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for text in ["100%", "-1", "", "%", "NaN", "four"] {
            assert!(percent(text).is_err(), "{text}");
        }
        for (text, ppm) in [("0", 0), ("0.01%", 100), ("1 %", 10_000), ("10%", 100_000)] {
            assert_eq!(loss_ppm(text), Ok(ppm), "{text}");
        }
        assert!(loss_ppm("0.00001%").is_err() && loss_ppm("100%").is_err());
        for (text, ns) in [("104ns", 104.0), ("104", 104.0), ("1.5us", 1500.0), ("0", 0.0), ("0.5 ms", 5e5)] {
            assert!((nanoseconds(text).unwrap() - ns).abs() < 1e-6, "{text}");
        }
        for text in ["1s", "-1ns", "ns", "inf", "1e9", "5m"] {
            assert!(nanoseconds(text).is_err(), "{text}");
        }
        assert_eq!(span("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(span_or_none("0"), Ok(Duration::ZERO));
        for text in ["0", "50", "601s", "-1s", ""] {
            assert!(span(text).is_err(), "{text}");
        }
        assert!(resolution("0.4").is_ok() && resolution("0").is_err() && resolution("NaN").is_err());
    }
}
