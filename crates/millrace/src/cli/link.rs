//! A link between sequencer and cores that loses packets, as `run` takes it.

use engine::Link;

use super::bench::options::percent;

/// What is lost on the way to replicas, and whether they recover it.
#[derive(clap::Args)]
pub(super) struct LinkArgs {
    /// With scr: keep logs from which cores take what they missed (on), or don't (off, as without the option). With
    /// --sequenced: packets may be missing
    #[arg(long, value_enum, value_name = "SWITCH", help_heading = "Loss")]
    loss_recovery: Option<Switch>,
    /// With scr: how many of the packets are lost, with the history they carry, on the way to their cores: 0.1%
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "sequenced", help_heading = "Loss")]
    link_loss: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

impl LinkArgs {
    /// The link; `None` where nothing is lost and nobody logs. Which packets are lost follows from the run's seed.
    pub(super) fn link(&self, seed: u64) -> Option<Link> {
        let recovery = self.loss_recovery == Some(Switch::On);
        let loss_ppm = (self.link_loss.unwrap_or(0.0) * 1e6).round() as u32;
        (recovery || loss_ppm > 0).then_some(Link { loss_ppm, seed, recovery, ..Link::default() })
    }
}
