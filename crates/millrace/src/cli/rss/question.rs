//! Arguments of `rss check` and `rss solve`: packet sets and a card.

use std::path::{Path, PathBuf};

use ::rss::{Card, Driver, PacketSets, PacketType, Problem, Vary};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::cli::configuration;
use crate::cli::failure::Failed;

/// Packet sets on a card.
#[derive(clap::Args)]
pub(super) struct Question {
    /// TOML file with the packet sets: for each [port.NAME] the fields that name its sets, fields = ["src"]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Packet sets in one line: "lan: src, wan: dst". Ports separated by a comma share state; ports separated by a semicolon do not
    #[arg(long, value_name = "LINE")]
    sets: Option<String>,
    /// Network card, by the name of its driver
    #[arg(long, value_name = "CARD", value_parser = card())]
    pub(super) nic: &'static Card,
    /// Driver that configures the card: linux (ethtool), dpdk, or any of them
    #[arg(long = "driver", value_name = "DRIVER", default_value = "any", value_parser = drivers())]
    drivers: Drivers,
    /// Packet types that touch the state, separated by commas: tcp4, udp4, sctp4, other4, frag4, tcp6, ... [default: all types that have
    /// a set]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = packet_type())]
    types: Option<Vec<PacketType>>,
    /// Number of low bits of an IPv4 address that differ between your hosts [default: set by the file, else 24]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(1..=32))]
    vary_ipv4: Option<u8>,
    /// Number of low bits of an IPv6 address that differ between your hosts [default: set by the file, else 96]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(1..=128))]
    vary_ipv6: Option<u8>,
    /// Each port is on its own card
    #[arg(long)]
    separate_cards: bool,
    /// Entries of the card's indirection table [default: the card's usual size]
    #[arg(long, value_name = "NUMBER")]
    table: Option<usize>,
}

/// Drivers that may configure a card.
type Drivers = &'static [Driver];

impl Question {
    /// The packet sets.
    pub(super) fn sets(&self) -> Result<PacketSets, Failed> {
        let read = match (&self.file, &self.sets) {
            (Some(path), None) => {
                let text = configuration(path)?;
                PacketSets::parse(&text).map_err(|error| error.of(&path.display().to_string()))
            }
            (_, Some(line)) => PacketSets::from_line(line, None).map_err(|error| error.of("--sets")),
            (None, None) => Err("no packet sets given; give a FILE, or --sets \"lan: src, wan: dst\"".to_owned()),
        };
        let mut sets = read.map_err(Failed::usage)?;
        if let Some(types) = &self.types {
            sets = sets.only(types).ok_or_else(|| {
                Failed::usage("--types leaves a port without packets that have a set; give more types")
            })?;
        }
        let Vary { ipv4, ipv6 } = &mut sets.vary;
        *ipv4 = self.vary_ipv4.map_or(*ipv4, usize::from);
        *ipv6 = self.vary_ipv6.map_or(*ipv6, usize::from);
        Ok(sets)
    }

    /// The first argument, if --sets gives the packet sets; it is then a capture.
    pub(super) fn spare(&self) -> Option<&Path> {
        self.file.as_deref().filter(|_| self.sets.is_some())
    }

    /// The problem for each driver, in the order to try them.
    pub(super) fn problems<'s>(&self, sets: &'s PacketSets, seed: u64) -> Result<Vec<Problem<'s>>, Failed> {
        let table = self.table.unwrap_or(self.nic.table_sizes[0]);
        if !self.nic.table_sizes.contains(&table) {
            let sizes: Vec<String> = self.nic.table_sizes.iter().map(usize::to_string).collect();
            return Err(Failed::usage(format_args!(
                "--table {table}: the indirection table of {} has {} entries",
                self.nic.name,
                sizes.join(" or ")
            )));
        }
        let problem = |driver: &Driver| Problem {
            table,
            seed,
            one_card: !self.separate_cards,
            ..Problem::new(self.nic, *driver, sets)
        };
        Ok(self.drivers.iter().map(problem).collect())
    }
}

fn card() -> impl TypedValueParser<Value = &'static Card> {
    PossibleValuesParser::new(Card::all().iter().map(|card| card.name))
        .map(|name| Card::named(&name).expect("the parser lets cards' names through alone"))
}

fn drivers() -> impl TypedValueParser<Value = Drivers> {
    PossibleValuesParser::new(["any", "linux", "dpdk"]).map(|name| match name.as_str() {
        "linux" => &[Driver::Linux],
        "dpdk" => &[Driver::Dpdk],
        _ => &Driver::ALL as Drivers,
    })
}

fn packet_type() -> impl TypedValueParser<Value = PacketType> {
    PossibleValuesParser::new(PacketType::ALL.map(PacketType::name))
        .map(|name| PacketType::named(&name).expect("the parser lets types' names through alone"))
}
