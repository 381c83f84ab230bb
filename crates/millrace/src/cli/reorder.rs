//! `--reorder`: packets of a connection are brought together before the function sees them.

use catalogue::Program;
use nf::PacketSet;
use packet::Nanos;
use port::{Port, ReorderCounts, ReorderLimits, ReorderTotals, Reordered};

use super::bench::options::time;
use super::failure::Failed;
use crate::print::output::remark;

/// The option.
#[derive(clap::Args)]
pub(super) struct ReorderOption {
    /// Hold packets for at most this time, so that those of a connection come to the function together: 100us. The first packet of a
    /// connection is not held, and neither are SYN, FIN, RST, bare acknowledgements, ICMP, fragments, what is no IP, and traffic with
    /// priority (DSCP 44 and up). Packets of a connection keep their order. 0 changes nothing
    #[arg(long, value_name = "TIME", value_parser = delay, conflicts_with = "sequenced")]
    reorder: Option<Nanos>,
}

/// The longest delay, in nanoseconds.
const MOST_NS: f64 = 1e9;

/// Parses `100us`, `1.5ms`, `0`. Other times need a unit.
fn delay(text: &str) -> Result<Nanos, String> {
    match time(text).filter(|_| text.ends_with('s') || text == "0") {
        Some(ns @ 0.0..=MOST_NS) => Ok(Nanos(ns.round() as u64)),
        _ => Err(format!("`{text}` is not a time from 0 to 1s: write 100us or 1.5ms")),
    }
}

impl ReorderOption {
    /// The delay, if packets are held.
    pub(super) fn delay(&self) -> Option<Nanos> {
        self.reorder.filter(|delay| *delay > Nanos(0))
    }

    /// Refuses the option where packets can't be held.
    pub(super) fn refuse(&self, what: &str, instead: &str) -> Result<(), Failed> {
        match self.delay() {
            Some(_) => Err(Failed::usage(format_args!("{what}; {instead}"))),
            None => Ok(()),
        }
    }

    /// Says which functions may decide otherwise, because they see packets of several connections in another order.
    pub(super) fn tell(&self, program: &dyn Program, quiet: bool) {
        if let (Some(_), false, Some(why)) = (self.delay(), quiet, wider(program)) {
            let name = program.description().name;
            remark(&format!(
                "{name}: {why}, and --reorder keeps the order of packets within a connection alone; some verdicts may be others than \
                 without it (docs/reordering.md)\n"
            ));
        }
    }

    /// The port with the option applied.
    pub(super) fn over<P: Port>(&self, port: P) -> Reordered<P> {
        Reordered::new(port, self.delay().unwrap_or(Nanos(0)), ReorderLimits::default())
    }

    /// The delay and the counts, if packets were held.
    pub(super) fn counted(&self, totals: &ReorderTotals) -> Option<(Nanos, ReorderCounts)> {
        self.delay().map(|delay| (delay, totals.get()))
    }
}

/// Returns the reason for which a function sees packets in another order, if some of its state is for several connections.
fn wider(program: &dyn Program) -> Option<String> {
    let set = program.packet_set();
    match set {
        PacketSet::FiveTuple | PacketSet::SymmetricFiveTuple => {
            program.description().sharing.what().map(|what| format!("its connections share {what}"))
        }
        PacketSet::Connection => Some("the two directions of its connections have different addresses".into()),
        PacketSet::None => Some("it has one state for all packets".into()),
        PacketSet::Source
        | PacketSet::Initiator
        | PacketSet::Destination
        | PacketSet::SourceDestination
        | PacketSet::SourceMac
        | PacketSet::Tunnel => Some(format!("it keeps state by something wider than a connection ({set})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read() {
        for (text, ns) in
            [("0", 0), ("0s", 0), ("100us", 100_000), ("1.5 ms", 1_500_000), ("10ns", 10), ("1s", 1_000_000_000)]
        {
            assert_eq!(delay(text), Ok(Nanos(ns)), "{text}");
        }
        for text in ["", "100", "us", "-1us", "2s", "1001ms", "NaNs", "infs", "100 u"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }
}
