//! Selects packets of a capture: `--filter`, `--from`, `--to`, `--packets`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use packet::{Headers, Nanos};
use port::{Batch, Packet};

use super::failure::Failed;
use super::filter::Filter;
use crate::print::number;

/// Options that select packets.
#[derive(clap::Args)]
pub(super) struct Part {
    /// Take only packets that match this tcpdump filter: 'tcp port 443 and net 10.0.0.0/8'
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Take only packets from this time on: 2026-11-27T08:00:00Z, or seconds after the first packet: +12.5
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Moment>,
    /// Take only packets before this time; as --from
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Moment>,
    /// Stop after this many selected packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive)]
    packets: Option<u64>,
}

/// A time of `--from` or `--to`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    At(Nanos),
    /// Time after the first packet.
    Behind(Nanos),
}

fn moment(text: &str) -> Result<Moment, String> {
    let wrong = || "write 2026-11-27T08:00:00Z, or +12.5 for seconds after the first packet".to_owned();
    if let Some(seconds) = text.strip_prefix('+') {
        let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
        return if (0.0..1e9).contains(&seconds) {
            Ok(Moment::Behind(Nanos((seconds * 1e9) as u64)))
        } else {
            Err(wrong())
        };
    }
    // Without a zone it is UTC.
    let stamp = text.parse::<Timestamp>().or_else(|_| {
        let civil: DateTime = text.parse()?;
        civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let nanos = stamp.map_err(|_| wrong())?.as_nanosecond();
    u64::try_from(nanos).map(|nanos| Moment::At(Nanos(nanos))).map_err(|_| wrong())
}

/// The selection during a run.
pub(super) struct Parted {
    filter: Option<Filter>,
    from: Option<Moment>,
    to: Option<Moment>,
    left: Option<u64>,
    /// Time of the first packet.
    start: Option<Nanos>,
}

impl Part {
    /// Parses the filter.
    pub(super) fn checked(&self) -> Result<Parted, Failed> {
        let filter = self.filter.as_deref().map(Filter::parse).transpose();
        let filter = filter.map_err(|error| Failed::usage(format_args!("--filter: {error}")))?;
        Ok(Parted { filter, from: self.from, to: self.to, left: self.packets, start: None })
    }
}

impl Parted {
    /// Removes the packets of a batch that are not selected. Returns true if no later packet can be.
    pub(super) fn keep(&mut self, batch: &mut Batch) -> bool {
        if self.filter.is_none() && self.from.is_none() && self.to.is_none() && self.left.is_none() {
            return false;
        }
        let mut is_over = false;
        let meant: Vec<bool> = batch
            .each(0..batch.len())
            .map(|(packet, bytes)| {
                is_over |= self.is_over(packet);
                let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).ok();
                !is_over && self.takes(packet, headers.as_ref())
            })
            .collect();
        let mut meant = meant.into_iter();
        batch.retain(|_| meant.next() == Some(true));
        is_over
    }

    /// Returns true if neither this packet nor a later one can be selected.
    pub(super) fn is_over(&mut self, packet: &Packet) -> bool {
        let start = *self.start.get_or_insert(packet.time);
        self.left == Some(0) || self.to.is_some_and(|to| packet.time >= to.behind(start))
    }

    /// Returns true if the packet is selected, and counts it.
    pub(super) fn takes(&mut self, packet: &Packet, headers: Option<&Headers>) -> bool {
        let start = *self.start.get_or_insert(packet.time);
        let is_meant = self.from.is_none_or(|from| packet.time >= from.behind(start))
            && self.filter.as_ref().is_none_or(|filter| filter.fits(packet, headers));
        if is_meant && let Some(left) = &mut self.left {
            *left -= 1;
        }
        is_meant
    }
}

impl Moment {
    fn behind(self, start: Nanos) -> Nanos {
        match self {
            Self::At(time) => time,
            Self::Behind(span) => start + span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_iso_or_behind_the_first_packet() {
        let at = |text: &str| moment(text).unwrap();
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Moment::At(Nanos(1_500_000_000)));
        assert_eq!(at("1970-01-01T02:00:01+02:00"), at("1970-01-01 00:00:01"));
        assert_eq!(at("+12.5"), Moment::Behind(Nanos(12_500_000_000)));
        for text in ["", "noon", "+", "+-1", "12:00", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z"] {
            assert!(moment(text).unwrap_err().contains("write 2026"), "{text}");
        }
    }
}
