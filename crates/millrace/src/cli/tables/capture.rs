//! Reads a capture's packets in order, with their symmetric five-tuples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{FiveTuple, Fragment, Headers, Nanos};
use port::{Batch, Received};

use crate::cli::captures::Captures;
use crate::cli::failure::{Failed, INTERRUPTED};
use crate::cli::traffic::{Counter, cut, none_of};
use crate::print::number;
use crate::print::output::{note, remark};
use crate::print::progress::{Progress, Sample};

/// The flow of a packet.
pub(super) struct Seen {
    pub(super) time: Nanos,
    /// The symmetric five-tuple.
    pub(super) flow: FiveTuple,
    /// True if the first endpoint of `flow` sent it.
    pub(super) from_first: bool,
}

/// How far a capture was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) packets: u64,
    /// Packets that belong to no flow: malformed ones, later fragments, what isn't IP.
    pub(super) without_flow: u64,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
}

/// Reads at most `packets_max` packets, and calls `see` for those with a flow.
pub(super) fn read(
    captures: &Captures,
    packets_max: u64,
    quiet: bool,
    stop: &Arc<AtomicBool>,
    mut see: impl FnMut(&Seen),
) -> Result<Extent, Failed> {
    let mut reader = captures.open()?;
    let file = reader.progress();
    let counter = Counter::default();
    let shown = counter.clone();
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: shown.get() };
    let progress = Progress::watch(quiet, "read", sample);
    let mut extent = Extent::default();
    let mut batch = Batch::default();
    'capture: while reader.read(&mut batch).map_err(|error| cut(error, captures))? != Received::End {
        // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
        if stop.load(Ordering::Relaxed) {
            note("interrupted: the capture was still being read\n");
            return Err(Failed::Said(INTERRUPTED));
        }
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            if extent.packets == packets_max {
                break 'capture;
            }
            if extent.packets == 0 {
                extent.first = packet.time;
            }
            extent.packets += 1;
            extent.last = packet.time;
            let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
            match headers.ok().and_then(|headers| flow(&headers)) {
                Some((flow, from_first)) => see(&Seen { time: packet.time, flow, from_first }),
                None => extent.without_flow += 1,
            }
        }
        counter.set(extent.packets);
    }
    drop(progress);
    if extent.packets == 0 {
        return Err(none_of(captures));
    }
    if extent.packets == packets_max && !quiet {
        let taken = number::counted(packets_max, "packet is", "packets are");
        remark(&format!("the first {taken} taken; --packets takes more\n"));
    }
    Ok(extent)
}

/// The symmetric five-tuple. Later fragments have no ports, so their flow is unknown.
fn flow(headers: &Headers) -> Option<(FiveTuple, bool)> {
    if headers.fragment == Fragment::Later {
        return None;
    }
    headers.five_tuple().map(|tuple| tuple.symmetric())
}
