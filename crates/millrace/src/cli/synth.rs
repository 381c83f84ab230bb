//! `millrace synth`: a made-up trace, written as it is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::ValueEnum;
use packet::{Nanos, Seq};
use port::Packet;
use port::pcap::{Container, Writer};
use serde_json::json;
use synth::{Carrier, FrameLen, Params, Profile, Synth};

use super::failure::{Failed, INTERRUPTED};
use super::files::{self, Format};
use super::signals;
use super::traffic::{Counter, descriptor, profile};
use crate::print::number::{self, bytes, count, counted, rate, span};
use crate::print::output::{json_text, note, print, print_json, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

/// Make a trace up: flow sizes of published traffic, whole TCP conversations, every checksum right
#[derive(clap::Args)]
#[command(after_help = "Profiles:
  university-dc  flow sizes of a university's Internet link: mice of UDP and TCP, few elephants
  backbone       the heaviest tail: half of the packets in flows of more than 8192
  hyperscaler    TCP alone, sizes of the DCTCP web search workload
  uniform        all flows alike, UDP from clients alone unless TCP is asked for
  syn-flood      SYN segments, each from its own source
  single-flow    one TCP connection

Examples:
  millrace synth --profile university-dc --flows 100k --packets 5M --seed 7 --out t.pcap
  millrace synth --profile uniform --flows 1M --packets 5M --size 64 --out - | millrace inspect -")]
pub(super) struct Args {
    /// The kind of traffic
    #[arg(long, value_name = "PROFILE", value_parser = profile(), hide_possible_values = true)]
    profile: Profile,
    /// Where to write it; - for standard output. The name tells format and compression (.pcapng.zst)
    #[arg(long = "out", short, value_name = "FILE")]
    output: PathBuf,
    /// The format to write, whatever the name says
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// How many packets
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    packets: u64,
    /// How many flows; by default as many as the profile makes of the packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse)]
    flows: Option<u64>,
    /// Another seed, another trace
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Flow sizes by Zipf instead: the n-th largest as n to the minus this
    #[arg(long, value_name = "EXPONENT")]
    skew: Option<f64>,
    /// How many packets of a flow come back to back, on average
    #[arg(long, default_value_t = 1.0, value_name = "PACKETS")]
    burst: f64,
    /// Frame length in bytes, or `realistic`; by default the profile decides
    #[arg(long, value_name = "BYTES", value_parser = frame_len)]
    size: Option<FrameLen>,
    /// How many of a hundred flows are IPv6
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    ipv6: u8,
    /// One transport for all flows; by default the profile decides
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Packets per second of the trace's own time
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    rate: u64,
    /// Microseconds between a flow's packets, on average
    #[arg(long, default_value = "5k", value_name = "NUMBER", value_parser = number::parse)]
    gap: u64,
    /// How many client addresses there are
    #[arg(long, value_name = "NUMBER", value_parser = number::parse)]
    hosts: Option<u64>,
    /// In `uniform`: flows take turns and don't come at random
    #[arg(long)]
    turns: bool,
    /// Print a summary as JSON, to standard output (with `--out -` to standard error)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    /// Whole TCP conversations
    Tcp,
    /// UDP
    Udp,
}

impl Args {
    fn params(&self) -> Params {
        Params {
            seed: self.seed,
            packets: self.packets,
            flows: self.flows,
            skew: self.skew,
            burst: self.burst,
            rate_pps: self.rate,
            gap: Nanos::from_micros(self.gap),
            frame_len: self.size,
            ipv6_percent: self.ipv6,
            transport: self.transport.map(|transport| match transport {
                Transport::Tcp => Carrier::Tcp,
                Transport::Udp => Carrier::Udp,
            }),
            hosts: self.hosts,
            turns: self.turns,
        }
    }
}

/// Refuses what the profile would pass over in silence.
fn refuse_unused(profile: Profile, params: &Params) -> Result<(), Failed> {
    let Params { flows, skew, burst, gap, transport, hosts, turns, .. } = params;
    let usual = Params::default();
    let (uniform, flood) = (profile == Profile::Uniform, profile == Profile::SynFlood);
    let one = profile == Profile::SingleFlow;
    let (spread, in_turns) = (uniform && skew.is_some(), one || flood || uniform && *turns);
    for (option, given, applies, why) in [
        ("--flows", flows.is_some_and(|flows| flows != 1), !one, "it has one flow"),
        ("--hosts", hosts.is_some_and(|hosts| hosts != 1), !one, "it has one client"),
        ("--skew", skew.is_some(), !one && !flood, "its flows are alike"),
        ("--transport", transport.is_some(), !flood, "it is of TCP's SYN segments"),
        ("--turns", *turns, uniform && !spread, "only the flows of `uniform` can take turns, and those of one size"),
        ("--burst", *burst != usual.burst, !in_turns, "its flows take turns"),
        ("--gap", *gap != usual.gap, !one && !flood && !uniform, "its packets come at a steady rate"),
    ] {
        if given && !applies {
            return Err(Failed::usage(format_args!("{option} changes nothing in {profile}: {why}; leave it out")));
        }
    }
    Ok(())
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    refuse_unused(args.profile, &args.params())?;
    files::refuse_output(&args.output, args.format)?;
    let start = Instant::now();
    let mut synth = Synth::new(args.profile, &args.params()).map_err(Failed::usage)?;
    let (flows, total) = (synth.flows(), synth.packets());
    let mut writer = Writer::create(&args.output, args.format.map(Container::from), None)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_interrupt(&stop);
    let counter = Counter::default();
    let shown = counter.clone();
    let sample = move || Sample { done: shown.get(), total: Some(total), packets: shown.get() };
    let progress = Progress::watch(args.json, "synth", sample);

    let (mut packets, mut size) = (0, 0);
    let link = synth.link();
    while let Some((time, frame)) = synth.next_frame() {
        let packet: Packet = descriptor(Seq(packets), time, link, frame.len());
        writer.write(&packet, frame)?;
        packets += 1;
        size += frame.len() as u64;
        if packets.is_multiple_of(1 << 12) {
            counter.set(packets);
            // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    writer.finish()?;
    drop(progress);

    let interrupted = packets < total;
    let elapsed = start.elapsed();
    if args.json {
        let value = json!({
            "profile": args.profile.name(), "output": args.output.display().to_string(), "seed": args.seed.to_string(),
            "packets": packets, "flows": flows, "bytes": size, "elapsed_s": elapsed.as_secs_f64(),
            "interrupted": interrupted,
        });
        if files::is_standard(&args.output) { note(&json_text(&value)) } else { print_json(&value)? }
    } else {
        let is_packets = files::is_standard(&args.output);
        let style = if is_packets { Style::stderr() } else { Style::stdout() };
        let what = format!(
            "{} of {}, {}",
            counted(packets, "packet", "packets"),
            counted(flows, "flow", "flows"),
            bytes(size)
        );
        let took = format!("in {}, {}", span(elapsed), rate(packets, elapsed));
        let said = format!("{}: {what}, {took}\n", style.bold(args.profile));
        if is_packets {
            remark(&said)
        } else {
            print(&said)?
        }
        if interrupted {
            note(&format!("interrupted: {} are missing\n", count(total - packets)));
        }
    }
    if interrupted { Err(Failed::Said(INTERRUPTED)) } else { Ok(()) }
}

fn frame_len(text: &str) -> Result<FrameLen, String> {
    match text {
        "realistic" => Ok(FrameLen::Realistic),
        _ => match text.parse() {
            Ok(bytes @ 64..=1514) => Ok(FrameLen::Fixed(bytes)),
            _ => Err("write a number from 64 to 1514, or realistic".to_owned()),
        },
    }
}
