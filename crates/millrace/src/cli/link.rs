//! Options of a link between sequencer and cores that loses packets.

use engine::Link;

use super::bench::options::percent;

/// Loss on the way to replicas, and whether they recover it.
#[derive(clap::Args)]
pub(super) struct LinkArgs {
    /// With scr: keep logs, so that a core can fetch the history it missed (on), or keep none (off). With --sequenced: on means that
    /// packets may be missing from the capture [default: off]
    #[arg(long, value_enum, value_name = "SWITCH", help_heading = "Loss")]
    loss_recovery: Option<Switch>,
    /// With scr: share of packets that are lost on the way to their cores, with the history that they carry: 0.1% [default: 0]
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "sequenced", help_heading = "Loss")]
    link_loss: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

impl LinkArgs {
    /// Returns the link; `None` if nothing is lost and no logs are kept. The run's seed decides which packets are lost.
    pub(super) fn link(&self, seed: u64) -> Option<Link> {
        let recovery = self.loss_recovery == Some(Switch::On);
        let loss_ppm = (self.link_loss.unwrap_or(0.0) * 1e6).round() as u32;
        (recovery || loss_ppm > 0).then_some(Link { loss_ppm, seed, recovery, ..Link::default() })
    }
}
