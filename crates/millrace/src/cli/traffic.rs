//! Traffic in memory: a capture, or a generated trace.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use l7::defrag::{Counts, Policy};
use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet, PortError, Trace};
use synth::{Params, Profile, Synth};

use super::captures::Captures;
use super::failure::Failed;
use super::files;
use crate::print::number;
use crate::print::output::remark;
use crate::print::progress::{Progress, Sample};

/// Arguments that say where traffic comes from.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub(super) struct Source {
    #[command(flatten)]
    pub(super) captures: Captures,
    /// Generate traffic instead, with this profile (`millrace synth --help` lists them)
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["inputs", "captures"], value_parser = profile(), hide_possible_values = true)]
    synth: Option<Profile>,
    /// With --synth: number of flows
    #[arg(long, default_value = FLOWS, value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["inputs", "captures"])]
    flows: u64,
    /// With --synth: packets a second, in packet time
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["inputs", "captures"])]
    rate: u64,
    /// With --synth: number of client addresses [default: set by the profile]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["inputs", "captures"])]
    hosts: Option<u64>,
    /// Maximum number of packets to take
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    packets: u64,
}

/// Default of --flows.
const FLOWS: &str = "10k";

/// Traffic in memory.
pub(super) struct Traffic {
    /// Its name.
    pub(super) name: String,
    pub(super) trace: Arc<Trace>,
    /// Number of interfaces.
    pub(super) interfaces: usize,
    /// How fragments were gathered, and their counts, if there were any.
    pub(super) fragments: Option<(Policy, Counts)>,
}

impl Source {
    /// Refuses traffic that would not be used, with this reason.
    pub(super) fn refuse(&self, reason: &str) -> Result<(), Failed> {
        match (self.captures.is_given(), self.synth) {
            (false, None) => Ok(()),
            (true, _) if self.captures.is_by_option() => Err(Failed::usage(format_args!("{reason}; omit --in"))),
            (true, _) => Err(Failed::usage(format_args!("{reason}; leave {} out", self.captures.name()))),
            (false, Some(_)) => Err(Failed::usage(format_args!("{reason}; omit --synth"))),
        }
    }

    /// Uses this capture, if no other is given.
    pub(super) fn reading(mut self, capture: &Path) -> Result<Self, Failed> {
        if self.is_given() {
            let capture = capture.display();
            return Err(Failed::usage(format_args!("{capture}: packets come from one place; name one of the two")));
        }
        self.captures.add(capture);
        Ok(self)
    }

    /// True if there is any.
    pub(super) fn is_given(&self) -> bool {
        self.captures.is_given() || self.synth.is_some()
    }

    /// The option that ended the traffic at `packets` packets, if one did.
    pub(super) fn limit(&self, packets: u64) -> Option<&'static str> {
        (packets == self.packets).then_some("--packets")
    }

    /// Loads the traffic into memory, all of it or none. Without packets it is refused.
    pub(super) fn load(&self, quiet: bool) -> Result<Traffic, Failed> {
        let traffic = self.load_any(quiet)?;
        match traffic.trace.is_empty() {
            true => Err(none_of(&self.captures)),
            false => Ok(traffic),
        }
    }

    /// Loads the traffic into memory, also if there are no packets, which a note tells.
    pub(super) fn load_with_none(&self, quiet: bool) -> Result<Traffic, Failed> {
        let traffic = self.load_any(quiet)?;
        if traffic.trace.is_empty() {
            remark(&format!("{}\n", nothing_in(&self.captures)));
        }
        Ok(traffic)
    }

    fn load_any(&self, quiet: bool) -> Result<Traffic, Failed> {
        match (self.captures.is_given(), self.synth) {
            (true, _) => self.read(quiet),
            (false, _) if self.captures.is_part() => {
                Err(Failed::usage("--filter, --from and --to need a capture; give one, or omit them"))
            }
            (false, Some(profile)) => {
                if single(profile).is_some_and(|flows| flows != self.flows) && number::parse(FLOWS) != Ok(self.flows) {
                    return Err(Failed::usage(format_args!(
                        "--flows has no effect on {profile}: it has one flow; omit it"
                    )));
                }
                let flows = single(profile).unwrap_or(self.flows);
                let params = Params {
                    packets: self.packets,
                    flows: Some(flows),
                    rate_pps: self.rate,
                    hosts: self.hosts,
                    ..Params::default()
                };
                let name = format!("{profile}, {}", number::counted(flows, "flow", "flows"));
                Ok(Traffic { name, trace: synthesised(profile, &params)?, interfaces: 1, fragments: None })
            }
            (false, None) => Err(Failed::usage("no traffic given; give a CAPTURE, --in FILE or --synth PROFILE")),
        }
    }

    fn read(&self, quiet: bool) -> Result<Traffic, Failed> {
        let name = self.captures.name();
        let mut reader = self.captures.open()?;
        let file = reader.progress();
        let sample = move || Sample { done: file.consumed(), total: file.total(), packets: 0 };
        let progress = Progress::watch(quiet, "read", sample);
        let packets_max = usize::try_from(self.packets).unwrap_or(usize::MAX);
        let trace = Trace::load(&mut reader, packets_max);
        drop(progress);
        let trace = trace.map_err(|error| unused(error, &self.captures))?;
        if trace.len() == packets_max && !quiet {
            let taken = number::counted(self.packets, "packet is", "packets are");
            remark(&format!("the first {taken} taken; --packets takes more\n"));
        }
        let interfaces = reader.interfaces().len();
        Ok(Traffic { name, trace: Arc::new(trace), interfaces, fragments: None })
    }

    /// The arguments for the same traffic.
    pub(super) fn again(&self) -> String {
        let from = match (self.captures.is_given(), self.synth) {
            (true, _) => self.captures.again(),
            (false, Some(profile)) => {
                let hosts = self.hosts.map(|hosts| format!(" --hosts {hosts}")).unwrap_or_default();
                format!("--synth {profile} --flows {} --rate {}{hosts}", self.flows, self.rate)
            }
            (false, None) => String::new(),
        };
        format!("{from} --packets {}", self.packets)
    }
}

/// Parses a profile's name.
pub(super) fn profile() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(|profile| PossibleValue::new(profile.name()).help(profile.summary())))
        .map(|name| name.parse().expect("the parser lets profiles' names through alone"))
}

/// The error for a damaged capture, with the option that reads only the good part.
fn unused(error: PortError, captures: &Captures) -> Failed {
    match error {
        PortError::Capture(error) => cut(error, captures),
        error => error.into(),
    }
}

/// The error for captures without packets, or without selected packets.
pub(super) fn none_of(captures: &Captures) -> Failed {
    Failed::input(nothing_in(captures))
}

/// Says that captures have no packets, or that none is selected.
pub(super) fn nothing_in(captures: &Captures) -> String {
    let name = captures.name();
    match captures.is_part() {
        true => format!("--filter, --from and --to select no packet of {name}"),
        false => format!("{name} has no packets"),
    }
}

/// The error for a damaged capture, as its reader reports it.
pub(super) fn cut(error: port::pcap::Error, captures: &Captures) -> Failed {
    // The error counts the packets of one file.
    if error.packets == 0 || captures.is_part() || captures.is_several() {
        return error.into();
    }
    let (name, place) = (files::shown(&error.path), format!("at byte {}, packet {}", error.offset, error.packets + 1));
    Failed::input(format_args!(
        "{}: {} ({place}); --packets {} reads only the packets before that",
        name.display(),
        error.fault,
        error.packets
    ))
}

/// Number of flows of a profile with a fixed single flow.
fn single(profile: Profile) -> Option<u64> {
    (profile == Profile::SingleFlow).then_some(1)
}

/// A generated trace in memory.
pub(super) fn synthesised(profile: Profile, params: &Params) -> Result<Arc<Trace>, Failed> {
    let mut synth = Synth::new(profile, params).map_err(Failed::usage)?;
    let mut trace = Trace::new();
    let link = synth.link();
    let mut seq = 0;
    while let Some((time, bytes)) = synth.next_frame() {
        trace.push(descriptor(Seq(seq), time, link, bytes.len()), bytes);
        seq += 1;
    }
    Ok(Arc::new(trace))
}

/// The descriptor of a whole packet.
pub(super) const fn descriptor(seq: Seq, time: Nanos, link: LinkType, len: usize) -> Packet {
    let len = len as u32;
    Packet { seq, time, offset: 0, len, wire_len: len, interface: 0, link, bucket: 0, fate: Fate::Pending }
}

/// A count of packets for a progress bar.
#[derive(Clone, Default)]
pub(super) struct Counter(Arc<AtomicU64>);

impl Counter {
    pub(super) fn set(&self, number: u64) {
        // ORDERING: Relaxed. A number to look at; pairs with the load in `get`.
        self.0.store(number, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        // ORDERING: Relaxed, as in `set`.
        self.0.load(Ordering::Relaxed)
    }
}
