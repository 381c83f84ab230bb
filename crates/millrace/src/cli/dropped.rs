//! `--dropped` and `--sources`: dropped packets in a file, and their sources by reason.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nf::Reason;
use port::pcap::{Capture, Container, Format, Writer};

use super::captures::Captures;
use super::failure::Failed;
use super::files;
use crate::print::dropped::{Dropped, Sources};

#[derive(clap::Args)]
pub(super) struct DroppedArgs {
    /// Write dropped packets to this pcapng file, each with its drop reason as a comment. On interfaces: at most 10 packets of each reason
    /// in a second
    #[arg(long, value_name = "FILE")]
    dropped: Option<PathBuf>,
    /// For each drop reason, list the sources with the most dropped packets (--dropped implies it)
    #[arg(long)]
    sources: bool,
}

/// Counts sources during a run.
pub(super) struct Watched(Arc<Mutex<Sources>>);

impl Watched {
    /// Returns the counts at the end.
    pub(super) fn take(self) -> Vec<Dropped> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_dropped()
    }
}

impl DroppedArgs {
    /// The file of `--dropped`.
    pub(super) fn file(&self) -> Option<&Path> {
        self.dropped.as_deref()
    }

    /// True if sources are listed by option.
    pub(super) const fn lists_sources(&self) -> bool {
        self.sources
    }

    /// Refuses a file that can't hold reasons.
    pub(super) fn refuse_name(&self) -> Result<(), Failed> {
        let Some(file) = self.file() else { return Ok(()) };
        let name = file.display();
        if files::is_standard(file) {
            return Err(Failed::usage(
                "--dropped needs a file; standard output is already used by the summary or the packets",
            ));
        }
        if let Some(ending) = files::unknown(file) {
            return Err(Failed::usage(format_args!("{name}: `.{ending}` is not a capture format; use .pcapng")));
        }
        let says_classic = [".pcap", ".cap", ".dmp"].into_iter().any(|ending| {
            let name = file.to_string_lossy().to_lowercase();
            [".gz", ".zst", ""].into_iter().any(|packed| name.ends_with(&format!("{ending}{packed}")))
        });
        if says_classic {
            return Err(Failed::usage(format_args!(
                "{name}: classic pcap can't hold the drop reasons; use .pcapng for --dropped"
            )));
        }
        Ok(())
    }

    /// Refuses a file that can't hold reasons, or that has another use in this run. Nothing is opened before.
    pub(super) fn refuse(&self, input: &Captures, others: &[(&str, Option<&Path>)]) -> Result<(), Failed> {
        let Some(file) = self.file() else { return Ok(()) };
        self.refuse_name()?;
        input.refuse_output(file)?;
        files::refuse_same(file, others)
    }

    /// Registers the file and the counters with the capture, if either option is given. Packets may be longer than those of the capture by
    /// `growth` bytes.
    pub(super) fn watch(
        &self,
        capture: &mut Capture,
        format: &Format,
        reasons: &'static [&'static str],
        growth: u32,
    ) -> Result<Option<Watched>, Failed> {
        let writer = match self.file() {
            Some(file) => Some(Writer::create(file, Some(Container::PcapNg), Some(format))?.growing(growth)),
            None if self.sources => None,
            None => return Ok(None),
        };
        let sources = Arc::new(Mutex::new(Sources::default()));
        let shared = Arc::clone(&sources);
        capture.show_dropped(writer, move |reason, packet, bytes| {
            let reason = Reason(reason);
            shared.lock().unwrap_or_else(PoisonError::into_inner).add(reason, packet, bytes);
            reason.name(reasons)
        });
        Ok(Some(Watched(sources)))
    }
}
