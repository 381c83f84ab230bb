//! How steering follows the load, as commands take it.

use engine::{BUCKETS, EPOCH, EngineKind, Options};

use super::failure::Failed;
use crate::print::number;

/// How steering follows the load.
#[derive(clap::Args)]
#[command(next_help_heading = "Steering")]
pub(super) struct SteeringOptions {
    /// Entries of the indirection table: 128, 256 or 512 [default: 128]
    #[arg(long, value_name = "NUMBER", value_parser = buckets)]
    buckets: Option<usize>,
    /// With rss++ and hybrid: how many packets pass between two looks at the load, which come between reads of up to a thousand
    /// or so [default: 16384]
    #[arg(long, value_name = "PACKETS", value_parser = number::parse_positive)]
    epoch: Option<u64>,
    /// With rss++ and hybrid: what one core carries in millions of packets a second; as many cores are in use as the packets
    /// need, by their own times [default: all are]
    #[arg(long, value_name = "MPPS", value_parser = packets_a_second)]
    core_rate: Option<u64>,
}

impl SteeringOptions {
    /// The arguments that steer so again, each behind a blank, as far as an engine takes them.
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

    /// The first option that changes nothing under this engine.
    pub(super) fn idle(&self, kind: EngineKind) -> Option<&'static str> {
        self.asked(&[kind]).into_iter().find(|(_, asked, known, _)| *asked && !known).map(|(option, ..)| option)
    }

    /// Each option, whether it is asked for, whether one of these engines knows it, and which do.
    fn asked(&self, kinds: &[EngineKind]) -> [(&'static str, bool, bool, &'static str); 3] {
        let follows = kinds.iter().any(|kind| kind.moves_state());
        let hashes = follows || kinds.iter().any(|kind| matches!(kind, EngineKind::Rss | EngineKind::Transactional));
        [
            ("--buckets", self.buckets.is_some(), hashes, "rss, rss++, hybrid and transactional"),
            ("--epoch", self.epoch.is_some(), follows, "rss++ and hybrid"),
            ("--core-rate", self.core_rate.is_some(), follows, "rss++ and hybrid"),
        ]
    }

    /// Sets what was asked for.
    ///
    /// # Errors
    /// When none of these engines knows it, or on so many cores at most nothing could come of it.
    pub(super) fn set(&self, kinds: &[EngineKind], cores: usize, options: &mut Options) -> Result<(), Failed> {
        for (option, asked, known, whose) in self.asked(kinds) {
            if asked && !known {
                return Err(Failed::usage(format_args!(
                    "{option} belongs to {whose}; name one of them, or leave it out"
                )));
            }
        }
        if self.core_rate.is_some() && cores < 2 {
            return Err(Failed::usage(
                "--core-rate says how many of several cores are in use; give it --cores 2 or more, or leave it out",
            ));
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

/// Reads millions of packets a second.
fn packets_a_second(text: &str) -> Result<u64, String> {
    let mpps = text.parse::<f64>().ok().filter(|mpps| (1e-6..=1e6).contains(mpps));
    mpps.map(|mpps| (mpps * 1e6).round() as u64)
        .ok_or_else(|| "write millions of packets a second, from 0.000001 to 1000000: 2.5".to_owned())
}
