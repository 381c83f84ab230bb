//! Merges captures by time stamp.

use std::path::{Path, PathBuf};

use port::pcap::{Progress, Reader};
use port::{Batch, Packet, Received};

use super::failure::Failed;
use super::files;

/// A k-way merge of captures.
pub(super) struct Merged {
    sources: Vec<Source>,
    /// Source of the last packet.
    at: Option<usize>,
}

struct Source {
    reader: Reader,
    batch: Batch,
    next: usize,
    ended: bool,
}

/// Returns the bytes read of all captures, and their sum if it is known.
pub(super) type Done = Box<dyn Fn() -> (u64, Option<u64>) + Send>;

/// Maximum number of captures, as all are open at once.
const CAPTURES_MAX: usize = 512;

impl Merged {
    /// Opens captures. A folder stands for the captures in it.
    pub(super) fn open<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Self, Failed> {
        let mut files = Vec::new();
        for path in paths {
            if path.is_dir() { files.extend(captures_in(path)?) } else { files.push(path.clone()) }
        }
        if files.len() > CAPTURES_MAX {
            return Err(Failed::usage(format_args!(
                "{} captures at once are too many: at most {CAPTURES_MAX}",
                files.len()
            )));
        }
        if files.iter().filter(|file| files::is_standard(file)).count() > 1 {
            return Err(Failed::usage("standard input can be read once only; name - once"));
        }
        let open = |file: &PathBuf| {
            let reader = Reader::open(file)?;
            Ok(Source { reader, batch: Batch::default(), next: 0, ended: false })
        };
        Ok(Self { sources: files.iter().map(open).collect::<Result<_, Failed>>()?, at: None })
    }

    /// Returns the progress counter.
    pub(super) fn progress(&self) -> Done {
        let all: Vec<Progress> = self.sources.iter().map(|source| source.reader.progress()).collect();
        Box::new(move || {
            let total = all.iter().map(Progress::total).sum();
            (all.iter().map(Progress::consumed).sum(), total)
        })
    }

    /// Returns the packet with the earliest time stamp; on a tie the one of the first capture.
    pub(super) fn next(&mut self) -> Result<Option<(&Packet, &[u8])>, Failed> {
        if let Some(at) = self.at {
            self.sources[at].next += 1;
        }
        for source in &mut self.sources {
            source.fill()?;
        }
        let first = |(at, source): (usize, &Source)| source.head().map(|packet| (packet.time, at));
        let Some((_, at)) = self.sources.iter().enumerate().filter_map(first).min() else { return Ok(None) };
        self.at = Some(at);
        let source = &self.sources[at];
        Ok(Some(source.batch.packet(source.next)))
    }
}

impl Source {
    fn head(&self) -> Option<&Packet> {
        self.batch.packets().get(self.next)
    }

    /// Reads the next batch if this one is used up.
    fn fill(&mut self) -> Result<(), Failed> {
        while self.next == self.batch.len() && !self.ended {
            self.next = 0;
            self.batch.clear();
            match self.reader.read(&mut self.batch) {
                Ok(Received::Packets | Received::Idle) => {}
                Ok(Received::End) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// Lists the captures in a folder, sorted by name, without its subfolders.
fn captures_in(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let name = folder.display();
    let unread = |error: std::io::Error| Failed::input(format_args!("{name}: can't be read: {error}"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.is_file() && files::is_capture(&path) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Failed::input(format_args!(
            "{name}: there is no capture in this folder (.pcap, .pcapng, .cap, also .gz and .zst)"
        )));
    }
    files.sort();
    Ok(files)
}
