//! Whole texts: files for iptables-restore, and command lines.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::build::TableBuild;
use crate::check;
use crate::error::{Error, ErrorKind, Errors, Fault, OTHER_FAMILY, Position};
use crate::line::{self, CHAIN_BYTES_MAX, Line, Setting};
use crate::options::Value;
use crate::ruleset::{RuleSet, TableKind};
use crate::sets::Sets;
use crate::value::{Counters, Family};
use crate::words::{LINE_BYTES_MAX, Word, split_restore, split_shell};

/// Options for reading a text.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Name of the text in errors, such as its file's. May be empty.
    pub name: &'a str,
    /// The family. `None` guesses it: by the commands, by the file's name, by what the text has in it. Else it is IPv4.
    pub family: Option<Family>,
    /// Leave out rules that iptables takes and Millrace doesn't, and list them in [`Parsed::skipped`].
    pub skip_unsupported: bool,
    /// The sets that rules may name. `None` lets them name any.
    pub sets: Option<&'a Sets>,
    /// Most errors that are reported.
    pub errors_max: usize,
    /// What a user should do about rules of the other family, for errors: an option to give, say.
    pub for_other_family: &'a str,
}

impl Default for Options<'_> {
    /// Guesses the family, refuses what is unsupported, allows any set, and reports 100 errors.
    fn default() -> Self {
        let for_other_family = "choose the other family";
        Self { name: "", family: None, skip_unsupported: false, sets: None, errors_max: 100, for_other_family }
    }
}

/// A rule set, and what of the text is not in it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The rules.
    pub rules: RuleSet,
    /// Lines that were left out, by line. Without [`Options::skip_unsupported`] these are only lines of the other family.
    pub skipped: Vec<Error>,
}

/// Reads a text for iptables-restore, or command lines. A text whose first line with something in it begins with `*` is the former.
///
/// # Errors
///
/// All errors of the text, by line. The checks of [`ErrorKind::Load`] run only if there are none of the other kinds.
pub fn parse(text: &str, options: &Options<'_>) -> Result<Parsed, Errors> {
    if text.starts_with(BYTE_ORDER_MARK) {
        let fault =
            Fault::syntax(1, "", "the file begins with a byte order mark").instead("save it as UTF-8 without one");
        return Err(Errors { errors: [fault.on(options.name, 1)].into(), left_out: 0 });
    }
    let family = options.family.unwrap_or_else(|| guess_family(options.name, text));
    let mut reader =
        Reader { options, family, tables: Vec::new(), errors: Vec::new(), left_out: 0, skipped: Vec::new() };
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    match first.is_some_and(|line| line.starts_with(['*', ':'])) {
        true => reader.restore(text),
        false => reader.commands(text),
    }
    let Reader { tables, mut errors, mut left_out, skipped, .. } = reader;
    let rules = RuleSet { family, tables: tables.into_iter().map(TableBuild::finish).collect() };
    if errors.is_empty() {
        for (line, fault) in check::load(&rules, options.sets) {
            match errors.len() < options.errors_max.max(1) {
                true => errors.push(fault.on(options.name, line)),
                false => left_out += 1,
            }
        }
        errors.sort_by_key(|error| error.at);
    }
    match errors.is_empty() {
        true => Ok(Parsed { rules, skipped }),
        false => Err(Errors { errors, left_out }),
    }
}

/// What some editors write before the first line.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Guesses the family of a rule set: by the file's name (`rules.v6`, `ip6tables.rules`), by the commands, and by words that only one family has.
#[must_use]
pub fn guess_family(name: &str, text: &str) -> Family {
    let name = name.rsplit('/').next().unwrap_or(name);
    let of_name = |sign: &str| name.contains(sign);
    if of_name(".v6") || of_name("ip6") {
        return Family::V6;
    }
    if of_name(".v4") {
        return Family::V4;
    }
    let mut of_v6 = 0_usize;
    for word in text.lines().flat_map(|line| line.split_whitespace()) {
        match word.rsplit('/').next().unwrap_or(word) {
            "iptables" | "iptables-save" | "iptables-legacy" | "iptables-nft" => return Family::V4,
            "ip6tables" | "ip6tables-save" | "ip6tables-legacy" | "ip6tables-nft" => return Family::V6,
            _ => {}
        }
        let address = word.split(['/', ',']).next().unwrap_or(word);
        let is_address = address.contains("::") && address.parse::<core::net::Ipv6Addr>().is_ok();
        let is_name = matches!(word, "icmp6" | "ipv6-icmp" | "icmpv6" | "--icmpv6-type") || word.starts_with("icmp6-");
        of_v6 += usize::from(is_address || is_name);
    }
    if of_v6 > 0 { Family::V6 } else { Family::V4 }
}

struct Reader<'a> {
    options: &'a Options<'a>,
    family: Family,
    tables: Vec<TableBuild>,
    errors: Vec<Error>,
    left_out: usize,
    skipped: Vec<Error>,
}

impl Reader<'_> {
    /// Keeps an error, or lists it as skipped. Returns true if it is skipped.
    fn report(&mut self, mut fault: Fault, line: u32) -> bool {
        if fault.is_other_family {
            fault.instead.get_or_insert_with(|| self.options.for_other_family.to_owned());
        }
        let skips = fault.kind == ErrorKind::Unsupported && self.options.skip_unsupported;
        let error = fault.on(self.options.name, line);
        match () {
            () if skips => self.skipped.push(error),
            () if self.errors.len() < self.options.errors_max.max(1) => self.errors.push(error),
            () => self.left_out += 1,
        }
        skips
    }

    fn table(&mut self, kind: TableKind, at: Position) -> &mut TableBuild {
        let found = self.tables.iter().position(|table| table.kind == kind).unwrap_or_else(|| {
            self.tables.push(TableBuild::new(kind, at));
            self.tables.len() - 1
        });
        &mut self.tables[found]
    }

    /// Reads a file for iptables-restore.
    fn restore(&mut self, text: &str) {
        let (mut table, mut last) = (None, 0);
        for (number, line) in (1_u32..).zip(raw_lines(text)) {
            last = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match self.restore_line(line, number, table) {
                Ok(next) => table = next,
                Err(fault) => {
                    self.report(fault, number);
                }
            }
        }
        if table.is_some() {
            let fault = Fault::syntax(1, "", "the table is not finished").instead("add the line `COMMIT`");
            self.report(fault, last + 1);
        }
    }

    /// Reads a line. Returns the table that the next line belongs to.
    fn restore_line(&mut self, line: &str, number: u32, table: Option<TableKind>) -> Result<Option<TableKind>, Fault> {
        if let Some(at) = line.find('\r') {
            let column = line[..at].chars().count() as u32 + 1;
            let what = "the line ends with a carriage return, which counts as a part of the last word";
            return Err(Fault::syntax(column, "\\r", what).instead("convert the file: `tr -d '\\r'`"));
        }
        if line.len() > LINE_BYTES_MAX {
            let what = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            return Err(Fault::syntax(1, "", what));
        }
        let Some(kind) = table else {
            let Some(name) = line.strip_prefix('*') else {
                let word = line.split_whitespace().next().unwrap_or("");
                let what = "the line belongs to no table";
                return Err(Fault::syntax(1, word, what).instead("write `*filter` or another table before it"));
            };
            let name = name.split_whitespace().next().unwrap_or("");
            let kind = line::table(Value { option: "table", text: name, column: 2 })?;
            self.table(kind, Position { line: number, column: 1 }).clear();
            return Ok(Some(kind));
        };
        match line.as_bytes()[0] {
            b'C' if line == "COMMIT" => Ok(None),
            b'*' => {
                let fault = Fault::syntax(1, line, "the table before is not finished");
                Err(fault.instead("add the line `COMMIT` before this one"))
            }
            b':' => self.declare(line, number, kind).map(|()| table),
            _ => self.restore_rule(line, number, kind).map(|()| table),
        }
    }

    /// Reads `:CHAIN POLICY [packets:bytes]`.
    fn declare(&mut self, line: &str, number: u32, kind: TableKind) -> Result<(), Fault> {
        let mut words = words_of(&line[1..], 2);
        let Some(name) = words.next() else {
            return Err(Fault::syntax(1, ":", "the chain has no name"));
        };
        if name.text.len() > CHAIN_BYTES_MAX {
            return Err(line::long_chain(&name));
        }
        let Some(policy) = words.next() else {
            let what = format!("the chain `{}` has no policy", name.text);
            return Err(Fault::syntax(name.column, &name.text, what).instead("write `-` behind the name"));
        };
        let at = Position { line: number, column: name.column };
        if policy.text == "-" {
            return self.table(kind, at).declare(&name.text, name.column, at, None, Counters::default());
        }
        let column = policy.column;
        let policy = line::policy(&policy)?;
        let counters = match words.next() {
            Some(word) => brackets(&word.text).ok_or_else(|| {
                let what = format!("`{}` are no counters", word.text);
                Fault::syntax(word.column, &word.text, what).instead("write `[0:0]`")
            })?,
            None => Counters::default(),
        };
        self.table(kind, at).declare(&name.text, name.column, at, Some((policy, column)), counters)
    }

    fn restore_rule(&mut self, line: &str, number: u32, kind: TableKind) -> Result<(), Fault> {
        let (counters, rest) = match line.strip_prefix('[') {
            Some(behind) => {
                let end = behind.find(']').ok_or_else(|| Fault::syntax(1, "[", "`]` is missing"))?;
                let text = &line[..end + 2];
                let counters = brackets(text).ok_or_else(|| {
                    Fault::syntax(1, text, format!("`{text}` are no counters")).instead("write `[0:0]`")
                })?;
                (counters, &line[end + 2..])
            }
            None => (Counters::default(), line),
        };
        let first_column = line[..line.len() - rest.len()].chars().count() as u32 + 1;
        let words = split_restore(rest, first_column)?;
        self.perform(&words, number, Some(kind), counters)
    }

    /// Reads the words of a command and does what they say. `table` is that of the file; command lines name their own.
    fn perform(
        &mut self,
        words: &[Word],
        number: u32,
        table: Option<TableKind>,
        counters: Counters,
    ) -> Result<(), Fault> {
        let begin = words.first().map_or(1, |word| word.column);
        let at = Position { line: number, column: begin };
        let kind = match table {
            Some(kind) => kind,
            None => named_table(words)?,
        };
        let (family, skips) = (self.family, self.options.skip_unsupported);
        let build = self.table(kind, at);
        let setting = Setting {
            family,
            line: number,
            is_restore: table.is_some(),
            counters,
            has_chain: &|name| build.has_user_chain(name),
        };
        let line = line::read(words, &setting);
        let line = match line {
            Ok(line) => line,
            Err(fault) => {
                if fault.kind == ErrorKind::Unsupported && skips {
                    leave_room(build, words);
                }
                return Err(fault);
            }
        };
        if line.only.is_some_and(|only| only != family) {
            let what = format!("the line is for the other family, and these rules are for {family}");
            let fault = Fault::unsupported(begin, "", OTHER_FAMILY, what);
            self.skipped.push(fault.on(self.options.name, number));
            return Ok(());
        }
        refuse_nat_drop(&line, kind)?;
        build.apply(line, at)
    }

    /// Reads command lines.
    fn commands(&mut self, text: &str) {
        let mut joined = String::new();
        let mut begin = 1;
        for (number, line) in (1_u32..).zip(text.lines()) {
            if joined.is_empty() {
                begin = number;
            }
            // A backslash at the end joins the next line, unless the line is a comment.
            let joins = line.ends_with('\\') && !line.trim_start().starts_with('#');
            if joins && joined.len() + line.len() <= LINE_BYTES_MAX {
                joined.push_str(&line[..line.len() - 1]);
                joined.push(' ');
                continue;
            }
            joined.push_str(line);
            self.command_line(&joined, begin);
            joined.clear();
        }
        if !joined.is_empty() {
            self.command_line(&joined, begin);
        }
    }

    fn command_line(&mut self, line: &str, number: u32) {
        if line.len() > LINE_BYTES_MAX {
            let what = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            self.report(Fault::syntax(1, "", what), number);
            return;
        }
        match split_shell(line) {
            Ok(commands) => {
                for words in commands {
                    if let Err(fault) = self.program(&words, number) {
                        self.report(fault, number);
                    }
                }
            }
            Err(fault) => {
                self.report(fault, number);
            }
        }
    }

    /// A command with the name of its program.
    fn program(&mut self, words: &[Word], number: u32) -> Result<(), Fault> {
        let is_sudo = words.first().is_some_and(|word| word.text == "sudo");
        let words = if is_sudo { &words[1..] } else { words };
        let Some((program, rest)) = words.split_first() else { return Ok(()) };
        let name = program.text.rsplit('/').next().unwrap_or("");
        let family = match name {
            "iptables" | "iptables-legacy" | "iptables-nft" => Family::V4,
            "ip6tables" | "ip6tables-legacy" | "ip6tables-nft" => Family::V6,
            // They change no rule.
            "set" | "true" | "echo" => return Ok(()),
            _ if name.starts_with('-') => return self.perform(words, number, None, Counters::default()),
            _ => {
                let what = format!("`{}` is not a command of iptables", program.text);
                return Err(Fault::unsupported(program.column, &program.text, "shell", what).instead("leave it out"));
            }
        };
        if family != self.family {
            let what = format!("the line is for {family}, and these rules are for {}", self.family);
            let fault = Fault::unsupported(program.column, &program.text, OTHER_FAMILY, what);
            if self.options.family.is_none() {
                return Err(fault.instead("choose a family, or read the lines from two files"));
            }
            self.skipped.push(fault.on(self.options.name, number));
            return Ok(());
        }
        self.perform(rest, number, None, Counters::default())
    }
}

/// Leaves room in the chain for a rule that is skipped.
fn leave_room(build: &mut TableBuild, words: &[Word]) {
    let mut words =
        words.iter().skip_while(|word| !matches!(word.text.as_str(), "-A" | "-I" | "--append" | "--insert"));
    let (Some(command), Some(chain)) = (words.next(), words.next()) else { return };
    let number = words.next().and_then(|word| word.text.parse().ok()).filter(|number| *number > 0);
    let is_insert = matches!(command.text.as_str(), "-I" | "--insert");
    build.skip(&chain.text, is_insert.then_some(number.unwrap_or(1)));
}

/// The table of a command line: that of `-t`, or filter.
fn named_table(words: &[Word]) -> Result<TableKind, Fault> {
    let at = words.iter().position(|word| !word.quoted && matches!(word.text.as_str(), "-t" | "--table"));
    match at.and_then(|at| words.get(at + 1)) {
        Some(name) => line::table(Value { option: "table", text: &name.text, column: name.column }),
        None => Ok(TableKind::Filter),
    }
}

/// iptables refuses to drop in the table nat, where not every packet comes by.
fn refuse_nat_drop(line: &Line, kind: TableKind) -> Result<(), Fault> {
    use crate::line::Command;
    use crate::ruleset::{Policy, Target};
    let policy = matches!(line.command, Command::Policy { policy: Policy::Drop, .. });
    let rule = line.rules.iter().filter_map(|rule| rule.target.as_ref()).find(|target| target.value == Target::Drop);
    let column = rule.map_or(line.column, |target| target.at.column);
    if kind == TableKind::Nat && (policy || rule.is_some()) {
        let what = "the table nat can't drop, as it sees only the first packet of a flow";
        return Err(Fault::syntax(column, "DROP", what).instead("drop in the table filter"));
    }
    Ok(())
}

/// Reads `[packets:bytes]`.
fn brackets(text: &str) -> Option<Counters> {
    let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some(Counters { packets: packets.parse().ok()?, bytes: bytes.parse().ok()? })
}

/// Words between spaces, without quotes.
fn words_of(text: &str, first_column: u32) -> impl Iterator<Item = Word> {
    text.split([' ', '\t'])
        .scan(first_column, |column, part| {
            let at = *column;
            *column += part.chars().count() as u32 + 1;
            Some(Word { text: part.to_owned(), column: at, quoted: false })
        })
        .filter(|word| !word.text.is_empty())
}

/// Lines as fgets() gives them: a carriage return stays.
fn raw_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line))
}
