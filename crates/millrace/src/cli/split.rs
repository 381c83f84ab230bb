//! `millrace split`: headers to a function elsewhere, payloads parked; and `--split` of a run.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use catalogue::Program;
use nf::Sharing;
use port::Port;
use port_packet::{Options as PacketOptions, PacketPort};
use port_xdp::{Mode, XdpPort};
use split::{KEEP_MAX, KEEP_MIN, Options, Park, Secret, Shared, Store, relay};

use super::failure::Failed;
use super::live::Xdp;
use super::run::secret;
use super::signals;
use crate::print::number::{self, count, counted};
use crate::print::output::{print, print_json, remark};
use crate::print::split::{Counted, json, text};
use crate::print::style::Style;

/// Heading of these options.
const SPLITTING: &str = "Payload splitting";

/// Send the headers of packets to a function, park their payloads, and join both when the headers come back
///
/// Stands between wires and the ports of a network function, as a switch would: the first bytes of each packet go to the function with a tag
/// behind them, the rest waits in memory or on payload servers (`millrace store`). The function's machine runs `millrace run --parked`; with
/// --shorten it may be another function that changes headers only. Works until Ctrl-C, as root or with the capabilities of `millrace run
/// --interface`. What it is good for, and what not: docs/splitting.md.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo millrace split --interface wire0 --function-port nf0 --keep 128
  sudo millrace split --interface wire0 --function-port nf0 --store udp://127.0.0.1:7000-7003
  sudo millrace split --interface in0 --function-port nf0 --interface out0 --function-port nf1

On the function's side:
  sudo millrace run firewall --config fw.toml --interface nf0 --interface nf1 --parked")]
pub(super) struct Args {
    /// Network interface whose packets are split. May be repeated
    #[arg(long = "interface", value_name = "NAME", required = true)]
    wires: Vec<String>,
    /// Network interface towards the function, one for each --interface, in the same order
    #[arg(long = "function-port", value_name = "NAME", required = true)]
    ports: Vec<String>,
    /// Number of bytes of a packet that the function gets, 64 to 512; packets with longer headers go whole
    #[arg(long, value_name = "BYTES", default_value = "128", value_parser = kept)]
    keep: usize,
    #[command(flatten)]
    parking: Parking,
    /// Set IP and UDP lengths to what the function gets, for functions other than Millrace's
    #[arg(long)]
    shorten: bool,
    /// Where the XDP program runs that takes the packets [default: best]
    #[arg(long, value_enum)]
    xdp: Option<Xdp>,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::parse_positive)]
    seconds: Option<u64>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Options of the place for payloads.
#[derive(clap::Args)]
pub(super) struct Parking {
    /// Place for payloads: local, or payload servers as udp://HOST:PORT or udp://HOST:PORT-PORT, several with commas between them
    #[arg(long, value_name = "STORE", default_value = "local", value_parser = place, help_heading = SPLITTING)]
    store: Place,
    /// Number of payloads that can be parked, 2 KiB each
    #[arg(long, value_name = "NUMBER", default_value = "32768", value_parser = number::parse_positive, help_heading = SPLITTING)]
    slots: u64,
    /// Number of times that the ring of slots may come round to a payload; at the last time the payload is given up for another
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u8).range(1..), help_heading = SPLITTING)]
    rounds: u8,
    /// Longest wait for a payload server, in milliseconds [default: 20, over captures 2000]
    #[arg(long, value_name = "MS", value_parser = milliseconds, help_heading = SPLITTING)]
    store_timeout: Option<u32>,
}

/// Place for payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Local,
    Servers(Vec<SocketAddr>),
}

/// Splitting of a run's packets in front of the function.
#[derive(clap::Args)]
pub(super) struct SplitOption {
    /// Let the function see this many bytes of each packet, 64 to 512, with a tag behind them, and park the rest until the packet leaves: what
    /// `millrace split` does between machines, in one
    #[arg(long, value_name = "BYTES", value_parser = kept, help_heading = SPLITTING)]
    split: Option<usize>,
    #[command(flatten)]
    parking: Parking,
}

fn kept(text: &str) -> Result<usize, String> {
    let bytes = number::parse(text)?;
    match usize::try_from(bytes).ok().filter(|bytes| (KEEP_MIN..=KEEP_MAX).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => Err(format!("it must be from {KEEP_MIN} to {KEEP_MAX} bytes")),
    }
}

fn milliseconds(text: &str) -> Result<u32, String> {
    let range = "a whole number of milliseconds from 1 to 10000, without a unit";
    text.parse().ok().filter(|ms| (1..=10_000).contains(ms)).ok_or_else(|| range.to_owned())
}

/// Wait for a payload server where packets arrive whether or not it answers.
const LIVE_MS: u32 = 20;
/// Wait for one where packets wait for it.
const CAPTURE_MS: u32 = 2_000;

/// Parses the place of payloads.
fn place(text: &str) -> Result<Place, String> {
    if text == "local" {
        return Ok(Place::Local);
    }
    let mut servers = Vec::new();
    for server in text.split(',') {
        let wrong = || format!("`{server}` is no store: write local, udp://HOST:PORT or udp://HOST:PORT-PORT");
        let (host, ports) =
            server.strip_prefix("udp://").and_then(|server| server.rsplit_once(':')).ok_or_else(wrong)?;
        for port in ports_of(ports).ok_or_else(wrong)? {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let mut found = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
            servers.push(found.next().ok_or_else(|| format!("{host} has no address"))?);
        }
    }
    let mut sorted = servers.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is named twice", pair[0])),
        None if servers.len() > SERVERS_MAX => Err(format!("there may be {SERVERS_MAX} servers")),
        None => Ok(Place::Servers(servers)),
    }
}

/// Most payload servers.
const SERVERS_MAX: usize = 64;

fn ports_of(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

/// Most payloads in one place: 8 GiB.
const SLOTS_MAX: u64 = 1 << 22;

impl Parking {
    /// A park with nothing in it.
    fn open(&self, keep: usize, shorten: bool, wait_ms: u32) -> Result<Park, Failed> {
        let slots = match u32::try_from(self.slots) {
            Ok(slots) if self.slots <= SLOTS_MAX => slots,
            Ok(_) | Err(_) => {
                return Err(Failed::usage(format_args!(
                    "--slots: at most {} payloads can be parked",
                    count(SLOTS_MAX)
                )));
            }
        };
        let store = match &self.store {
            Place::Local => Store::local(slots),
            Place::Servers(servers) => {
                let timeout = Duration::from_millis(self.store_timeout.unwrap_or(wait_ms).into());
                Store::remote(servers, slots, secret(), timeout).map_err(Failed::input)?
            }
        };
        for store in store.silent() {
            remark(&format!("{store} doesn't answer; it is left out until it does\n"));
        }
        let options = Options { keep, slots, rounds: self.rounds, shorten, secret: Secret(secret()) };
        Ok(Park::new(options, store))
    }

    /// An option that differs from its default.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--store", self.store != Place::Local),
            ("--slots", self.slots != 32_768),
            ("--rounds", self.rounds != 1),
            ("--store-timeout", self.store_timeout.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

impl SplitOption {
    /// True if packets are split.
    pub(super) const fn is_given(&self) -> bool {
        self.split.is_some()
    }

    /// The park of a run, if its packets are split.
    pub(super) fn open(&self, program: &dyn Program) -> Result<Option<Shared>, Failed> {
        let Some(keep) = self.split else {
            return match self.parking.given() {
                Some(option) => {
                    Err(Failed::usage(format_args!("{option} is for payload splitting; add --split BYTES")))
                }
                None => Ok(None),
            };
        };
        needs_headers_only(program, "--split")?;
        Ok(Some(Shared::new(self.parking.open(keep, false, CAPTURE_MS)?)))
    }
}

/// Refuses a function that reads payloads.
pub(super) fn needs_headers_only(program: &dyn Program, option: &str) -> Result<(), Failed> {
    let description = program.description();
    if description.sharing == Sharing::Streams || program.reads_payload() || program.growth() > 0 {
        let name = description.name;
        return Err(Failed::usage(format_args!(
            "{name} reads payloads, which {option} keeps from it; leave {option} out"
        )));
    }
    Ok(())
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    if args.wires.len() != args.ports.len() {
        return Err(Failed::usage(format_args!(
            "there must be as many --function-port as --interface, in the same order; here are {} and {}",
            args.ports.len(),
            args.wires.len()
        )));
    }
    let interfaces: Vec<String> =
        args.wires.iter().zip(&args.ports).flat_map(|(wire, port)| [wire.clone(), port.clone()]).collect();
    let park = Shared::new(args.parking.open(args.keep, args.shorten, LIVE_MS)?);
    let (mut port, describe) = open(args, interfaces)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_interrupt(&stop);
    signals::stop_on_hangup(&stop);
    let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let opened = || {
        let lines = if args.json { Vec::new() } else { describe() };
        lines.iter().for_each(|line| remark(&format!("{line}\n")));
        remark(&format!("splitting behind {}\n", counted(args.keep as u64, "byte", "bytes")));
    };
    let is_over = || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let relayed = relay(&mut *port, &park, opened, is_over).map_err(Failed::input)?;
    drop(port);
    let park = park.lock();
    let counts = Counted { counts: park.counts(), keep: args.keep, relayed: Some(relayed), silent: park.silent() };
    match args.json {
        true => print_json(&json(&counts))?,
        false => print(&text(&counts, Style::stdout()))?,
    }
    Ok(())
}

/// A port, and what describes its interfaces once it is open.
type Opening = (Box<dyn Port>, Box<dyn Fn() -> Vec<String>>);

fn open(args: &Args, interfaces: Vec<String>) -> Result<Opening, Failed> {
    if matches!(args.xdp, Some(Xdp::Off)) {
        let port = PacketPort::new(PacketOptions::forward(interfaces)).map_err(Failed::usage)?;
        let monitor = port.monitor();
        return Ok((Box::new(port), Box::new(move || monitor.describe())));
    }
    let mut options = port_xdp::Options::new(interfaces);
    options.mode = match args.xdp.unwrap_or(Xdp::Best) {
        Xdp::Native => Mode::Native,
        Xdp::Generic => Mode::Generic,
        Xdp::Best | Xdp::Off => Mode::Best,
    };
    let port = XdpPort::new(options).map_err(Failed::usage)?;
    let monitor = port.monitor();
    Ok((Box::new(port), Box::new(move || monitor.describe())))
}

impl SplitOption {
    /// Says on standard error how many packets have no payload any more, and are missing in the output.
    pub(super) fn tell_missing(&self, park: Option<&Shared>) {
        let Some(park) = park else { return };
        let counts = park.lock().counts();
        let missing = counts.lost + counts.late;
        if missing > 0 {
            let advice = match (counts.late, counts.lost) {
                (0, _) => "a store lost them or was too slow; raise --store-timeout",
                (_, 0) => "their slots were used again; raise --slots or --rounds",
                _ => "a store lost them or was too slow, and slots were used again; raise --store-timeout and --slots",
            };
            let packets = counted(missing, "packet is", "packets are");
            remark(&format!("{packets} missing in what is sent, without their payloads: {advice}\n"));
        }
    }

    /// The counts of a run whose packets were split.
    pub(super) fn counted(&self, park: Option<&Shared>) -> Option<Counted> {
        let (keep, park) = self.split.zip(park)?;
        let park = park.lock();
        Some(Counted { counts: park.counts(), keep, relayed: None, silent: park.silent() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits() {
        assert_eq!((milliseconds("1"), milliseconds("10000")), (Ok(1), Ok(10_000)));
        for wrong in ["", "0", "10001", "1ms", "-1"] {
            assert!(milliseconds(wrong).unwrap_err().contains("milliseconds"), "{wrong}");
        }
    }

    #[test]
    fn stores() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(place("local"), Ok(Place::Local));
        assert_eq!(place("udp://127.0.0.1:7000-7002"), Ok(Place::Servers(vec![at(7000), at(7001), at(7002)])));
        assert_eq!(place("udp://127.0.0.1:7,udp://127.0.0.1:9"), Ok(Place::Servers(vec![at(7), at(9)])));
        assert_eq!(place("udp://[::1]:7").map(|place| place != Place::Local), Ok(true));
        for wrong in [
            "",
            "tcp://127.0.0.1:7",
            "udp://127.0.0.1",
            "udp://127.0.0.1:0",
            "udp://127.0.0.1:9-7",
            "udp://127.0.0.1:70000",
        ] {
            assert!(place(wrong).unwrap_err().contains("write local, udp://HOST:PORT"), "{wrong}");
        }
        assert!(place("udp://127.0.0.1:7,udp://127.0.0.1:7").unwrap_err().contains("is named twice"));
    }
}
