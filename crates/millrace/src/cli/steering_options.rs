//! Options of steering: the indirection table and how it follows the load.

use engine::{BUCKETS, EPOCH, EngineKind, Options};

use super::failure::Failed;
use crate::print::number;

/// Options of steering.
#[derive(clap::Args)]
#[command(next_help_heading = "Steering")]
pub(super) struct SteeringOptions {
    /// Entries of the indirection table, for rss, rss++, hybrid, transactional and pipeline: 128, 256 or 512 [default: 128]
    #[arg(long, value_name = "NUMBER", value_parser = buckets)]
    buckets: Option<usize>,
    /// With rss++ and hybrid: number of packets between two measurements of the load. The load is measured between reads, and one read
    /// takes up to about 1000 packets [default: 16384]
    #[arg(long, value_name = "PACKETS", value_parser = number::parse_positive)]
    epoch: Option<u64>,
    /// With rss++ and hybrid: rate that one core can process, in millions of packets a second. Only as many cores are used as the
    /// packets' time stamps require [default: use all cores]
    #[arg(long, value_name = "MPPS", value_parser = packets_a_second)]
    core_rate: Option<u64>,
}

impl SteeringOptions {
    /// Formats the options that this engine uses, each after a space, so that a command can be repeated.
    pub(super) fn again(&self, kind: EngineKind) -> String {
        let given = [
            ("--buckets", self.buckets.map(|buckets| buckets.to_string())),
            ("--epoch", self.epoch.map(|packets| packets.to_string())),
            ("--core-rate", self.core_rate.map(|pps| (pps as f64 / 1e6).to_string())),
        ];
        let known = self.asked(&[kind]).map(|(.., known, _)| known);
        let taken = given.into_iter().zip(known).filter(|(_, known)| *known);
        taken.filter_map(|((option, value), _)| value.map(|value| format!(" {option} {value}"))).collect()
    }

    /// Returns the first given option that this engine ignores.
    pub(super) fn idle(&self, kind: EngineKind) -> Option<&'static str> {
        self.asked(&[kind]).into_iter().find(|(_, asked, known, _)| *asked && !known).map(|(option, ..)| option)
    }

    /// For each option: its name, whether it was given, whether one of these engines uses it, and which engines do.
    fn asked(&self, kinds: &[EngineKind]) -> [(&'static str, bool, bool, &'static str); 3] {
        let follows = kinds.iter().any(|kind| kind.moves_state());
        let spreads = [EngineKind::Rss, EngineKind::Transactional, EngineKind::Pipeline];
        let hashes = follows || kinds.iter().any(|kind| spreads.contains(kind));
        [
            ("--buckets", self.buckets.is_some(), hashes, "rss, rss++, hybrid, transactional and pipeline"),
            ("--epoch", self.epoch.is_some(), follows, "rss++ and hybrid"),
            ("--core-rate", self.core_rate.is_some(), follows, "rss++ and hybrid"),
        ]
    }

    /// Copies the given options to `options`.
    ///
    /// # Errors
    /// An option was given that none of these engines uses, or `--core-rate` with a single core.
    pub(super) fn set(&self, kinds: &[EngineKind], cores: usize, options: &mut Options) -> Result<(), Failed> {
        for (option, asked, known, whose) in self.asked(kinds) {
            if asked && !known {
                return Err(Failed::usage(format_args!(
                    "{option} is for {whose}; choose one of these engines or omit the option"
                )));
            }
        }
        if self.core_rate.is_some() && cores < 2 {
            return Err(Failed::usage("--core-rate needs --cores 2 or more; give more cores or omit the option"));
        }
        options.buckets = self.buckets.unwrap_or(BUCKETS);
        options.epoch = self.epoch.unwrap_or(EPOCH);
        options.core_pps = self.core_rate;
        Ok(())
    }
}

fn buckets(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| matches!(number, 128 | 256 | 512))
        .ok_or_else(|| "write 128, 256 or 512".to_owned())
}

/// Parses millions of packets a second.
fn packets_a_second(text: &str) -> Result<u64, String> {
    let mpps = text.parse::<f64>().ok().filter(|mpps| (1e-6..=1e6).contains(mpps));
    mpps.map(|mpps| (mpps * 1e6).round() as u64)
        .ok_or_else(|| "write millions of packets a second, from 0.000001 to 1000000: 2.5".to_owned())
}
