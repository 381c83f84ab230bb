//! Case files: packets that go into a function, and the expected outcome of each. Every engine can be tested with them.
//!
//! ```toml
//! function = "nat"
//!
//! [[case]]
//! name = "an inside host reaches out, and is answered"
//! packets = '''
//! 0s      tcp 10.0.0.5:5000 > 198.51.100.7:80 S   -> forward tcp 203.0.113.1:5000 > 198.51.100.7:80
//! +20ms   tcp 198.51.100.7:80 > 203.0.113.1:5000 S.   -> forward tcp 198.51.100.7:80 > 10.0.0.5:5000
//! +1s     udp 198.51.100.7:53 > 203.0.113.1:53   -> drop no-mapping
//! '''
//! ```
//!
//! A line has a time, a packet, and the expected outcome after `->`. A time with `+` counts from the packet before. In the outcome of a
//! rewritten packet, only the given fields change; all others must stay the same. [`Spec`] is the syntax of packets.
//!
//! ```
//! use millrace_case::Cases;
//!
//! let text = r#"
//! function = "nat"
//! [[case]]
//! name = "an unknown packet from outside is dropped"
//! packets = '''
//! 0s  udp 198.51.100.7:53 > 203.0.113.1:53  -> drop no-mapping
//! '''
//! "#;
//! let cases = Cases::read(text).expect("the file is well-formed");
//! assert_eq!((cases.function.as_str(), cases.cases[0].steps.len()), ("nat", 1));
//! ```
#![forbid(unsafe_code)]

mod spec;
mod tokens;

use std::fmt;
use std::ops::Range;

use nf::{Cell, PortId, Report};
use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet, Trace};
use serde::Deserialize;
use toml::{Spanned, Table, Value};

pub use spec::Spec;
use tokens::{Tokens, show, split};

/// A case file.
#[derive(Debug)]
pub struct Cases {
    /// The function's name.
    pub function: String,
    /// Its cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// Packets for a function with fresh state, and their expected outcomes.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The function's configuration.
    pub config: Table,
    /// Its packets with their expected outcomes.
    pub steps: Vec<Step>,
    /// Expected title of the function's report, with its line in the file.
    title: Option<(usize, String)>,
    /// Expected rows of the report, with their line in the file.
    report: Option<(usize, Vec<Vec<Shown>>)>,
}

/// One packet of a case.
#[derive(Debug)]
pub struct Step {
    /// Line in the file.
    pub line: usize,
    /// Number of the packet within its line, from 1, and the line's number of packets.
    pub nth: (usize, usize),
    time: Nanos,
    interface: u16,
    packet: Spec,
    expected: Option<Expected>,
}

/// Expected outcome of a packet.
#[derive(Clone, Debug)]
enum Expected {
    Forward { port: PortId, change: Option<Spec> },
    Reply(Spec),
    Drop(String),
}

/// Actual outcome of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Fared<'a> {
    /// Its descriptor after the step.
    pub packet: &'a Packet,
    /// Its bytes before the step.
    pub before: &'a [u8],
    /// Its bytes as sent, if it was sent.
    pub after: &'a [u8],
    /// True if it was answered.
    pub replied: bool,
    /// Name of the drop reason, if it was dropped.
    pub dropped: Option<&'static str>,
}

/// An error in a case file, with its line.
#[derive(Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The line, from 1; `None` if the error is about the whole file.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl CaseError {
    /// The error with its place in the file of this name.
    #[must_use]
    pub fn of(&self, file: &str) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{file}{line}: {}", self.message)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFields {
    function: String,
    #[serde(default)]
    config: Table,
    #[serde(default)]
    case: Vec<CaseFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFields {
    name: Spanned<String>,
    #[serde(default)]
    config: Table,
    packets: Spanned<String>,
    title: Option<Spanned<String>>,
    report: Option<Spanned<Vec<Vec<Shown>>>>,
}

/// A cell of a report: a number, or anything as it is shown.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Shown {
    Number(u64),
    Text(String),
}

impl Shown {
    fn is(&self, cell: &Cell) -> bool {
        match self {
            Self::Number(number) => cell.number() == Some(*number),
            Self::Text(text) => *text == cell.to_string(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Between what comes in and what becomes of it.
const ARROW: &str = "->";

/// Maximum number of packets in a case, so that people can read it.
const PACKETS_MAX: usize = 10_000;

impl Cases {
    /// Reads a case file.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn read(text: &str) -> Result<Self, CaseError> {
        let file: FileFields = toml::from_str(text).map_err(|error| CaseError {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().to_owned(),
        })?;
        if file.case.is_empty() {
            return Err(CaseError { line: None, message: "the file has no `[[case]]`".to_owned() });
        }
        let case = |fields| Case::of(fields, &file.config, text);
        let cases = file.case.into_iter().map(case).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { function: file.function, cases })
    }
}

impl Case {
    fn of(fields: CaseFields, common: &Table, text: &str) -> Result<Self, CaseError> {
        let CaseFields { name, config, packets, title, report } = fields;
        let config = merged(common, config);
        let (first, lines) = literal(text, packets.span())?;
        let mut steps: Vec<Step> = Vec::new();
        for (at, line) in lines.lines().enumerate() {
            let line_number = first + at;
            let at_line = |message| CaseError { line: Some(line_number), message };
            let words = split(line).map_err(at_line)?;
            if words.is_empty() {
                continue;
            }
            let last = steps.last().map_or(Nanos(0), |step| step.time);
            let (times, every, step) = Step::read(&words, line_number, last).map_err(at_line)?;
            if steps.len() + times > PACKETS_MAX {
                return Err(at_line(format!("a case has at most {PACKETS_MAX} packets")));
            }
            steps.extend((0..times).map(|nth| Step {
                nth: (nth + 1, times),
                time: step.time + Nanos(every.0.saturating_mul(nth as u64)),
                packet: step.packet.clone(),
                expected: step.expected.clone(),
                ..step
            }));
        }
        let line = line_of(text, name.span().start);
        let name = name.into_inner();
        if steps.is_empty() {
            return Err(CaseError { line: Some(line), message: format!("the case \"{name}\" has no packets") });
        }
        let title = title.map(|title| (line_of(text, title.span().start), title.into_inner()));
        let report = report.map(|report| (line_of(text, report.span().start), report.into_inner()));
        Ok(Self { name, config, steps, title, report })
    }

    /// The packets, as a port delivers them.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let mut trace = Trace::new();
        for (number, step) in self.steps.iter().enumerate() {
            let frame = step.packet.to_frame();
            let wire_len = frame.len() as u32;
            let packet = Packet {
                seq: Seq(number as u64),
                time: step.time,
                offset: 0,
                len: wire_len,
                wire_len,
                interface: step.interface,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            trace.push(packet, &frame);
        }
        trace
    }

    /// Drop reasons that it expects, with their lines.
    pub fn reasons(&self) -> impl Iterator<Item = (usize, &str)> {
        self.steps.iter().filter_map(|step| match &step.expected {
            Some(Expected::Drop(reason)) => Some((step.line, reason.as_str())),
            Some(Expected::Forward { .. } | Expected::Reply(_)) | None => None,
        })
    }

    /// Compares the function's report with the expected one.
    ///
    /// # Errors
    /// The line, and both reports, if they differ.
    pub fn holds(&self, report: Option<&Report>) -> Result<(), (usize, Difference)> {
        if let Some((line, expected)) = &self.title {
            let got = report.map_or(NO_REPORT, |report| &report.title);
            if got != expected {
                return Err((
                    *line,
                    Difference { expected: format!("the title {expected:?}"), got: format!("{got:?}") },
                ));
            }
        }
        let Some((line, expected)) = &self.report else { return Ok(()) };
        let alike = |(expected, got): (&Vec<Shown>, &Vec<Cell>)| {
            expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| expected.is(got))
        };
        let got = match report {
            Some(Report { rows, .. }) if rows.len() == expected.len() && expected.iter().zip(rows).all(alike) => {
                return Ok(());
            }
            Some(Report { rows, .. }) => table(rows.iter().map(|row| {
                row.iter()
                    .map(|cell| cell.number().map_or_else(|| format!("{:?}", cell.to_string()), |n| n.to_string()))
                    .collect()
            })),
            None => NO_REPORT.to_owned(),
        };
        let expected = table(expected.iter().map(|row| row.iter().map(ToString::to_string).collect()));
        Err((*line, Difference { expected: format!("the report {expected}"), got }))
    }
}

const NO_REPORT: &str = "nothing, because the function has no report";

/// The one table's values, and for keys that it hasn't the other's.
fn merged(common: &Table, own: Table) -> Table {
    let mut all = common.clone();
    for (key, value) in own {
        let value = match (all.remove(&key), value) {
            (Some(Value::Table(common)), Value::Table(own)) => Value::Table(merged(&common, own)),
            (_, own) => own,
        };
        all.insert(key, value);
    }
    all
}

/// Rows as a case file has them.
fn table(rows: impl Iterator<Item = Vec<String>>) -> String {
    format!("[{}]", rows.map(|row| format!("[{}]", row.join(", "))).collect::<Vec<_>>().join(", "))
}

/// Expected and actual outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Expected outcome.
    pub expected: String,
    /// Actual outcome.
    pub got: String,
}

impl Step {
    /// Reads a line: how many packets it stands for, the time between them, and the first.
    fn read(words: &[tokens::Token], line: usize, last: Nanos) -> Result<(usize, Nanos, Self), String> {
        let arrow = words.iter().position(|word| matches!(word, tokens::Token::Plain(word) if word == ARROW));
        let (input, expected) = match arrow {
            Some(at) => (&words[..at], Some(&words[at + 1..])),
            None => (words, None),
        };
        let mut words = Tokens::new(input);
        let time = words.plain("a time")?;
        let time = match time.strip_prefix('+') {
            Some(span) => last + span_of(span)?,
            None => span_of(time)?,
        };
        if time < last {
            return Err(format!("time goes back: the packet before is at {} s", last.as_secs_f64()));
        }
        let (mut times, mut every) = (1, Nanos(0));
        if let Some(tokens::Token::Plain(word)) = words.peek()
            && let Some(digits) = digits_behind_x(word)
        {
            let most = || format!("`{word}` is not a number of packets: write x1 to x{PACKETS_MAX}");
            times = digits.parse().ok().filter(|times| (1..=PACKETS_MAX).contains(times)).ok_or_else(most)?;
            words.next();
            if words.take("every") {
                every = span_of(words.plain("a span of time")?)?;
            }
        }
        let interface = if words.take("on") { words.number("an interface's number")? } else { 0 };
        if let Some(tokens::Token::Plain(word)) = words.peek()
            && (matches!(word.as_str(), "on" | "every" | "x") || digits_behind_x(word).is_some())
        {
            return Err(format!(
                "`{word}` is in the wrong place; the order is TIME xCOUNT every SPAN on INTERFACE PACKET"
            ));
        }
        let packet = Spec::read(&mut words)?;
        let expected = expected.map(|words| Expected::read(&mut Tokens::new(words))).transpose()?;
        Ok((times, every, Self { line, nth: (1, times), time, interface, packet, expected }))
    }

    /// Compares the actual outcome with the expected one.
    ///
    /// # Errors
    /// Both, if they differ.
    pub fn holds(&self, fared: &Fared<'_>) -> Result<(), Difference> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let got = ShownOutcome(fared);
        let as_expected = match expected {
            Expected::Drop(reason) => fared.dropped == Some(reason),
            Expected::Reply(spec) => fared.replied && covers(spec, fared.after),
            Expected::Forward { port, change } => {
                let bytes = match change {
                    None => fared.after == fared.before,
                    Some(change) if change.changes(&self.packet) => change.over(&self.packet).to_frame() == fared.after,
                    Some(change) => covers(change, fared.after),
                };
                !fared.replied && fared.packet.fate == Fate::Transmit(port.0) && bytes
            }
        };
        if as_expected {
            return Ok(());
        }
        let expected = match expected {
            Expected::Forward { port, change: Some(change) } if change.changes(&self.packet) => {
                format!("forward {}{}", OutputPort(*port), change.over(&self.packet))
            }
            Expected::Forward { port, change: Some(change) } => format!("forward {}{change}", OutputPort(*port)),
            Expected::Forward { port, change: None } => format!("forward {}unchanged", OutputPort(*port)),
            Expected::Reply(spec) => format!("reply {spec}"),
            Expected::Drop(reason) => format!("drop {reason}"),
        };
        let mut got = got.to_string();
        if got == expected {
            got += &format!(
                ", with other bytes: hex {}",
                fared.after.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            );
        }
        Err(Difference { expected, got })
    }
}

impl Expected {
    fn read(words: &mut Tokens<'_>) -> Result<Self, String> {
        let what = "the outcome of the packet (forward, reply or drop)";
        match words.plain(what)? {
            "drop" => {
                let reason = words.plain("the drop reason")?.to_owned();
                match words.next() {
                    None => Ok(Self::Drop(reason)),
                    Some(more) => Err(format!("{} isn't allowed after the reason", show(more))),
                }
            }
            "reply" => Ok(Self::Reply(Spec::read(words)?)),
            "forward" => {
                let port = match words.take("back") {
                    true => PortId::BACK,
                    false if words.take("by") => PortId(words.number("a port's number")?),
                    false => PortId::ACROSS,
                };
                let change = match words.take("unchanged") {
                    true => None,
                    false => words.peek().is_some().then(|| Spec::read(words)).transpose()?,
                };
                match words.next() {
                    None => Ok(Self::Forward { port, change }),
                    Some(more) => Err(format!("{} isn't allowed after `unchanged`", show(more))),
                }
            }
            other => Err(format!("found `{other}`, expected {what}")),
        }
    }
}

/// The number of a word such as `x20`.
fn digits_behind_x(word: &str) -> Option<&str> {
    word.strip_prefix('x').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// True if a frame has all the fields that the spec gives.
fn covers(spec: &Spec, frame: &[u8]) -> bool {
    let is = Spec::of(frame);
    spec.changes(&is) && spec.over(&is) == is
}

/// The output port of a packet, for display.
struct OutputPort(PortId);

impl fmt::Display for OutputPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PortId::ACROSS => Ok(()),
            PortId::BACK => f.write_str("back "),
            PortId(number) => write!(f, "by {number} "),
        }
    }
}

/// The actual outcome of a packet, for display.
struct ShownOutcome<'a>(&'a Fared<'a>);

impl fmt::Display for ShownOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fared { packet, before, after, replied, dropped } = self.0;
        match (dropped, packet.fate) {
            (Some(reason), _) => write!(f, "drop {reason}"),
            (None, Fate::Transmit(_)) if *replied => write!(f, "reply {}", Spec::of(after)),
            (None, Fate::Transmit(port)) if after == before => {
                write!(f, "forward {}unchanged", OutputPort(PortId(port)))
            }
            (None, Fate::Transmit(port)) => write!(f, "forward {}{}", OutputPort(PortId(port)), Spec::of(after)),
            (None, Fate::Both(port, copy)) => {
                write!(f, "forward {} and a copy {}", OutputPort(PortId(port)), OutputPort(PortId(copy)))
            }
            (None, Fate::Drop(_) | Fate::Pending) => f.write_str("nothing"),
        }
    }
}

/// The lines of a literal text, and the number of the first.
fn literal(text: &str, span: Range<usize>) -> Result<(usize, &str), CaseError> {
    let line = line_of(text, span.start);
    let inner = text[span].strip_prefix("'''").and_then(|rest| rest.strip_suffix("'''"));
    let message = || "write `packets` between ''' and ''', so that TOML doesn't interpret them".to_owned();
    Ok((line, inner.ok_or_else(|| CaseError { line: Some(line), message: message() })?))
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at.min(text.len())].matches('\n').count()
}

/// Reads a span of time: `20ms`.
fn span_of(text: &str) -> Result<Nanos, String> {
    let wrong = || format!("`{text}` is not a time: write 20ms, with ns, us, ms, s, min or h");
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(unit);
    let scale: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(wrong()),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|c| c.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return Err(wrong());
    }
    let parts = 10_u128.pow(part.len() as u32);
    let number = |digits: &str| digits.parse::<u128>().map_err(|_| wrong());
    let nanos = (number(whole)? * parts + number(part)?) * u128::from(scale) / parts;
    u64::try_from(nanos).map(Nanos).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "function = \"nat\"\n\n[[case]]\nname = \"one\"\nconfig.ports = \"1-2\"\npackets = '''\n# nothing\n1s \
                        udp 10.0.0.1:1 > 10.0.0.2:2 -> forward\n+2ms x3 every 1.5us on 1 arp -> drop own\n'''\n";

    #[test]
    fn a_file_is_read() {
        let file = Cases::read(FILE).unwrap();
        assert_eq!(file.function, "nat");
        let [case] = &*file.cases else { panic!("{:?}", file.cases) };
        assert_eq!(case.config["ports"].as_str(), Some("1-2"));
        let steps: Vec<_> = case.steps.iter().map(|step| (step.line, step.time.0, step.interface)).collect();
        let expected = [(8, 1_000_000_000, 0), (9, 1_002_000_000, 1), (9, 1_002_001_500, 1), (9, 1_002_003_000, 1)];
        assert_eq!(steps, expected);
        assert_eq!(case.trace().len(), 4);
    }

    #[test]
    fn what_the_file_configures_cases_may_configure_otherwise() {
        let text =
            FILE.replace("\n\n[[case]]", "\n[config]\nports = \"8-9\"\nsessions = 5\ntimeouts = { udp = 7 }\n[[case]]");
        let text = text.replace("config.ports", "config.timeouts.icmp = 3\nconfig.ports");
        let config = Cases::read(&text).unwrap().cases.remove(0).config;
        let expected = "ports = \"1-2\"\nsessions = 5\n[timeouts]\nudp = 7\nicmp = 3";
        assert_eq!(config, toml::from_str::<Table>(expected).unwrap());
    }

    #[test]
    fn slips_are_told_with_their_line() {
        let edited = |from: &str, to: &str| Cases::read(&FILE.replace(from, to)).map(|_| ()).unwrap_err();
        for (from, to, line, says) in [
            ("udp", "upd", 8, "found `upd`, expected"),
            ("-> forward", "-> forwards", 8, "found `forwards`, expected the outcome"),
            ("-> forward", "->", 8, "the line ends, expected the outcome"),
            ("-> forward", "-> drop", 8, "the line ends, expected the drop reason"),
            ("drop own", "drop own goal", 9, "`goal` isn't allowed"),
            ("1s ", "1 ", 8, "`1` is not a time"),
            ("1s ", "9999999999999h ", 8, "is not a time"),
            ("+2ms", "2ms", 9, "time goes back"),
            ("x3", "x0", 9, "is not a number of packets"),
            ("x3 every 1.5us on 1", "on 1 x3", 9, "`x3` is in the wrong place; the order is TIME xCOUNT"),
            ("x3", "x 3", 9, "`x` is in the wrong place"),
            ("-> forward", "-> forward unchanged arp", 8, "`arp` isn't allowed after `unchanged`"),
            ("x3", "x10000", 9, "at most 10000 packets"),
            ("on 1", "on one", 9, "found `one`, expected"),
            ("name", "heading", 4, "unknown field `heading`"),
            ("# nothing", "(", 7, "without `)`"),
        ] {
            let error = edited(from, to);
            assert!(error.line == Some(line) && error.message.contains(says), "{to}: {error:?}");
        }
        assert_eq!(Cases::read("function = \"nat\"").unwrap_err().line, None);
        let basic = Cases::read("function = \"a\"\n[[case]]\nname = \"b\"\npackets = \"\"\"0s arp\"\"\"").unwrap_err();
        assert!(basic.line == Some(4) && basic.message.contains("between '''"), "{basic:?}");
        let empty = Cases::read("function = \"a\"\n[[case]]\nname = \"b\"\npackets = ''''''").unwrap_err();
        assert_eq!((empty.line, &*empty.message), (Some(3), "the case \"b\" has no packets"));
    }

    /// A packet is held to every byte that is told or must stay.
    #[test]
    fn differences_are_noticed() {
        let step = |line: &str| Step::read(&split(line).unwrap(), 1, Nanos(0)).unwrap().2;
        let packet = "0s udp 10.0.0.1:1 > 10.0.0.2:2 len 4";
        let before = step(packet).packet.to_frame();
        let changed = step("0s udp 10.0.0.1:9 > 10.0.0.2:2 len 4").packet.to_frame();
        let mut spoiled = changed.clone();
        *spoiled.last_mut().unwrap() ^= 1;
        let trace = Cases::read(FILE).unwrap().cases[0].trace();
        let (descriptor, _) = trace.iter().next().unwrap();
        let holds = |expected: &str, fate: Fate, after: &[u8], replied, dropped| {
            let packet = Packet { fate, ..*descriptor };
            step(&format!("{packet_text} -> {expected}", packet_text = "0s udp 10.0.0.1:1 > 10.0.0.2:2 len 4"))
                .holds(&Fared { packet: &packet, before: &before, after, replied, dropped })
        };
        let across = Fate::Transmit(PortId::ACROSS.0);
        let stated = "forward udp 10.0.0.1:9 > 10.0.0.2:2";
        assert_eq!(holds("forward", across, &before, false, None), Ok(()));
        assert_eq!(holds("forward unchanged", across, &before, false, None), Ok(()));
        assert_eq!(holds(stated, across, &changed, false, None), Ok(()));
        assert_eq!(holds("forward by 3", Fate::Transmit(3), &before, false, None), Ok(()));
        assert_eq!(holds("forward back", Fate::Transmit(PortId::BACK.0), &before, false, None), Ok(()));
        assert_eq!(holds("drop own", Fate::Drop(nf::Reason::OWN), &before, false, Some("own")), Ok(()));
        assert_eq!(holds("reply udp 10.0.0.1:9 > 10.0.0.2:2", across, &changed, true, None), Ok(()));
        let got = |result: Result<(), Difference>| result.unwrap_err().got;
        assert_eq!(got(holds(stated, across, &before, false, None)), "forward unchanged");
        assert_eq!(got(holds("forward", across, &changed, false, None)), format!("{stated} len 4"));
        assert_eq!(got(holds(stated, across, &spoiled, false, None)), format!("{stated} hex 00010202"));
        assert_eq!(got(holds("forward", Fate::Transmit(3), &before, false, None)), "forward by 3 unchanged");
        assert_eq!(got(holds("forward", Fate::Drop(nf::Reason::OWN), &before, false, Some("own"))), "drop own");
        assert_eq!(got(holds("drop other", Fate::Drop(nf::Reason::OWN), &before, false, Some("own"))), "drop own");
        assert_eq!(got(holds("forward", across, &before, true, None)), "reply udp 10.0.0.1:1 > 10.0.0.2:2 len 4");
        assert_eq!(
            got(holds("reply udp 10.0.0.1:8 > 10.0.0.2:2", across, &changed, true, None)),
            "reply udp 10.0.0.1:9 > 10.0.0.2:2 len 4"
        );
        spoiled = changed.clone();
        spoiled[24] ^= 1;
        assert!(got(holds(stated, across, &spoiled, false, None)).contains("with other bytes: hex 02"), "a checksum");
    }
}
