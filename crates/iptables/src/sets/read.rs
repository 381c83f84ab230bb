//! Reads commands of ipset.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::entry::{Entry, EntryExtra, EntryPart, addresses};
use super::{Set, SetKind, Sets};
use crate::error::{Errors, Fault};
use crate::options::Value;
use crate::value::{Counters, Family, Interval};
use crate::words::{LINE_BYTES_MAX, Word, split_restore};

/// Longest name of a set, in bytes.
const NAME_BYTES_MAX: usize = 31;
/// Most errors that are reported.
const ERRORS_MAX: usize = 100;
/// Types that ipset has besides those of [`SetKind`].
const OTHER_KINDS: [&str; 6] =
    ["bitmap:ip,mac", "hash:ip,mark", "hash:ip,port,net", "hash:net,net", "hash:net,port,net", "hash:ip,mac"];

/// A set while its text is read.
struct Build {
    set: Set,
    /// Entries of all types but `list:set`.
    entries: BTreeSet<Entry>,
    /// The number of elements that they make in the kernel.
    elements: u64,
    /// Its place among the others.
    order: usize,
}

pub(super) fn sets(text: &str, name: &str) -> Result<Sets, Errors> {
    let mut reader = Reader { sets: BTreeMap::new(), created: 0 };
    let mut errors = Errors { errors: Vec::new(), left_out: 0 };
    for (number, line) in (1_u32..).zip(text.lines()) {
        if let Err(fault) = reader.line(line, number) {
            match errors.errors.len() < ERRORS_MAX {
                true => errors.errors.push(fault.on(name, number)),
                false => errors.left_out += 1,
            }
        }
    }
    if !errors.errors.is_empty() {
        return Err(errors);
    }
    let mut built: Vec<Build> = reader.sets.into_values().collect();
    built.sort_unstable_by_key(|build| build.order);
    let finish = |build: Build| {
        let mut set = build.set;
        set.entries.extend(build.entries);
        set
    };
    Ok(Sets { sets: built.into_iter().map(finish).collect() })
}

struct Reader {
    sets: BTreeMap<String, Build>,
    created: usize,
}

/// The words of a line, taken one by one.
struct Words<'a> {
    words: &'a [Word],
    end: u32,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a Word> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word)
    }

    fn value(&mut self, what: &'static str) -> Result<Value<'a>, Fault> {
        let word = self.next().ok_or_else(|| Fault::syntax(self.end, "", format!("the line ends, expected {what}")))?;
        Ok(Value { option: what, text: &word.text, column: word.column })
    }
}

impl Reader {
    fn line(&mut self, line: &str, number: u32) -> Result<(), Fault> {
        let line = line.trim_end_matches('\r');
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "COMMIT" {
            return Ok(());
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(Fault::syntax(1, "", format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        let mut words = split_restore(line, 1)?;
        let exists = |word: &Word| !word.quoted && matches!(word.text.as_str(), "-exist" | "-!" | "--exist");
        let exist = words.iter().any(exists);
        words.retain(|word| !exists(word));
        let end = line.chars().count() as u32 + 1;
        let mut words = Words { words: &words, end };
        let mut command = words.value("a command")?;
        while matches!(command.text.rsplit('/').next(), Some("sudo" | "ipset")) {
            command = words.value("a command")?;
        }
        match command.text {
            "create" | "n" | "new" | "-N" | "--create" => self.create(words, number, exist),
            "add" | "a" | "-A" | "--add" => self.add(words, number, exist),
            "del" | "d" | "delete" | "-D" | "--del" => self.delete(words, exist),
            "flush" | "f" | "-F" | "--flush" => self.flush(words),
            "destroy" | "x" | "-X" | "--destroy" => self.destroy(words),
            "rename" | "e" | "-E" | "--rename" | "swap" | "w" | "-W" | "--swap" => {
                let what = format!("`{}` is not supported", command.text);
                let fault = Fault::unsupported(command.column, command.text, command.text, what);
                Err(fault.instead("create the set under the name that it shall have"))
            }
            other => {
                let fault = command.fault(format!("`{other}` is not a command of ipset"));
                Err(fault.instead("write `create`, `add`, `del`, `flush` or `destroy`"))
            }
        }
    }

    fn create(&mut self, mut words: Words<'_>, number: u32, exist: bool) -> Result<(), Fault> {
        let name = words.value("the name of a set")?;
        if name.text.is_empty() || name.text.len() > NAME_BYTES_MAX {
            return Err(name.fault(format!("the name of a set has 1 to {NAME_BYTES_MAX} bytes")));
        }
        if !is_plain(name.text) {
            return Err(name.fault("the name of a set can't have spaces, quotes, commas or a dash at the beginning"));
        }
        let kind = words.value("the type of the set")?;
        let kind = SetKind::ALL.into_iter().find(|known| known.name() == kind.text).ok_or_else(|| {
            let what = format!("sets of the type `{}` are not supported", kind.text);
            match OTHER_KINDS.contains(&kind.text) {
                true => Fault::unsupported(kind.column, kind.text, kind.text, what),
                false => kind.fault(format!("`{}` is not a type of sets", kind.text)).instead("write it as `hash:ip`"),
            }
        })?;
        let set = options(Set::empty(name.text.to_owned(), kind, number), words)?;
        match (kind, set.addresses, set.ports) {
            (SetKind::BitmapIp, None, _) | (SetKind::BitmapPort, _, None) => {
                return Err(name.fault(format!("{} needs `range`", kind.name())));
            }
            _ => {}
        }
        match self.sets.get(name.text) {
            Some(old) if exist && old.set.kind == kind => Ok(()),
            Some(old) => {
                let what = format!("the set `{}` is there already, since line {}", name.text, old.set.line);
                Err(name.fault(what))
            }
            None => {
                let build = Build { set, entries: BTreeSet::new(), elements: 0, order: self.created };
                self.created += 1;
                self.sets.insert(name.text.to_owned(), build);
                Ok(())
            }
        }
    }

    fn set(&mut self, name: Value<'_>) -> Result<&mut Build, Fault> {
        let fault = || name.fault(format!("there is no set `{}`", name.text)).instead("create it before");
        self.sets.get_mut(name.text).ok_or_else(fault)
    }

    fn add(&mut self, mut words: Words<'_>, number: u32, exist: bool) -> Result<(), Fault> {
        let name = words.value("the name of a set")?;
        let value = words.value("an entry")?;
        let Set { kind, family, netmask, .. } = self.set(name)?.set;
        let entry = Entry::read(value, kind.dimensions(), family, netmask, number)?;
        if let EntryPart::Set(member) = &entry.first
            && self.sets.get(member).is_none_or(|other| other.set.kind == SetKind::ListSet)
        {
            let fault = value.fault(format!("there is no set `{member}` that is not a list itself"));
            return Err(fault.instead("create it before"));
        }
        let build = self.set(name)?;
        let (entry, before) = extras(entry, &build.set, words)?;
        build.fits(&entry, value)?;
        let twice =
            || value.fault(format!("`{}` is in the set already", value.text)).instead("write `-exist` to allow it");
        if kind == SetKind::ListSet {
            return build.list(entry, before, exist, value);
        }
        if build.entries.contains(&entry) {
            if !exist {
                return Err(twice());
            }
            build.entries.replace(entry);
            return Ok(());
        }
        build.elements = build.elements.saturating_add(entry.elements());
        if kind.is_hash() && !build.set.force_add && build.elements > u64::from(build.set.entries_max) {
            let what = format!("the set is full: `maxelem` is {}", build.set.entries_max);
            return Err(Fault::load(value.column, value.text, what).instead("create it with a larger `maxelem`"));
        }
        build.entries.insert(entry);
        Ok(())
    }

    fn delete(&mut self, mut words: Words<'_>, exist: bool) -> Result<(), Fault> {
        let name = words.value("the name of a set")?;
        let value = words.value("an entry")?;
        let build = self.set(name)?;
        let Set { kind, family, netmask, .. } = build.set;
        let entry = Entry::read(value, kind.dimensions(), family, netmask, 0)?;
        let found = match kind {
            SetKind::ListSet => {
                let at = build.set.entries.iter().position(|old| *old == entry);
                at.map(|at| build.set.entries.remove(at)).is_some()
            }
            _ => build.entries.remove(&entry),
        };
        match found {
            true => {
                build.elements = build.elements.saturating_sub(entry.elements());
                Ok(())
            }
            false if exist => Ok(()),
            false => Err(value.fault(format!("`{}` is not in the set", value.text))),
        }
    }

    fn flush(&mut self, mut words: Words<'_>) -> Result<(), Fault> {
        match words.words.is_empty() {
            true => self.sets.values_mut().for_each(Build::flush),
            false => {
                let name = words.value("the name of a set")?;
                self.set(name)?.flush();
            }
        }
        Ok(())
    }

    fn destroy(&mut self, mut words: Words<'_>) -> Result<(), Fault> {
        if words.words.is_empty() {
            self.sets.clear();
            return Ok(());
        }
        let name = words.value("the name of a set")?;
        self.set(name)?;
        let member = EntryPart::Set(name.text.to_owned());
        if self.sets.values().any(|build| build.set.entries.iter().any(|entry| entry.first == member)) {
            return Err(name.fault(format!("the set `{}` is in a list", name.text)));
        }
        self.sets.remove(name.text);
        Ok(())
    }
}

impl Build {
    fn flush(&mut self) {
        self.entries.clear();
        self.set.entries.clear();
        self.elements = 0;
    }

    /// Refuses an entry outside of the range of a bitmap.
    fn fits(&self, entry: &Entry, value: Value<'_>) -> Result<(), Fault> {
        let fits = match (&entry.first, self.set.addresses, self.set.ports) {
            (EntryPart::Addresses(given), Some(range), _) => range.first <= given.first && given.last <= range.last,
            (EntryPart::AnyPorts(given), _, Some(range)) => range.first <= given.first && given.last <= range.last,
            _ => true,
        };
        match fits {
            true => Ok(()),
            false => Err(value.fault(format!("`{}` is outside of the set's `range`", value.text))),
        }
    }

    /// Adds to a `list:set`, before or after another entry, or at the end.
    fn list(
        &mut self,
        entry: Entry,
        place: Option<(bool, Value<'_>)>,
        exist: bool,
        value: Value<'_>,
    ) -> Result<(), Fault> {
        let list = &mut self.set.entries;
        if list.contains(&entry) {
            return if exist { Ok(()) } else { Err(value.fault(format!("`{}` is in the list already", value.text))) };
        }
        if list.len() as u64 == u64::from(self.set.entries_max) {
            return Err(Fault::load(value.column, value.text, format!("the list is full: `size` is {}", list.len())));
        }
        let at = match place {
            Some((is_before, other)) => {
                let wanted = EntryPart::Set(other.text.to_owned());
                let at = list.iter().position(|entry| entry.first == wanted);
                let fault = || other.fault(format!("`{}` is not in the list", other.text));
                at.ok_or_else(fault)? + usize::from(!is_before)
            }
            None => list.len(),
        };
        list.insert(at, entry);
        Ok(())
    }
}

impl Set {
    fn empty(name: String, kind: SetKind, line: u32) -> Self {
        Self {
            name,
            kind,
            family: Family::V4,
            addresses: None,
            ports: None,
            netmask: None,
            timeout_s: None,
            counters: false,
            comments: false,
            hash_size: 1_024,
            entries_max: if kind == SetKind::ListSet { 8 } else { 65_536 },
            force_add: false,
            line,
            entries: Vec::new(),
        }
    }
}

/// True for a name that needs no quotes.
pub(super) fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && !name.contains(|char: char| char.is_whitespace() || matches!(char, '"' | '\\' | ','))
}

/// Reads the options of a new set.
fn options(mut set: Set, mut words: Words<'_>) -> Result<Set, Fault> {
    let kind = set.kind;
    let (mut range, mut netmask) = (None, None);
    while let Some(word) = words.next() {
        let option = word.text.trim_start_matches('-');
        match option {
            "family" if kind.is_hash() && kind != SetKind::HashMac => {
                set.family = words.value("family")?.name_of(
                    &[("inet", Family::V4), ("inet6", Family::V6), ("ipv4", Family::V4), ("ipv6", Family::V6)],
                    "a family",
                )?;
            }
            "hashsize" if kind.is_hash() => set.hash_size = words.value("hashsize")?.u32()?,
            "maxelem" if kind.is_hash() => set.entries_max = words.value("maxelem")?.u32()?,
            "size" if kind == SetKind::ListSet => set.entries_max = words.value("size")?.u32()?,
            // They shape the hash table of the kernel alone.
            "bucketsize" | "initval" if kind.is_hash() => {
                words.value("a number")?.u32()?;
            }
            "forceadd" if kind.is_hash() => set.force_add = true,
            "netmask" if matches!(kind, SetKind::HashIp | SetKind::BitmapIp) => netmask = Some(words.value("netmask")?),
            "range" if matches!(kind, SetKind::BitmapIp | SetKind::BitmapPort) => range = Some(words.value("range")?),
            "timeout" => set.timeout_s = Some(words.value("timeout")?.u32()?),
            "counters" => set.counters = true,
            "comment" => set.comments = true,
            "skbinfo" | "bitmask" | "markmask" => {
                let what = format!("the option `{option}` is not supported");
                return Err(Fault::unsupported(word.column, &word.text, option, what));
            }
            _ => {
                let what = format!("{} has no option `{}`", kind.name(), word.text);
                return Err(Fault::syntax(word.column, &word.text, what));
            }
        }
    }
    match (kind, range) {
        (SetKind::BitmapPort, Some(range)) => {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            set.ports = Some(Interval { first: first.port(None)?, last: last.port(None)? });
        }
        (_, Some(range)) => set.addresses = Some(addresses(range, Family::V4)?),
        (_, None) => {}
    }
    let bits = set.family.bits();
    let netmask = netmask.map(|value| value.number(1, u64::from(bits))).transpose()?;
    set.netmask = netmask.map(|netmask| netmask as u8).filter(|netmask| *netmask != bits);
    Ok(set)
}

/// Reads the options of an entry: where it goes in a list, too.
fn extras<'a>(mut entry: Entry, set: &Set, mut words: Words<'a>) -> Result<(Entry, Option<(bool, Value<'a>)>), Fault> {
    let (mut place, mut extra) = (None, EntryExtra::default());
    let without = |word: &Word, option: &str| {
        let what = format!("the set `{}` has no `{option}`", set.name);
        Fault::syntax(word.column, &word.text, what).instead(format!("create it with `{option}`"))
    };
    while let Some(word) = words.next() {
        let option = word.text.trim_start_matches('-');
        match option {
            "timeout" if set.timeout_s.is_some() => entry.timeout_s = Some(words.value("timeout")?.u32()?),
            "timeout" => return Err(without(word, "timeout")),
            "nomatch" => {
                let has_nets = matches!(set.kind, SetKind::HashNet | SetKind::HashNetPort | SetKind::HashNetInterface);
                if !has_nets {
                    let what = format!("{} has no `nomatch`", set.kind.name());
                    return Err(Fault::syntax(word.column, &word.text, what));
                }
                entry.no_match = true;
            }
            "packets" | "bytes" if !set.counters => return Err(without(word, "counters")),
            "packets" => extra.counters.packets = words.value("packets")?.number(0, u64::MAX)?,
            "bytes" => extra.counters.bytes = words.value("bytes")?.number(0, u64::MAX)?,
            "comment" if set.comments => extra.comment = words.value("comment")?.text_up_to(255)?,
            "comment" => return Err(without(word, "comment")),
            "before" | "after" if set.kind == SetKind::ListSet => {
                place = Some((option == "before", words.value("the name of a set")?));
            }
            "skbmark" | "skbprio" | "skbqueue" => {
                let what = format!("the option `{option}` is not supported");
                return Err(Fault::unsupported(word.column, &word.text, option, what));
            }
            _ => {
                let what = format!("an entry has no option `{}`", word.text);
                return Err(Fault::syntax(word.column, &word.text, what));
            }
        }
    }
    let is_plain = extra.comment.is_empty() && extra.counters == Counters::default();
    entry.extra = (!is_plain).then(|| Box::new(extra));
    Ok((entry, place))
}
