//! What sessions have said: files, and the list of sessions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use functions::streams::{Deviation, End, Gap, Session};
use packet::Endpoint;
use serde_json::{Value, json};

use super::Format;
use crate::cli::failure::Failed;
use crate::cli::first::First;
use crate::print::number::{bytes, count, iso};
use crate::print::output::print;
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};

/// What happened to a side besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Gap(Gap),
    Deviation(Deviation),
    End,
}

/// The transcripts of all sessions.
#[derive(Clone, Debug)]
pub(super) struct Transcripts(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    output: Option<Output>,
    format: Format,
    begun: u64,
    ended: u64,
    open: HashMap<u64, Box<Transcript>>,
    /// Events of all open sessions.
    events: usize,
    /// The rows of the table, by number.
    rows: First<u64, Transcript>,
    /// The first error; nothing is written behind it.
    failure: Option<Failed>,
}

/// What a session has said so far.
#[derive(Debug)]
struct Transcript {
    number: u64,
    session: Session,
    sides: [Heard; 2],
}

/// What a side has said so far.
#[derive(Debug, Default)]
struct Heard {
    bytes: u64,
    gaps: u64,
    gap_bytes: u64,
    deviations: u64,
    ended: bool,
    /// Gaps and deviations for the index with their offsets, at most [`EVENTS_MAX`].
    events: Vec<(u64, Event)>,
}

/// The events of a side that the index tells one by one.
const EVENTS_MAX: usize = 10_000;

/// The events of all sessions that have not ended, which wait for the index. Further ones are only counted.
const OPEN_EVENTS_MAX: usize = 1 << 20;

/// The most memory of a row, in bytes, with its places in the table of open sessions while that grows.
const ROW_MAX: usize = size_of::<Transcript>() + 32 + 6 * 24;

impl Transcripts {
    pub(super) fn new(output: Option<Output>, format: Format, top: usize) -> Self {
        let (open, rows) = (HashMap::new(), First::new(top));
        let inner = Inner { output, format, begun: 0, ended: 0, open, events: 0, rows, failure: None };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// The most memory that the rows of `sessions` open sessions take, in bytes.
    pub(super) fn memory_max(&self, sessions: usize) -> usize {
        // A list has up to twice as much room as it has events, and four times while it grows, or four from the start.
        let lists = 2 * sessions * 4 * size_of::<(u64, Event)>();
        let events = 3 * OPEN_EVENTS_MAX * size_of::<(u64, Event)>() + lists;
        sessions * ROW_MAX + if self.lock().output.is_some() { events } else { 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the transcript of a session and returns its number, from 1.
    pub(super) fn begin(&self, session: &Session) -> u64 {
        let inner = &mut *self.lock();
        inner.begun += 1;
        let number = inner.begun;
        let transcript = Transcript { number, session: *session, sides: Default::default() };
        inner.open.insert(number, Box::new(transcript));
        number
    }

    /// Adds bytes of a side.
    pub(super) fn write(&self, number: u64, side: usize, bytes: &[u8]) {
        let Inner { output, open, failure, .. } = &mut *self.lock();
        let Some(transcript) = open.get_mut(&number) else { return };
        transcript.sides[side].bytes += bytes.len() as u64;
        if failure.is_none()
            && let Some(output) = output
            && let Err(error) = output.append(number, side, bytes)
        {
            *failure = Some(error);
        }
    }

    /// Adds what happened to a side.
    pub(super) fn note(&self, number: u64, side: usize, event: Event) {
        let Inner { open, output, events, .. } = &mut *self.lock();
        let Some(transcript) = open.get_mut(&number) else { return };
        let heard = &mut transcript.sides[side];
        match event {
            Event::Gap(Gap { len, .. }) => {
                heard.gaps += 1;
                heard.gap_bytes += u64::from(len);
            }
            Event::Deviation(_) => heard.deviations += 1,
            Event::End => return heard.ended = true,
        }
        if output.is_some() && heard.events.len() < EVENTS_MAX && *events < OPEN_EVENTS_MAX {
            *events += 1;
            heard.events.push((heard.bytes, event));
        }
    }

    /// Ends a session: its row is written, or kept for the table.
    pub(super) fn end(&self, number: u64) {
        let inner = &mut *self.lock();
        let Some(transcript) = inner.open.remove(&number) else { return };
        inner.events -= transcript.sides.iter().map(|side| side.events.len()).sum::<usize>();
        inner.ended += 1;
        if inner.failure.is_none()
            && let Err(error) = inner.tell(transcript)
        {
            inner.failure = Some(error);
        }
    }

    /// Fails if something could not be written.
    pub(super) fn check(&self) -> Result<(), Failed> {
        self.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Completes files and list. Returns the number of sessions.
    pub(super) fn finish(&self) -> Result<u64, Failed> {
        self.check()?;
        let inner = &mut *self.lock();
        if let Some(output) = &mut inner.output {
            output.finish()?;
        }
        if inner.format == Format::Text {
            print(&table(&inner.rows.take_rows(), inner.ended))?;
        }
        Ok(inner.ended)
    }
}

impl Inner {
    fn tell(&mut self, mut transcript: Box<Transcript>) -> Result<(), Failed> {
        if let Some(output) = &mut self.output {
            output.index(&transcript)?;
        }
        transcript.sides.iter_mut().for_each(|side| side.events = Vec::new());
        let line = match self.format {
            Format::Text => {
                self.rows.add(transcript.number, *transcript);
                return Ok(());
            }
            Format::Csv if self.ended == 1 => format!("{CSV_HEAD}\n{}\n", transcript.csv()),
            Format::Csv => transcript.csv() + "\n",
            Format::Jsonl => transcript.json().to_string() + "\n",
        };
        stdout().lock().write_all(line.as_bytes()).map_err(|error| Failed::output(&error))
    }
}

const SIDES: [&str; 2] = ["client", "server"];

const CSV_HEAD: &str = "stream,began,client,client_port,server,server_port,client_bytes,server_bytes,\
    gaps,gap_bytes,deviations,client_ended,server_ended";

/// An event of a side for the index.
fn told(side: usize, (at, event): (u64, Event)) -> Value {
    let side = SIDES[side];
    match event {
        Event::Gap(Gap { len, end }) => json!({ "side": side, "at": at, "gap": len, "because": because(end) }),
        Event::Deviation(Deviation { ahead, len, takes_new }) => {
            let heard = if takes_new { "second" } else { "first" };
            json!({ "side": side, "at": at + u64::from(ahead), "deviation": len, "heard": heard })
        }
        Event::End => json!({ "side": side, "at": at, "end": true }),
    }
}

const fn because(end: End) -> &'static str {
    match end {
        End::Acknowledged => "acknowledged",
        End::NotCaptured => "not captured",
        End::Limit => "too many early segments",
        End::OutOfMemory => "out of memory",
        End::Ended => "the session ended",
    }
}

impl Transcript {
    fn ends(&self) -> [Endpoint; 2] {
        [self.session.tuple.source(), self.session.tuple.destination()]
    }

    fn sum(&self, of: impl Fn(&Heard) -> u64) -> u64 {
        self.sides.iter().map(of).sum()
    }

    fn csv(&self) -> String {
        let [client, server] = self.ends();
        let [one, other] = &self.sides;
        format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{}",
            self.number,
            iso(self.session.began),
            client.address,
            client.port,
            server.address,
            server.port,
            one.bytes,
            other.bytes,
            self.sum(|side| side.gaps),
            self.sum(|side| side.gap_bytes),
            self.sum(|side| side.deviations),
            one.ended,
            other.ended
        )
    }

    fn json(&self) -> Value {
        let [client, server] = self.ends();
        let [one, other] = &self.sides;
        json!({
            "stream": self.number, "began": iso(self.session.began),
            "client": client.address.to_string(), "client_port": client.port,
            "server": server.address.to_string(), "server_port": server.port,
            "client_bytes": one.bytes, "server_bytes": other.bytes,
            "gaps": self.sum(|side| side.gaps), "gap_bytes": self.sum(|side| side.gap_bytes),
            "deviations": self.sum(|side| side.deviations),
            "client_ended": one.ended, "server_ended": other.ended,
        })
    }
}

/// The first rows of `all` sessions as a table.
fn table(rows: &[Transcript], all: u64) -> String {
    let style = Style::stdout();
    let columns = [
        ("stream", Align::Right),
        ("began", Align::Left),
        ("client", Align::Left),
        ("server", Align::Left),
        ("client said", Align::Right),
        ("server said", Align::Right),
        ("gaps", Align::Right),
        ("missing", Align::Right),
        ("deviations", Align::Right),
        ("ended", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for transcript in rows {
        let [client, server] = transcript.ends().map(shown);
        let [one, other] = &transcript.sides;
        let ended = match (one.ended, other.ended) {
            (true, true) => "both",
            (true, false) => "client",
            (false, true) => "server",
            (false, false) => "-",
        };
        sheet.row([
            count(transcript.number),
            iso(transcript.session.began),
            client,
            server,
            bytes(one.bytes),
            bytes(other.bytes),
            count(transcript.sum(|side| side.gaps)),
            bytes(transcript.sum(|side| side.gap_bytes)),
            count(transcript.sum(|side| side.deviations)),
            ended.to_owned(),
        ]);
    }
    let mut text = sheet.lines(0);
    if (rows.len() as u64) < all {
        let _ = writeln!(text, "... and {} more (--top 0 lists all)", count(all - rows.len() as u64));
    }
    text
}

fn shown(end: Endpoint) -> String {
    if end.address.is_ipv4() {
        format!("{}:{}", end.address, end.port)
    } else {
        format!("[{}]:{}", end.address, end.port)
    }
}

/// A folder with a file for each side that said something, and an index.
#[derive(Debug)]
pub(super) struct Output {
    folder: PathBuf,
    /// Files that are open, by session and side.
    files: HashMap<(u64, usize), File>,
    index: BufWriter<File>,
}

/// The files that are open at once.
const FILES_MAX: usize = 200;

/// The index gets its name when it is complete.
const INDEX: &str = "index.jsonl";
const UNFINISHED: &str = ".index.jsonl.tmp";

impl Output {
    /// Makes the folder. It must be empty, so that nothing in it is mistaken for this run's.
    pub(super) fn make(folder: &Path) -> Result<Self, Failed> {
        let failed = |error| Failed::input(format_args!("{}: can't be written to: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(failed)?;
        if fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(Failed::usage(format_args!("{}: is not empty; give another folder", folder.display())));
        }
        let index = BufWriter::new(File::create(folder.join(UNFINISHED)).map_err(failed)?);
        Ok(Self { folder: folder.to_owned(), files: HashMap::new(), index })
    }

    fn failed(&self, error: &std::io::Error) -> Failed {
        Failed::input(format_args!("{}: can't be written to: {error}", self.folder.display()))
    }

    fn append(&mut self, number: u64, side: usize, bytes: &[u8]) -> Result<(), Failed> {
        if !self.files.contains_key(&(number, side)) {
            if self.files.len() >= FILES_MAX {
                self.files.clear();
            }
            let path = self.folder.join(file(number, side));
            let opened =
                OpenOptions::new().create(true).append(true).open(path).map_err(|error| self.failed(&error))?;
            self.files.insert((number, side), opened);
        }
        let written = self.files.get_mut(&(number, side)).map_or(Ok(()), |file| file.write_all(bytes));
        written.map_err(|error| self.failed(&error))
    }

    fn index(&mut self, transcript: &Transcript) -> Result<(), Failed> {
        let mut row = transcript.json();
        for (side, heard) in transcript.sides.iter().enumerate() {
            self.files.remove(&(transcript.number, side));
            if heard.bytes > 0 {
                row[format!("{}_file", SIDES[side])] = file(transcript.number, side).into();
            }
        }
        let events = transcript.sides.iter().enumerate();
        row["events"] = events.flat_map(|(side, heard)| heard.events.iter().map(move |one| told(side, *one))).collect();
        writeln!(self.index, "{row}").map_err(|error| self.failed(&error))
    }

    fn finish(&mut self) -> Result<(), Failed> {
        let renamed = || fs::rename(self.folder.join(UNFINISHED), self.folder.join(INDEX));
        self.index.flush().and_then(|()| renamed()).map_err(|error| self.failed(&error))
    }
}

/// The name of a side's file.
fn file(number: u64, side: usize) -> String {
    format!("{number:06}.{}", SIDES[side])
}
