//! Traffic held in memory: a capture, or a trace made up on the spot.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use packet::{LinkType, Nanos, Seq};
use port::pcap::Reader;
use port::{Fate, Packet, PortError, Trace};
use testkit::synth::{Params, Profile, Synth};

use super::failure::Failed;
use super::files;
use crate::print::number;
use crate::print::output::remark;
use crate::print::progress::{Progress, Sample};

/// Where traffic comes from.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub(super) struct Source {
    /// The capture to read; - for standard input
    #[arg(value_name = "CAPTURE", group = "traffic")]
    capture: Option<PathBuf>,
    /// The same, by an option
    #[arg(long = "in", short, value_name = "FILE", group = "traffic")]
    input: Option<PathBuf>,
    /// Make traffic up instead, of this profile (`millrace synth --help` lists them)
    #[arg(long, value_name = "PROFILE", group = "traffic", value_parser = profile(), hide_possible_values = true)]
    synth: Option<Profile>,
    /// With --synth: how many flows
    #[arg(long, default_value = FLOWS, value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["input", "capture"])]
    flows: u64,
    /// With --synth: packets a second of packet time
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["input", "capture"])]
    rate: u64,
    /// With --synth: how many client addresses; by default as many as suit the profile
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, conflicts_with_all = ["input", "capture"])]
    hosts: Option<u64>,
    /// How many packets to take at most
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    packets: u64,
}

/// Flows of what is made up, unless told.
const FLOWS: &str = "10k";

/// Traffic in memory.
pub(super) struct Traffic {
    /// What to call it.
    pub(super) name: String,
    pub(super) trace: Arc<Trace>,
}

impl Source {
    /// Refuses traffic that would not be used, for this reason.
    pub(super) fn refuse(&self, reason: &str) -> Result<(), Failed> {
        match (self.input(), self.synth) {
            (None, None) => Ok(()),
            (Some(_), _) if self.input.is_some() => Err(Failed::usage(format_args!("{reason}; leave --in out"))),
            (Some(capture), _) => Err(Failed::usage(format_args!("{reason}; leave {} out", capture.display()))),
            (None, Some(_)) => Err(Failed::usage(format_args!("{reason}; leave --synth out"))),
        }
    }

    /// The same from this capture, if nothing else was named.
    pub(super) fn reading(mut self, capture: &Path) -> Result<Self, Failed> {
        if self.is_given() {
            let capture = capture.display();
            return Err(Failed::usage(format_args!("{capture}: packets come from one place; name one of the two")));
        }
        self.capture = Some(capture.to_owned());
        Ok(self)
    }

    /// Whether there is any.
    pub(super) fn is_given(&self) -> bool {
        self.input().is_some() || self.synth.is_some()
    }

    /// The capture, where it is one.
    pub(super) fn input(&self) -> Option<&Path> {
        self.capture.as_deref().or(self.input.as_deref())
    }

    /// Brings the traffic into memory, all of it or none.
    pub(super) fn load(&self, quiet: bool) -> Result<Traffic, Failed> {
        match (self.input(), self.synth) {
            (Some(input), _) => self.read(input.to_owned(), quiet),
            (None, Some(profile)) => {
                if single(profile).is_some_and(|flows| flows != self.flows) && number::parse(FLOWS) != Ok(self.flows) {
                    return Err(Failed::usage(format_args!(
                        "--flows changes nothing in {profile}: it has one flow; leave it out"
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
                Ok(Traffic { name, trace: synthesised(profile, &params)? })
            }
            (None, None) => Err(Failed::usage("say where packets come from: a CAPTURE, --in FILE or --synth PROFILE")),
        }
    }

    fn read(&self, input: PathBuf, quiet: bool) -> Result<Traffic, Failed> {
        let mut reader = Reader::open(&input)?;
        let file = reader.progress();
        let sample = move || Sample { done: file.consumed(), total: file.total(), packets: 0 };
        let progress = Progress::watch(quiet, "read", sample);
        let packets_max = usize::try_from(self.packets).unwrap_or(usize::MAX);
        let trace = Trace::load(&mut reader, packets_max);
        drop(progress);
        let trace = trace.map_err(unused)?;
        if trace.is_empty() {
            return Err(Failed::input(format_args!("{} holds no packets", files::shown(&input).display())));
        }
        if trace.len() == packets_max && !quiet {
            let taken = number::counted(self.packets, "packet is", "packets are");
            remark(&format!("the first {taken} taken; --packets takes more\n"));
        }
        Ok(Traffic { name: files::shown(&input).display().to_string(), trace: Arc::new(trace) })
    }

    /// The arguments that bring the same traffic again.
    pub(super) fn again(&self) -> String {
        let from = match (self.input(), self.synth) {
            (Some(input), _) => format!("--in {}", files::for_shell(&input.display().to_string())),
            (None, Some(profile)) => {
                let hosts = self.hosts.map(|hosts| format!(" --hosts {hosts}")).unwrap_or_default();
                format!("--synth {profile} --flows {} --rate {}{hosts}", self.flows, self.rate)
            }
            (None, None) => String::new(),
        };
        format!("{from} --packets {}", self.packets)
    }
}

/// Reads a profile's name, which completions know.
pub(super) fn profile() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(|profile| PossibleValue::new(profile.name()).help(profile.summary())))
        .map(|name| name.parse().expect("the parser lets profiles' names through alone"))
}

/// The failure of a capture that was read in vain, with how to make do with what comes before the place at fault.
fn unused(error: PortError) -> Failed {
    match error {
        PortError::Capture(error) => cut(error),
        error => error.into(),
    }
}

/// The same of a reader's error.
pub(super) fn cut(error: port::pcap::Error) -> Failed {
    if error.packets == 0 {
        return error.into();
    }
    let (name, place) = (files::shown(&error.path), format!("at byte {}, packet {}", error.offset, error.packets + 1));
    Failed::input(format_args!(
        "{}: {} ({place}); --packets {} takes what comes before that",
        name.display(),
        error.fault,
        error.packets
    ))
}

/// A profile that has one flow and no say in it.
fn single(profile: Profile) -> Option<u64> {
    (profile == Profile::SingleFlow).then_some(1)
}

/// A made-up trace in memory.
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
