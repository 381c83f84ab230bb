//! Where a capture's bytes come from: a file, standard input or any reader, decompressed on the way.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::decompress::{Decompressed, Gzip, Zstd};
use super::error::Fault;
use super::format::Compression;
use super::target::{is_standard, standard_input};

const MAGIC_BYTES: usize = 4;

/// The decompressed bytes of a capture.
pub(super) struct Source {
    input: Box<dyn Read + Send>,
    pub(super) compression: Option<Compression>,
    pub(super) progress: Progress,
}

/// How far a file has been read: a handle for a progress bar and a report, valid on any thread and after the reader.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    consumed: Arc<AtomicU64>,
    clock_steps_back: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    /// Bytes of the file, compressed as it lies there, that have been read.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        // ORDERING: Relaxed, for display alone; pairs with the addition in `Counted::read` and orders nothing else.
        self.consumed.load(Ordering::Relaxed)
    }

    /// How often a packet's time stamp lay before that of the packet ahead, so far.
    #[must_use]
    pub fn clock_steps_back(&self) -> u64 {
        // ORDERING: Relaxed, for display alone; pairs with the store in `Progress::set_clock_steps_back`.
        self.clock_steps_back.load(Ordering::Relaxed)
    }

    pub(super) fn set_clock_steps_back(&self, steps: u64) {
        // ORDERING: Relaxed, for display alone; pairs with the load in `Progress::clock_steps_back`.
        self.clock_steps_back.store(steps, Ordering::Relaxed);
    }

    /// Bytes of the whole file, where it is one and not a pipe.
    #[must_use]
    pub const fn total(&self) -> Option<u64> {
        self.total
    }
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let file = if is_standard(path) { standard_input() } else { File::open(path) }.map_err(Fault::Open)?;
        let metadata = file.metadata().map_err(Fault::Open)?;
        if metadata.is_dir() {
            return Err(Fault::Directory);
        }
        match metadata.is_file() {
            true => Self::new(Box::new(file), Some(metadata.len())),
            false => Self::new(Box::new(Pipe(file)), None),
        }
    }

    /// Takes any reader, of `total` bytes where that is known.
    pub(super) fn new(input: Box<dyn Read + Send>, total: Option<u64>) -> Result<Self, Fault> {
        let progress = Progress { total, ..Progress::default() };
        let mut counted = Counted { input, consumed: Arc::clone(&progress.consumed) };
        let magic = first_bytes(&mut counted)?;
        let compression = match magic[..] {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Compression::Zstd),
            _ => None,
        };
        let whole = Cursor::new(magic).chain(counted);
        let input: Box<dyn Read + Send> = match compression {
            None => Box::new(whole),
            Some(Compression::Gzip) => Box::new(Decompressed::new(whole, Gzip::new())),
            Some(Compression::Zstd) => Box::new(Decompressed::new(whole, Zstd::new().map_err(Fault::Open)?)),
        };
        Ok(Self { input, compression, progress })
    }

    /// Reads what there is, at most `into.len()` bytes; 0 at the end. What a compressed stream holds ahead of damage comes
    /// before the error.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into)
    }

    /// The fault that a failed read comes from: the system's, or the compressed stream's.
    pub(super) fn fault(&self, source: io::Error) -> Fault {
        match self.compression {
            // The system's own errors carry its number, the decompressors' do not.
            Some(compression) if source.raw_os_error().is_none() => Fault::Compressed(compression, source),
            _ => Fault::Read(source),
        }
    }
}

/// What may have nothing to read for long. It is waited for in short spans, each of which ends like an interrupted call: whoever
/// reads is asked meanwhile whether to go on.
struct Pipe(File);

const SPAN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&SPAN))? {
            0 => Err(io::ErrorKind::Interrupted.into()),
            _ => self.0.read(into),
        }
    }
}

/// The first bytes of the file, fewer where it has not as many.
fn first_bytes(input: &mut impl Read) -> Result<Vec<u8>, Fault> {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    input.take(MAGIC_BYTES as u64).read_to_end(&mut magic).map_err(Fault::Read)?;
    Ok(magic)
}

/// Counts the bytes that pass.
struct Counted {
    input: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        // ORDERING: Relaxed, for display alone; pairs with the load in `Progress::consumed`.
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
