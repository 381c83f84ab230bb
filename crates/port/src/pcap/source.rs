//! Byte sources of captures: a file, standard input or any reader, with decompression.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::ahead::Ahead;
use super::decompress::{Decompressed, Gzip, Stream, Zstd};
use super::error::Fault;
use super::format::Compression;
use super::target::{is_standard, standard_input};

const MAGIC_BYTES: usize = 4;

/// Longest wait of a read for a pipe. Then it returns as an interrupted call does, so that the caller can check whether to stop.
pub(super) const SPAN: Duration = Duration::from_millis(50);

/// The decompressed bytes of a capture.
pub(super) struct Source {
    input: Input,
    pub(super) compression: Option<Compression>,
    pub(super) progress: FileProgress,
}

enum Input {
    Plain(Box<dyn Read + Send>),
    /// The same file twice: as it is read, and as it is polled.
    Pipe(Box<dyn Read + Send>, Arc<File>),
    Compressed(Ahead),
}

/// How far captures have been read: a handle for progress bars and reports, usable on any thread and after the reader is gone.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    files: Vec<FileProgress>,
}

impl Progress {
    /// Bytes of the files read so far, before decompression.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        // ORDERING: Relaxed, for display alone; pairs with the addition in `Counted::read` and orders nothing else.
        self.files.iter().map(|file| file.consumed.load(Ordering::Relaxed)).sum()
    }

    /// Number of packets so far with a time stamp before that of the previous packet in their file.
    #[must_use]
    pub fn clock_steps_back(&self) -> u64 {
        // ORDERING: Relaxed, for display alone; pairs with the store in `FileProgress::set_clock_steps_back`.
        self.files.iter().map(|file| file.clock_steps_back.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of the whole files; `None` if one of them is a pipe.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.files.iter().map(|file| file.total).sum()
    }
}

impl FromIterator<FileProgress> for Progress {
    fn from_iter<I: IntoIterator<Item = FileProgress>>(files: I) -> Self {
        Self { files: files.into_iter().collect() }
    }
}

/// How far one file has been read.
#[derive(Clone, Debug, Default)]
pub(super) struct FileProgress {
    consumed: Arc<AtomicU64>,
    clock_steps_back: Arc<AtomicU64>,
    total: Option<u64>,
}

impl FileProgress {
    pub(super) fn set_clock_steps_back(&self, steps: u64) {
        // ORDERING: Relaxed, for display alone; pairs with the load in `Progress::clock_steps_back`.
        self.clock_steps_back.store(steps, Ordering::Relaxed);
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
            false => {
                let pipe = Arc::new(file);
                Self::start(Box::new(Pipe(Arc::clone(&pipe))), None, Some(pipe))
            }
        }
    }

    /// Takes any reader, of `total` bytes where that is known. It counts as one that never makes its reader wait.
    pub(super) fn new(input: Box<dyn Read + Send>, total: Option<u64>) -> Result<Self, Fault> {
        Self::start(input, total, None)
    }

    fn start(input: Box<dyn Read + Send>, total: Option<u64>, pipe: Option<Arc<File>>) -> Result<Self, Fault> {
        let progress = FileProgress { total, ..FileProgress::default() };
        let mut counted = Counted { input, consumed: Arc::clone(&progress.consumed) };
        let magic = first_bytes(&mut counted)?;
        let compression = match magic[..] {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Compression::Zstd),
            _ => None,
        };
        let whole = Cursor::new(magic).chain(counted);
        // Only with a thread can available bytes of a pipe be decoded without waiting for more.
        let compressed = |stream: Box<dyn Stream>| match pipe {
            Some(_) => Input::Compressed(Ahead::at_once(stream)),
            None => Input::Compressed(Ahead::once_long(stream)),
        };
        let input = match (compression, &pipe) {
            (None, None) => Input::Plain(Box::new(whole)),
            (None, Some(pipe)) => Input::Pipe(Box::new(whole), Arc::clone(pipe)),
            (Some(Compression::Gzip), _) => compressed(Box::new(Decompressed::new(whole, Gzip::new()))),
            (Some(Compression::Zstd), _) => {
                compressed(Box::new(Decompressed::new(whole, Zstd::new().map_err(Fault::Open)?)))
            }
        };
        Ok(Self { input, compression, progress })
    }

    /// Reads available bytes, at most `into.len()`; 0 at the end. Bytes decoded before damage come before the error. Returns
    /// [`Interrupted`](io::ErrorKind::Interrupted) if a pipe has nothing for [`SPAN`].
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.input {
            Input::Plain(bytes) | Input::Pipe(bytes, _) => bytes.read(into),
            Input::Compressed(ahead) => ahead.read(into),
        }
    }

    /// True if a read would return bytes, the end or an error at once. The first [`MAGIC_BYTES`] bytes of a pipe don't count.
    pub(super) fn is_ready(&self) -> bool {
        match &self.input {
            Input::Plain(_) => true,
            // If the file can't be polled, the read will return the error.
            Input::Pipe(_, file) => wait_for(file, Duration::ZERO).unwrap_or(true),
            Input::Compressed(ahead) => ahead.is_ready(),
        }
    }

    /// Waits until a read would return at once, for at most `at_most`. A signal may end it earlier.
    pub(super) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        match &self.input {
            Input::Plain(_) => Ok(()),
            Input::Pipe(_, file) => wait_for(file, at_most).map(drop),
            Input::Compressed(ahead) => {
                ahead.wait(at_most);
                Ok(())
            }
        }
    }

    /// Classifies a failed read: an error of the system or of the compressed stream.
    pub(super) fn fault(&self, source: io::Error) -> Fault {
        match self.compression {
            // System errors have a number, errors of the decompressors do not.
            Some(compression) if source.raw_os_error().is_none() => Fault::Compressed(compression, source),
            _ => Fault::Read(source),
        }
    }
}

/// Input that may be idle for long. It waits in short spans, each of which ends like an interrupted call.
struct Pipe(Arc<File>);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match wait_for(&self.0, SPAN)? {
            true => (&*self.0).read(into),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// Waits for at most `at_most`; true if the file has data or is at its end. A signal ends the wait.
fn wait_for(file: &File, at_most: Duration) -> io::Result<bool> {
    // A time out of range means no limit.
    let at_most = Timespec::try_from(at_most).ok();
    match poll(&mut [PollFd::new(file, PollFlags::IN)], at_most.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
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
