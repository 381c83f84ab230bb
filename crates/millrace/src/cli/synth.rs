//! `millrace synth` generates a trace and writes it as a capture.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::ValueEnum;
use packet::{Nanos, Seq};
use port::Packet;
use port::pcap::{Container, Writer};
use serde_json::json;
use synth::{FlowTransport, FrameLen, Params, Profile, Synth};

use super::failure::{Failed, INTERRUPTED};
use super::files::{self, Format};
use super::signals;
use super::traffic::{Counter, descriptor, profile};
use crate::print::number::{self, bytes, count, counted, rate, span};
use crate::print::output::{json_text, note, print, print_json, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

/// Generate a trace with published flow sizes, whole TCP conversations and correct checksums
#[derive(clap::Args)]
#[command(after_help = "Profiles:
  university-dc  flow sizes of a university's Internet link: many small UDP and TCP flows, few elephants
  backbone       heaviest tail: half of the packets are in flows of more than 8192 packets
  hyperscaler    TCP only, flow sizes of the DCTCP web search workload
  uniform        all flows have the same size; UDP from clients only, or TCP with --transport tcp
  syn-flood      SYN segments, each from another source
  single-flow    one TCP connection

Examples:
  millrace synth --profile university-dc --flows 100k --packets 5M --seed 7 --out t.pcap
  millrace synth --profile uniform --flows 1M --packets 5M --size 64 --out - | millrace inspect -")]
pub(super) struct Args {
    /// Kind of traffic (see below)
    #[arg(long, value_name = "PROFILE", value_parser = profile(), hide_possible_values = true)]
    profile: Profile,
    /// File for the trace; - means standard output. The name sets format and compression: .pcap or .pcapng, then .gz or .zst or neither
    #[arg(long = "out", short, value_name = "FILE")]
    output: PathBuf,
    /// Capture format to write, whatever the file name
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Number of packets
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    packets: u64,
    /// Number of flows [default: as many as the profile makes of the packets]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse)]
    flows: Option<u64>,
    /// Seed of the random choices; another seed gives another trace
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Use Zipf flow sizes instead: the n-th largest flow has a size in proportion to 1 / n^EXPONENT
    #[arg(long, value_name = "EXPONENT")]
    skew: Option<f64>,
    /// Mean number of packets of a flow that follow each other back to back
    #[arg(long, default_value_t = 1.0, value_name = "PACKETS")]
    burst: f64,
    /// Frame length in bytes, or `realistic` [default: set by the profile]
    #[arg(long, value_name = "BYTES", value_parser = frame_len)]
    size: Option<FrameLen>,
    /// Share of IPv6 flows, in percent
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    ipv6: u8,
    /// One transport for all flows [default: set by the profile]
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Packets a second, in packet time
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    rate: u64,
    /// Mean time between packets of a flow, in microseconds
    #[arg(long, default_value = "5k", value_name = "NUMBER", value_parser = number::parse)]
    gap: u64,
    /// Number of client addresses [default: set by the profile]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse)]
    hosts: Option<u64>,
    /// With `uniform`: flows send in turn, not in random order
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
                Transport::Tcp => FlowTransport::Tcp,
                Transport::Udp => FlowTransport::Udp,
            }),
            hosts: self.hosts,
            turns: self.turns,
        }
    }
}

/// Refuses options that the profile would ignore.
fn refuse_unused(profile: Profile, params: &Params) -> Result<(), Failed> {
    let Params { flows, skew, burst, gap, transport, hosts, turns, .. } = params;
    let usual = Params::default();
    let (uniform, flood) = (profile == Profile::Uniform, profile == Profile::SynFlood);
    let one = profile == Profile::SingleFlow;
    let (spread, in_turns) = (uniform && skew.is_some(), one || flood || uniform && *turns);
    for (option, given, applies, why) in [
        ("--flows", flows.is_some_and(|flows| flows != 1), !one, "it has one flow"),
        ("--hosts", hosts.is_some_and(|hosts| hosts != 1), !one, "it has one client"),
        ("--skew", skew.is_some(), !one && !flood, "its flows all have the same size"),
        ("--transport", transport.is_some(), !flood, "it has only TCP SYN segments"),
        ("--turns", *turns, uniform && !spread, "only flows of `uniform` can take turns, if they have the same size"),
        ("--burst", *burst != usual.burst, !in_turns, "its flows take turns"),
        ("--gap", *gap != usual.gap, !one && !flood && !uniform, "its packets come at a constant rate"),
    ] {
        if given && !applies {
            return Err(Failed::usage(format_args!("{option} has no effect on {profile}: {why}; omit it")));
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
