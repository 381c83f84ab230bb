//! The reader: one capture or several as one, whole or a part of it.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::beside::Beside;
use super::error::Error;
use super::file::FileReader;
use super::format::{Format, Interface};
use super::merge::Merge;
use super::selection::{Choice, Selection};
use super::source::Progress;
use crate::batch::{Batch, Packet};
use crate::queue::Received;

/// Reads captures: pcap or pcapng, plain or compressed, from a file, a pipe or any [`Read`]; several are merged by time stamp.
#[derive(Debug)]
pub struct Reader {
    input: Input,
    selection: Selection,
}

enum Input {
    One(Box<FileReader>),
    Many(Box<Merge>),
}

/// Calls a method of the input.
macro_rules! of_input {
    ($input:expr, $name:ident($($argument:expr),*)) => {
        match $input {
            Input::One(file) => file.$name($($argument),*),
            Input::Many(merge) => merge.$name($($argument),*),
        }
    };
}

impl Reader {
    /// Opens a capture file; `-` is standard input.
    ///
    /// # Errors
    /// If the file can't be opened or is not a capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        FileReader::open(path.as_ref()).map(Self::one)
    }

    /// Opens captures and merges them by time stamp; on a tie the packet of the earlier capture in the list comes first. Interfaces that
    /// are described alike become one. All files are open at once.
    ///
    /// # Errors
    /// If a file can't be opened or is not a capture, or they have more than 65536 interfaces.
    ///
    /// # Panics
    /// If there are no captures.
    pub fn open_all<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        match paths {
            [] => panic!("there is at least one capture"),
            [path] => Self::open(path),
            paths => {
                let files = paths.iter().map(|path| FileReader::open(path.as_ref())).collect::<Result<_, _>>()?;
                Ok(Self { input: Input::Many(Box::new(Merge::new(files)?)), selection: Selection::default() })
            }
        }
    }

    /// Reads a capture from any source of bytes. Errors refer to it as `name`.
    ///
    /// # Errors
    /// If it can't be read or is not a capture.
    pub fn from_read(input: impl Read + Send + 'static, name: impl AsRef<Path>) -> Result<Self, Error> {
        FileReader::from_read(Box::new(input), name.as_ref()).map(Self::one)
    }

    fn one(file: FileReader) -> Self {
        Self { input: Input::One(Box::new(file)), selection: Selection::default() }
    }

    /// Sets the number of bytes read from a file at a time.
    ///
    /// # Panics
    /// It is less than 64 or more than 1 GiB.
    #[must_use]
    pub fn with_block(mut self, bytes: usize) -> Self {
        of_input!(&mut self.input, set_block(bytes));
        self
    }

    /// Takes only the packets that `choose` takes. Packets are numbered as if the others did not exist, and notes about the others are
    /// left out. Call it before the first read.
    #[must_use]
    pub fn choosing(mut self, choose: impl FnMut(&Packet, &[u8]) -> Choice + Send + 'static) -> Self {
        self.selection.choose = Some(Box::new(choose));
        self
    }

    /// Ends the capture after `packets` packets, of those that are [chosen](Self::choosing).
    #[must_use]
    pub fn limited(mut self, packets: u64) -> Self {
        self.selection.left = packets;
        self
    }

    /// Returns the path of the file, of several files that of the first.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.paths().next().expect("there is one file or more")
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = match &self.input {
            Input::One(file) => std::slice::from_ref(&**file),
            Input::Many(merge) => merge.files(),
        };
        files.iter().map(FileReader::path)
    }

    /// Returns the format of the capture, as far as it has been read. Of several captures: pcapng if one of them is, or if they have more than one
    /// interface.
    #[must_use]
    pub fn format(&self) -> Format {
        of_input!(&self.input, format())
    }

    /// Returns the interfaces that have been described so far.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        of_input!(&self.input, interfaces())
    }

    /// Number of packets so far with a time stamp before that of the previous packet in their file. Packet times are made monotonic.
    #[must_use]
    pub fn clock_steps_back(&self) -> u64 {
        of_input!(&self.input, clock_steps_back())
    }

    /// Number of time stamps that were ignored; their packets have a neighbour's time. A stamp is ignored if it is far from its
    /// neighbours, or outside the range of [`Nanos`](packet::Nanos).
    #[must_use]
    pub fn stamps_not_believed(&self) -> u64 {
        of_input!(&self.input, stamps_not_believed())
    }

    /// Returns true if packets may be left out.
    pub(super) const fn is_part(&self) -> bool {
        self.selection.choose.is_some()
    }

    /// Starts to keep [`notes`](Self::notes).
    pub(super) fn take_notes(&mut self) {
        of_input!(&mut self.input, take_notes());
    }

    /// Returns the notes that were not taken yet.
    pub(super) fn notes(&mut self) -> &mut Vec<Beside> {
        if self.selection.choose.is_some() {
            return &mut self.selection.notes;
        }
        of_input!(&mut self.input, notes())
    }

    /// A handle that reports how far the files have been read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        match &self.input {
            Input::One(file) => [file.progress()].into_iter().collect(),
            Input::Many(merge) => merge.files().iter().map(FileReader::progress).collect(),
        }
    }

    /// Fills the batch with the next packets, replacing its content. Returns [`Idle`](Received::Idle) if no packets came, or none was
    /// chosen.
    ///
    /// # Errors
    /// The capture is damaged or can't be read further. All whole packets before that place are delivered first. The end follows an
    /// error.
    pub fn read(&mut self, batch: &mut Batch) -> Result<Received, Error> {
        if self.selection.left == 0 {
            batch.clear();
            self.selection.end();
            return Ok(Received::End);
        }
        let received = of_input!(&mut self.input, read(batch));
        if self.selection.choose.is_some() {
            self.selection.note(of_input!(&mut self.input, notes()));
        }
        match received {
            Ok(Received::Packets) => Ok(self.selection.apply(batch)),
            Ok(Received::Idle) => Ok(Received::Idle),
            Ok(Received::End) | Err(_) => {
                self.selection.end();
                received
            }
        }
    }

    /// True if [`read`](Self::read) would not wait: there are bytes, the end, or an error. The rest of a partial record may still need a
    /// wait. Always true for [`from_read`](Self::from_read).
    #[must_use]
    pub fn is_ready(&mut self) -> bool {
        self.selection.left == 0 || of_input!(&mut self.input, is_ready())
    }

    /// Waits until the capture [is ready](Self::is_ready), for at most `at_most`. A signal may end the wait earlier, except for
    /// compressed files; a caller that handles signals should wait in short spans.
    ///
    /// # Errors
    /// The system can't wait for the file.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), Error> {
        of_input!(&mut self.input, wait(at_most))
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_input!(self, fmt(f))
    }
}
