//! Arguments that name captures and select some of their packets.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use packet::Nanos;
use port::Packet;
use port::pcap::{Choice, Reader, same_file};

use super::failure::Failed;
use super::files::{self, is_standard};
use super::filter::Filter;
use super::live::LiveOptions;
use super::word;

/// Arguments of a command that needs captures.
#[derive(clap::Args)]
#[group(id = "capture", required = true, multiple = true, args = ["captures", "inputs"])]
pub(super) struct Input {
    #[command(flatten)]
    pub(super) captures: Captures,
}

/// Arguments of a command that takes packets from captures or from interfaces.
#[derive(clap::Args)]
#[group(id = "source", required = true, multiple = true, args = ["captures", "inputs", "interfaces"])]
pub(super) struct Source {
    #[command(flatten)]
    pub(super) captures: Captures,
    #[command(flatten)]
    pub(super) live: LiveOptions,
}

/// Arguments of a command that can also do without captures.
#[derive(clap::Args)]
#[group(id = "captures_if_any", multiple = true, args = ["captures", "inputs"])]
pub(super) struct OptionalInput {
    #[command(flatten)]
    captures: Captures,
}

impl OptionalInput {
    /// The captures, of which there must be one.
    pub(super) fn captures(&self) -> Result<&Captures, Failed> {
        match self.captures.given().next() {
            Some(_) => Ok(&self.captures),
            None => Err(Failed::usage("no capture is given; name one, as in --in a.pcap")),
        }
    }
}

/// Arguments that name captures, and select some of their packets.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub(super) struct Captures {
    /// Captures to read, merged by time. A folder means all captures in it; - means standard input
    #[arg(value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// Capture to read; the same as CAPTURE. May be repeated
    #[arg(long = "in", short, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Take only packets that match this tcpdump filter: 'tcp port 443 and net 10.0.0.0/8'
    #[arg(long, value_name = "EXPRESSION", help_heading = PART)]
    filter: Option<String>,
    /// Take only packets from this time on: 2026-11-27T08:00:00Z, or seconds after the first packet: +12.5
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = PART)]
    from: Option<Moment>,
    /// Take only packets before this time, written as for --from
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = PART)]
    to: Option<Moment>,
}

/// Heading of the options that select packets.
pub(super) const PART: &str = "Part of the capture";

/// Maximum number of captures, as all are open at once.
const CAPTURES_MAX: usize = 512;

/// Function that is called for each packet that is taken, in order.
pub(super) type Tap = Box<dyn FnMut(&Packet, &[u8]) + Send>;

impl Captures {
    /// Adds a capture.
    pub(super) fn add(&mut self, capture: &Path) {
        self.captures.push(capture.to_owned());
    }

    fn given(&self) -> impl Iterator<Item = &PathBuf> {
        self.captures.iter().chain(&self.inputs)
    }

    /// Returns true if captures are named.
    pub(super) fn is_given(&self) -> bool {
        self.given().next().is_some()
    }

    /// Returns true if `--in` names one.
    pub(super) const fn is_by_option(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Returns true if there are several.
    pub(super) fn is_several(&self) -> bool {
        self.given().nth(1).is_some() || self.given().any(|path| path.is_dir())
    }

    /// Takes only packets that match this filter, which is an option of the command.
    pub(super) fn follow(&mut self, filter: &str) -> Result<(), Failed> {
        Filter::parse(filter).map_err(|error| Failed::usage(format_args!("--follow: {error}")))?;
        self.filter = Some(filter.to_owned());
        Ok(())
    }

    /// Returns true if packets may be left out.
    pub(super) const fn is_part(&self) -> bool {
        self.filter.is_some() || self.from.is_some() || self.to.is_some()
    }

    /// Returns the name of the captures for messages.
    pub(super) fn name(&self) -> String {
        let first = self.given().next().map_or_else(PathBuf::new, |first| files::shown(first));
        match self.given().count() {
            0 | 1 => first.display().to_string(),
            many => format!("{} and {} more", first.display(), many - 1),
        }
    }

    /// Returns the first capture that can be read only once.
    pub(super) fn pipe(&self) -> Option<&Path> {
        // A missing file is reported when it is opened.
        let is_read_again = |path: &Path| path.metadata().map_or(true, |about| about.is_file() || about.is_dir());
        self.given().map(PathBuf::as_path).find(|path| is_standard(path) || !is_read_again(path))
    }

    /// Returns arguments that name the same packets.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let moment = |moment: Moment| match moment {
            Moment::At(Nanos(nanos)) => {
                Timestamp::from_nanosecond(nanos.into()).map_or_else(|_| String::new(), |at| at.to_string())
            }
            Moment::Behind(Nanos(nanos)) => format!("+{}", nanos as f64 / 1e9),
        };
        let part =
            [("--filter", self.filter.clone()), ("--from", self.from.map(moment)), ("--to", self.to.map(moment))];
        let captures = self.given().flat_map(|path| ["--in".into(), path.into()]);
        let part = part.into_iter().filter_map(|(option, value)| Some([option.into(), value?.into()])).flatten();
        captures.chain(part).collect()
    }

    /// Formats [`arguments`](Self::arguments) for a shell.
    pub(super) fn again(&self) -> String {
        let words: Vec<String> = self.arguments().iter().map(|argument| word(&argument.to_string_lossy())).collect();
        words.join(" ")
    }

    /// Returns the files; a folder is replaced by the captures in it.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Failed> {
        let mut paths = Vec::new();
        for path in self.given() {
            if path.is_dir() { paths.extend(captures_in(path)?) } else { paths.push(path.clone()) }
        }
        if paths.len() > CAPTURES_MAX {
            let many = paths.len();
            return Err(Failed::usage(format_args!("{many} captures are too many: the limit is {CAPTURES_MAX}")));
        }
        if paths.iter().filter(|path| is_standard(path)).count() > 1 {
            return Err(Failed::usage("standard input can be read only once; give - once"));
        }
        if paths.iter().any(|path| is_standard(path)) && files::is_standard_read() {
            return Err(Failed::usage(
                "standard input can be read only once, and another option has read it; give the capture or the other as a file",
            ));
        }
        let mut known = HashMap::new();
        for path in &paths {
            let Ok(about) = path.metadata() else { continue };
            if let Some(other) = known.insert((about.dev(), about.ino()), path) {
                let (path, other) = (path.display(), other.display());
                return Err(Failed::usage(format_args!(
                    "{path} and {other} are the same file: every packet would be read twice; give it once"
                )));
            }
        }
        Ok(paths)
    }

    /// Refuses a file to write that is one of the captures.
    pub(super) fn refuse_output(&self, output: &Path) -> Result<(), Failed> {
        match self.paths()?.iter().find(|path| same_file(path, output)) {
            Some(path) => {
                let (path, output) = (path.display(), output.display());
                Err(Failed::usage(format_args!("{output} is also the input {path}; write to another file")))
            }
            None => Ok(()),
        }
    }

    /// Opens the captures.
    pub(super) fn open(&self) -> Result<Reader, Failed> {
        self.open_with(None)
    }

    /// Opens the captures. `tap` is called for each packet that is taken.
    pub(super) fn open_with(&self, tap: Option<Tap>) -> Result<Reader, Failed> {
        let filter = self.filter.as_deref().map(Filter::parse).transpose();
        let filter = filter.map_err(|error| Failed::usage(format_args!("--filter: {error}")))?;
        let reader = Reader::open_all(&self.paths()?)?;
        if !self.is_part() && tap.is_none() {
            return Ok(reader);
        }
        let mut part = Part { filter, from: self.from, to: self.to, start: None, tap };
        Ok(reader.choosing(move |packet, bytes| part.choose(packet, bytes)))
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
            "{name}: no captures in this folder (.pcap, .pcapng, .cap, also with .gz or .zst)"
        )));
    }
    files.sort();
    Ok(files)
}

/// Selects packets while they are read.
struct Part {
    filter: Option<Filter>,
    from: Option<Moment>,
    to: Option<Moment>,
    /// Time of the first packet.
    start: Option<Nanos>,
    tap: Option<Tap>,
}

impl Part {
    fn choose(&mut self, packet: &Packet, bytes: &[u8]) -> Choice {
        let start = *self.start.get_or_insert(packet.time);
        if self.to.is_some_and(|to| packet.time >= to.behind(start)) {
            return Choice::End;
        }
        if self.from.is_some_and(|from| packet.time < from.behind(start)) {
            return Choice::Leave;
        }
        if let Some(filter) = &self.filter {
            let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).ok();
            if !filter.fits(packet, headers.as_ref()) {
                return Choice::Leave;
            }
        }
        if let Some(tap) = &mut self.tap {
            tap(packet, bytes);
        }
        Choice::Take
    }
}

/// A time of `--from` or `--to`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    At(Nanos),
    /// Time after the first packet.
    Behind(Nanos),
}

impl Moment {
    fn behind(self, start: Nanos) -> Nanos {
        match self {
            Self::At(time) => time,
            Self::Behind(span) => start + span,
        }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let wrong = || "write a time as 2026-11-27T08:00:00Z, or as seconds after the first packet: +12.5".to_owned();
    if let Some(seconds) = text.strip_prefix('+') {
        let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
        return if (0.0..1e9).contains(&seconds) {
            Ok(Moment::Behind(Nanos((seconds * 1e9) as u64)))
        } else {
            Err(wrong())
        };
    }
    // A time without a zone is UTC.
    let stamp = text.parse::<Timestamp>().or_else(|_| {
        let civil: DateTime = text.parse()?;
        civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let nanos = stamp.map_err(|_| wrong())?.as_nanosecond();
    u64::try_from(nanos).map(|nanos| Moment::At(Nanos(nanos))).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_iso_or_behind_the_first_packet() {
        let at = |text: &str| moment(text).unwrap();
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Moment::At(Nanos(1_500_000_000)));
        assert_eq!(at("1970-01-01T02:00:01+02:00"), at("1970-01-01 00:00:01"));
        assert_eq!(at("+12.5"), Moment::Behind(Nanos(12_500_000_000)));
        for text in ["", "noon", "+", "+-1", "12:00", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z"] {
            assert!(moment(text).unwrap_err().contains("write a time as 2026"), "{text}");
        }
    }
}
