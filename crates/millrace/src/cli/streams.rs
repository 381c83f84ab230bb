//! `millrace streams`: what both sides of each TCP session say.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::ValueEnum;
use engine::{EngineKind, Inspect, Options, memory_max, private_instance};
use functions::streams::{StreamConfig, Streams, Tallies};
use l7::defrag::{DefragmentedQueue, Limits};
use nf::{NetworkFunction, PacketCounts, Sizing};
use packet::Nanos;
use port::pcap::Reader;
use port::{Batch, PortError, Receive, Received, Transmit};

use super::captures::{self, PART};
use super::defragment::DefragmentOption;
use super::failure::{Failed, INTERRUPTED};
use super::memory::Bound;
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
    let output = args.output.as_deref().map(Output::make).transpose()?;
    let transcripts = Transcripts::new(output, args.format, args.top);
    let streams = Streams::new(Follow::new(transcripts.clone()), &StreamConfig::resolving(&args.overlap));
    let (streams, options) = (Arc::new(streams), Options::default());
    let fragments = args.defragment.policy(true);
    Bound::new(memory_max(&streams, EngineKind::Sequential, 1, &options), fragments)
        .with_rows(transcripts.memory_max(sessions_max(&*streams)))
        .tell();
    let mut instance = private_instance(EngineKind::Sequential, streams, 1, &options);
    let heard = hear(&captures, "streams", args.packets, &args.defragment, |batch| {
        instance.workers[0].process(batch);
        transcripts.check()
    })?;
    // Sessions that have not ended are told as far as they came.
    let _ = instance.report(heard.last);
    let sessions = transcripts.finish()?;
    if sessions == 0 && heard.ended.is_ok() {
        remark("no TCP sessions\n");
    }
    heard.tell(instance.packet_counts())
}

/// The most sessions that have not ended.
pub(super) fn sessions_max(function: &impl NetworkFunction) -> usize {
    let Sizing { flows, flows_v6 } = function.sizing();
    flows + flows_v6
}

/// The end of reading captures, and what was left out.
pub(super) struct Heard {
    /// The time of the last packet.
    pub(super) last: Nanos,
    /// True if it was interrupted.
    pub(super) ended: Result<bool, Failed>,
    /// Fragments of datagrams that never became whole.
    fragments: u64,
}

/// Reads captures, with fragments gathered, and calls `process` for each batch.
pub(super) fn hear(
    captures: &captures::Captures,
    name: &str,
    packets_max: Option<u64>,
    defragment: &DefragmentOption,
    mut process: impl FnMut(&mut Batch) -> Result<(), Failed>,
) -> Result<Heard, Failed> {
    let mut reader = captures.open()?.limited(packets_max.unwrap_or(u64::MAX));
    let packets = Arc::new(AtomicU64::new(0));
    let (shown, file) = (Arc::clone(&packets), reader.progress());
    let stop = Arc::<AtomicBool>::default();
    signals::stop_on_interrupt(&stop);
    // ORDERING: Relaxed. A number to look at; pairs with the addition below.
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: shown.load(Ordering::Relaxed) };
    let progress = Progress::watch(false, name, sample);

    let mut last = Nanos(0);
    let mut read = |queue: &mut dyn Receive| -> Result<bool, Failed> {
        let mut batch = Batch::default();
        loop {
            // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
            if stop.load(Ordering::Relaxed) {
                return Ok(true);
            }
            let received = queue.receive(&mut batch)?;
            process(&mut batch)?;
            last = batch.packets().last().map_or(last, |packet| packet.time);
            packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
            if received == Received::End {
                return Ok(false);
            }
        }
    };
    let mut fragments = 0;
    let ended = match defragment.policy(true) {
        Some(policy) => {
            let mut queue = DefragmentedQueue::new(Reading(&mut reader), policy, Limits::default());
            let ended = read(&mut queue);
            fragments = queue.counts().dropped_total();
            ended
        }
        None => read(&mut Reading(&mut reader)),
    };
    drop(progress);
    Ok(Heard { last, ended, fragments })
}

impl Heard {
    /// Says what was not heard, and how it ended.
    pub(super) fn tell(self, counts: PacketCounts) -> Result<(), Failed> {
        if self.fragments > 0 {
            let fragments = counted(self.fragments, "fragment", "fragments");
            remark(&format!("{fragments} of datagrams that never became whole are not heard\n"));
        }
        let invalid = Tallies::new(&counts).of(Tallies::INVALID).packets;
        if invalid > 0 {
            let packets = counted(invalid, "packet", "packets");
            remark(&format!(
                "{packets} outside of any valid session are not heard (windows and resets as in conntrack)\n"
            ));
        }
        match self.ended {
            Ok(true) => {
                note("interrupted: only the packets read so far are heard\n");
                Err(Failed::Said(INTERRUPTED))
            }
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        }
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
