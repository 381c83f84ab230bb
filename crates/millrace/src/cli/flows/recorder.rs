//! `--flows FILE`: writes the sessions of a run.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use packet::Nanos;
use port::Packet;
use port::pcap::Target;

use super::row::{CSV_HEAD, csv, jsonl};
use super::sessions::{Session, Sessions};
use super::{Format, IDLE};
use crate::cli::captures::{Captures, Tap};
use crate::cli::failure::Failed;
use crate::cli::files;

/// Writes a run's sessions as they end. The file gets its name when it is [complete](Self::finish).
pub(in crate::cli) struct Recorder {
    path: PathBuf,
    recording: Arc<Mutex<Option<Recording>>>,
}

struct Recording {
    format: Format,
    sessions: Sessions,
    ended: Vec<Session>,
    out: BufWriter<Target>,
    /// The first error; nothing is written after it.
    failure: Option<io::Error>,
}

impl Recorder {
    /// Creates the file.
    pub(in crate::cli) fn create(path: &Path) -> Result<Self, Failed> {
        let target =
            Target::create(path).map_err(|fault| Failed::input(format_args!("{}: {fault}", path.display())))?;
        let mut recording = Recording {
            format: format_of(path)?,
            sessions: Sessions::new(Nanos::from_secs(IDLE.into())),
            ended: Vec::new(),
            out: BufWriter::new(target),
            failure: None,
        };
        if recording.format == Format::Csv {
            recording.failure = writeln!(recording.out, "{CSV_HEAD}").err();
        }
        Ok(Self { path: path.to_owned(), recording: Arc::new(Mutex::new(Some(recording))) })
    }

    /// Returns the function that takes the run's packets.
    pub(in crate::cli) fn tap(&self) -> Tap {
        let recording = Arc::clone(&self.recording);
        Box::new(move |packet, bytes| {
            if let Some(recording) = &mut *recording.lock().unwrap_or_else(PoisonError::into_inner) {
                recording.take(packet, bytes);
            }
        })
    }

    /// Writes the sessions that are still open, and gives the file its name. Packets that come later are in no session.
    pub(in crate::cli) fn finish(self) -> Result<(), Failed> {
        let lost =
            |error: &io::Error| Failed::input(format_args!("{}: can't be written: {error}", self.path.display()));
        let recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner).take();
        recording.map_or(Ok(()), Recording::finish).map_err(|error| lost(&error))
    }
}

impl Recording {
    fn take(&mut self, packet: &Packet, bytes: &[u8]) {
        self.sessions.take(packet, bytes, &mut self.ended);
        if !self.ended.is_empty() {
            self.write_ended();
        }
    }

    fn write_ended(&mut self) {
        for session in self.ended.drain(..) {
            let row = if self.format == Format::Csv { csv(&session) } else { jsonl(&session) };
            if self.failure.is_none() {
                self.failure = writeln!(self.out, "{row}").err();
            }
        }
    }

    fn finish(mut self) -> io::Result<()> {
        std::mem::replace(&mut self.sessions, Sessions::new(Nanos(0))).finish(&mut self.ended);
        self.write_ended();
        match self.failure {
            Some(error) => Err(error),
            None => self.out.into_inner()?.commit(),
        }
    }
}

/// Refuses a file without a known extension, or with another use in the same run.
pub(in crate::cli) fn refuse_file(
    file: &Path,
    input: &Captures,
    others: &[(&str, Option<&Path>)],
) -> Result<(), Failed> {
    format_of(file)?;
    input.refuse_output(file)?;
    files::refuse_same(file, others)
}

fn format_of(file: &Path) -> Result<Format, Failed> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Ok(Format::Csv),
        Some("jsonl") => Ok(Format::Jsonl),
        _ => Err(Failed::usage(format_args!("{}: the file of --flows must end in .csv or .jsonl", file.display()))),
    }
}
