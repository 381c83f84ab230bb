//! `millrace inspect` describes a capture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use port::{Batch, Received};

use super::captures::{self, PART};
use super::failure::Failed;
use super::signals;
use crate::print::number;
use crate::print::output::{note, print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

mod census;
mod flows;
mod page;

use census::Census;
use page::Page;

/// Describe a capture
///
/// Prints the link type, format, duration, packets and bytes, flows by protocol, the share of the largest flow and the skew of the
/// others, fragments, malformed packets by kind, VLANs, tunnels, and how often the capture's clock stepped back.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  millrace inspect a.pcap\n  millrace inspect a.pcap --filter 'udp port 53' --to +60\n  zcat a.pcap.gz | millrace inspect - --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    input: captures::Input,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    packets: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let captures = &args.input.captures;
    let mut reader = captures.open()?.limited(args.packets.unwrap_or(u64::MAX));
    let file = reader.progress();
    let packets = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&packets);
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    // ORDERING: Relaxed. A number to look at; pairs with the addition below.
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: shown.load(Ordering::Relaxed) };
    let progress = Progress::watch(args.json, "inspect", sample);

    let mut census = Census::default();
    let mut batch = Batch::default();
    let failure = loop {
        // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
        if stop.load(Ordering::Relaxed) {
            break None;
        }
        match reader.read(&mut batch) {
            Ok(Received::Packets) => {
                census.count(&batch);
                packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            Ok(Received::Idle) => {}
            Ok(Received::End) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(progress);
    let interrupted = stop.load(Ordering::Relaxed);

    let name = captures.name();
    let page = Page::new(&name, &reader, &census, failure.as_ref());
    if args.json {
        print_json(&page.json())?;
    } else {
        print(&page.text(Style::stdout()))?;
    }
    match failure {
        Some(error) => Err(error.into()),
        None if interrupted => {
            note("interrupted: only the packets read so far are shown\n");
            Err(Failed::Said(super::failure::INTERRUPTED))
        }
        None => Ok(()),
    }
}
