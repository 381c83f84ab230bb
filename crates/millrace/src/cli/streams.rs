//! `millrace streams`: what both sides of each TCP session say.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::ValueEnum;
use engine::{EngineKind, Inspect, Options, private_instance};
use functions::streams::{StreamConfig, Streams, Tallies};
use l7::defrag::{DefragmentedQueue, Limits};
use packet::Nanos;
use port::pcap::Reader;
use port::{Batch, PortError, Receive, Received, Transmit};

use super::captures::{self, PART};
use super::defragment::DefragmentOption;
use super::failure::{Failed, INTERRUPTED};
use super::signals;
use crate::print::number::{self, counted};
use crate::print::output::{note, remark};
use crate::print::progress::{Progress, Sample};

mod follow;
mod transcript;

use follow::Follow;
use transcript::{Output, Transcripts};

/// Write what each side of the TCP sessions in captures says
///
/// Reassembles each side byte for byte: segments out of order wait for what is before them, repeated bytes count once, and overlapping
/// segments are resolved as --overlap says. Bytes that the capture lacks are told as gaps, and never joined over silently. With --out, each
/// side of each session becomes a file, and index.jsonl tells the sessions with all gaps and deviations by their offsets.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace streams --in a.pcap
  millrace streams --in a.pcap --follow 'tcp port 80' --out said/
  millrace streams monday.pcap.zst --format jsonl | jq 'select(.gaps > 0)'
  millrace streams --in a.pcap --overlap first --out as-windows-hears-it/")]
pub(super) struct Args {
    #[command(flatten)]
    input: captures::Input,
    /// Follow only sessions whose packets match this tcpdump filter; the same as --filter
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "filter")]
    follow: Option<String>,
    /// Folder for the files; it is made, and must not have any
    #[arg(long = "out", short, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Whose copy counts where segments overlap, and is heard by a receiver of that kind
    #[arg(long, value_name = "POLICY", default_value = "linux", value_parser = ["linux", "old-linux", "bsd", "first", "last", "solaris"])]
    overlap: String,
    #[command(flatten)]
    defragment: DefragmentOption,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    packets: Option<u64>,
    /// Output format of the list of sessions
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Number of sessions in a table, the first ones; 0 for all. csv and jsonl list all
    #[arg(long, default_value = "100", value_name = "NUMBER")]
    top: usize,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table, in the order in which sessions began.
    Text,
    /// CSV with a header line, in the order in which sessions ended.
    Csv,
    /// One JSON object a line, in the order in which sessions ended.
    Jsonl,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let mut captures = args.input.captures.clone();
    if let Some(follow) = &args.follow {
        captures.follow(follow)?;
    }
    let mut reader = captures.open()?.limited(args.packets.unwrap_or(u64::MAX));
    let output = args.output.as_deref().map(Output::make).transpose()?;
    let transcripts = Transcripts::new(output, args.format, args.top);

    let streams = Streams::new(Follow::new(transcripts.clone()), &StreamConfig::resolving(&args.overlap));
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(streams), 1, &Options::default());
    let packets = Arc::new(AtomicU64::new(0));
    let (shown, file) = (Arc::clone(&packets), reader.progress());
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    // ORDERING: Relaxed. A number to look at; pairs with the addition in `hear`.
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: shown.load(Ordering::Relaxed) };
    let progress = Progress::watch(args.format != Format::Text || args.output.is_none(), "streams", sample);

    let mut last = Nanos(0);
    let mut hear = |queue: &mut dyn Receive| -> Result<bool, Failed> {
        let mut batch = Batch::default();
        loop {
            // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
            if AtomicBool::load(&stop, Ordering::Relaxed) {
                return Ok(true);
            }
            match queue.receive(&mut batch)? {
                Received::End if batch.is_empty() => return Ok(false),
                Received::End | Received::Packets | Received::Idle => {}
            }
            instance.workers[0].process(&mut batch);
            last = batch.packets().last().map_or(last, |packet| packet.time);
            packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
            transcripts.check()?;
        }
    };
    let mut fragments = None;
    let heard = match args.defragment.policy(true) {
        Some(policy) => {
            let mut queue = DefragmentedQueue::new(Reading(&mut reader), policy, Limits::default());
            let heard = hear(&mut queue);
            fragments = Some(*queue.counts());
            heard
        }
        None => hear(&mut Reading(&mut reader)),
    };
    drop(progress);
    // Sessions that have not ended are told as far as they came.
    let _ = instance.report(last);
    let sessions = transcripts.finish()?;
    if sessions == 0 && heard.is_ok() {
        remark("no TCP sessions\n");
    }
    if let Some(dropped) = fragments.map(|counts| counts.dropped_total()).filter(|dropped| *dropped > 0) {
        remark(&format!(
            "{} of datagrams that never became whole are not heard\n",
            counted(dropped, "fragment", "fragments")
        ));
    }
    let invalid = Tallies::new(&instance.packet_counts()).of(Tallies::INVALID).packets;
    if invalid > 0 {
        remark(&format!(
            "{} outside of any valid session are not heard (windows and resets as in conntrack)\n",
            counted(invalid, "packet", "packets")
        ));
    }
    match heard {
        Ok(true) => {
            note("interrupted: only the packets read so far are heard\n");
            Err(Failed::Said(INTERRUPTED))
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A capture as a queue whose packets go nowhere.
struct Reading<'a>(&'a mut Reader);

impl Receive for Reading<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        Ok(self.0.read(batch)?)
    }
}

impl Transmit for Reading<'_> {
    fn transmit(&mut self, _: &mut Batch) -> Result<(), PortError> {
        Ok(())
    }
}
