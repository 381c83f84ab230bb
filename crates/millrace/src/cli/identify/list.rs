//! The list of sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use functions::identify::{Row, Rows, UNKNOWN};
use functions::streams::Session;
use packet::{Endpoint, protocol};
use serde_json::{Value, json};

use super::{Format, write_line};
use crate::cli::failure::Failed;
use crate::cli::first::First;
use crate::print::number::{count, iso};
use crate::print::output::print;
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};

/// The sessions so far.
#[derive(Clone, Debug)]
pub(super) struct List(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    format: Format,
    begun: u32,
    ended: u64,
    open: HashMap<u32, Box<Told>>,
    /// The rows of the table, by number.
    rows: First<u32, Told>,
    /// The first error; nothing is written behind it.
    failure: Option<Failed>,
}

/// The row of a session.
#[derive(Debug)]
struct Told {
    number: u32,
    session: Session,
    application: Option<String>,
    inside: Option<String>,
    confidence: Option<&'static str>,
    how: Option<&'static str>,
    payloads: u16,
    name: Option<Box<[u8]>>,
    alpn: Option<Box<[u8]>>,
}

/// The most memory of a row, in bytes: two names of applications, a name and an ALPN, each with what the allocator adds, and its places in
/// the table of open sessions while that grows.
const ROW_MAX: usize = size_of::<Told>() + 2 * 64 + 256 + 32 + 5 * 32 + 6 * 24;

impl List {
    pub(super) fn new(format: Format, top: usize) -> Self {
        let (open, rows) = (HashMap::new(), First::new(top));
        Self(Arc::new(Mutex::new(Inner { format, begun: 0, ended: 0, open, rows, failure: None })))
    }

    /// The most memory that the rows of `sessions` open sessions take, in bytes.
    pub(super) const fn memory_max(sessions: usize) -> usize {
        sessions * ROW_MAX
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if something could not be written.
    pub(super) fn check(&self) -> Result<(), Failed> {
        self.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Completes the list. Returns the number of sessions.
    pub(super) fn finish(&self) -> Result<u64, Failed> {
        self.check()?;
        let inner = &mut *self.lock();
        if inner.format == Format::Text {
            print(&table(&inner.rows.take_rows(), inner.ended))?;
        }
        Ok(inner.ended)
    }
}

impl Rows for List {
    fn begin(&self, session: &Session) -> u32 {
        let inner = &mut *self.lock();
        inner.begun = inner.begun.wrapping_add(1);
        let number = inner.begun;
        let told = Told {
            number,
            session: *session,
            application: None,
            inside: None,
            confidence: None,
            how: None,
            payloads: 0,
            name: None,
            alpn: None,
        };
        inner.open.insert(number, Box::new(told));
        number
    }

    fn tell(&self, row: &Row<'_>) {
        let inner = &mut *self.lock();
        let Some(told) = inner.open.get_mut(&row.number) else { return };
        told.application = row.application.map(str::to_owned);
        told.inside = row.inside.map(str::to_owned);
        told.confidence = row.told.map(|told| told.confidence.name());
        told.how = row.told.map(|told| told.how.name());
        told.payloads = row.payloads;
        told.name = row.names.main().map(|(_, name)| name.into());
        told.alpn = row.names.get(functions::identify::NameKind::Alpn).map(Into::into);
    }

    fn end(&self, number: u32) {
        let inner = &mut *self.lock();
        let Some(told) = inner.open.remove(&number) else { return };
        inner.ended += 1;
        let line = match inner.format {
            Format::Text => return inner.rows.add(told.number, *told),
            Format::Csv if inner.ended == 1 => format!("{CSV_HEAD}\n{}", told.csv()),
            Format::Csv => told.csv(),
            Format::Jsonl => told.json().to_string(),
        };
        if inner.failure.is_none()
            && let Err(error) = write_line(&line)
        {
            inner.failure = Some(error);
        }
    }
}

/// A name as text: bytes that aren't printable ASCII become escapes, so that a name can't steer a terminal.
fn plain(name: Option<&[u8]>) -> Option<String> {
    name.map(|name| name.escape_ascii().to_string())
}

const CSV_HEAD: &str = "session,began,protocol,source,source_port,destination,destination_port,application,inside,\
    confidence,told_by,payloads,name,alpn";

impl Told {
    fn ends(&self) -> [Endpoint; 2] {
        [self.session.tuple.source(), self.session.tuple.destination()]
    }

    fn transport(&self) -> &'static str {
        protocol::name(self.session.tuple.protocol()).unwrap_or("other")
    }

    fn csv(&self) -> String {
        let [source, destination] = self.ends();
        let text = |text: &Option<String>| match text.as_deref().unwrap_or_default() {
            text if text.contains([',', '"']) => format!("\"{}\"", text.replace('"', "\"\"")),
            text => text.to_owned(),
        };
        format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            self.number,
            iso(self.session.began),
            self.transport(),
            source.address,
            source.port,
            destination.address,
            destination.port,
            text(&self.application),
            text(&self.inside),
            self.confidence.unwrap_or_default(),
            self.how.unwrap_or_default(),
            self.payloads,
            text(&plain(self.name.as_deref())),
            text(&plain(self.alpn.as_deref()))
        )
    }

    fn json(&self) -> Value {
        let [source, destination] = self.ends();
        json!({
            "session": self.number, "began": iso(self.session.began), "protocol": self.transport(),
            "source": source.address.to_string(), "source_port": source.port,
            "destination": destination.address.to_string(), "destination_port": destination.port,
            "application": self.application, "inside": self.inside, "confidence": self.confidence, "told_by": self.how,
            "payloads": self.payloads, "name": plain(self.name.as_deref()), "alpn": plain(self.alpn.as_deref()),
        })
    }
}

/// The first rows of `all` sessions as a table.
fn table(rows: &[Told], all: u64) -> String {
    let columns = [
        ("began", Align::Left),
        ("protocol", Align::Left),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("application", Align::Left),
        ("inside", Align::Left),
        ("confidence", Align::Left),
        ("told by", Align::Left),
        ("payloads", Align::Right),
        ("name", Align::Left),
    ];
    let mut sheet = Sheet::new(Style::stdout(), &columns);
    for told in rows {
        let [source, destination] = told.ends().map(|end| match end.address.is_ipv4() {
            true => format!("{}:{}", end.address, end.port),
            false => format!("[{}]:{}", end.address, end.port),
        });
        let text = |text: Option<&str>| text.unwrap_or("").to_owned();
        let application = match (&told.application, told.payloads) {
            (Some(application), _) => application.clone(),
            (None, 0) => "-".to_owned(),
            (None, _) => UNKNOWN.to_owned(),
        };
        sheet.row([
            iso(told.session.began),
            told.transport().to_owned(),
            source,
            destination,
            application,
            text(told.inside.as_deref()),
            text(told.confidence),
            text(told.how),
            count(told.payloads.into()),
            text(plain(told.name.as_deref()).as_deref()),
        ]);
    }
    let mut text = sheet.lines(0);
    if (rows.len() as u64) < all {
        text += &format!("... and {} more (--top 0 lists all)\n", count(all - rows.len() as u64));
    }
    text
}
