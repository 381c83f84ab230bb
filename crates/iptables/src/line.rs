//! Reads the words of one command: `-A INPUT -p tcp --dport 22 -j ACCEPT`.

mod command;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec::Vec;

use crate::error::{Fault, Located, Position};
use crate::extension::Row;
use crate::matches::{Conntrack, MATCHES, Match};
use crate::names::protocols;
use crate::options::{Args, Given, Spec, Value};
use crate::ruleset::{Rule, TableKind, Target};
use crate::targets::{ACTIONS, Action, Ct};
use crate::unsupported;
use crate::value::{Condition, Counters, Family, Network};
use crate::words::Word;

pub(crate) use self::command::{CHAIN_BYTES_MAX, Command, long_chain, policy};

/// Most rules that a line with lists of addresses may make.
const RULES_MAX: usize = 10_000;

/// A command with its rules: several if it has lists of addresses.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) command: Command,
    /// The place of the command's option.
    pub(crate) column: u32,
    pub(crate) rules: Vec<Rule>,
    /// The family that `-4` or `-6` limits the line to.
    pub(crate) only: Option<Family>,
}

/// The circumstances that decide the meaning of a line's words.
pub(crate) struct Setting<'a> {
    pub(crate) family: Family,
    pub(crate) line: u32,
    /// True in a file for iptables-restore, where `-t` must not be.
    pub(crate) is_restore: bool,
    /// The counters in brackets before the rule.
    pub(crate) counters: Counters,
    /// Tells whether a table has a chain.
    pub(crate) has_chain: &'a dyn Fn(&str) -> bool,
}

/// The options of iptables itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    Append,
    Delete,
    Check,
    Insert,
    Replace,
    List,
    ListRules,
    Flush,
    Zero,
    NewChain,
    DeleteChain,
    RenameChain,
    Policy,
    Source,
    Destination,
    Protocol,
    InInterface,
    OutInterface,
    Jump,
    Goto,
    Table,
    Match,
    /// No effect on rules, no value.
    Idle,
    Wait,
    Fragments,
    Modprobe,
    SetCounters,
    Ipv4,
    Ipv6,
    Help,
}

const CORE: &[(&str, char, Core)] = &[
    ("append", 'A', Core::Append),
    ("delete", 'D', Core::Delete),
    ("check", 'C', Core::Check),
    ("insert", 'I', Core::Insert),
    ("replace", 'R', Core::Replace),
    ("list", 'L', Core::List),
    ("list-rules", 'S', Core::ListRules),
    ("flush", 'F', Core::Flush),
    ("zero", 'Z', Core::Zero),
    ("new-chain", 'N', Core::NewChain),
    ("delete-chain", 'X', Core::DeleteChain),
    ("rename-chain", 'E', Core::RenameChain),
    ("policy", 'P', Core::Policy),
    ("source", 's', Core::Source),
    ("src", 's', Core::Source),
    ("destination", 'd', Core::Destination),
    ("dst", 'd', Core::Destination),
    ("protocol", 'p', Core::Protocol),
    ("proto", 'p', Core::Protocol),
    ("in-interface", 'i', Core::InInterface),
    ("out-interface", 'o', Core::OutInterface),
    ("jump", 'j', Core::Jump),
    ("goto", 'g', Core::Goto),
    ("table", 't', Core::Table),
    ("match", 'm', Core::Match),
    ("numeric", 'n', Core::Idle),
    ("verbose", 'v', Core::Idle),
    ("exact", 'x', Core::Idle),
    ("line-numbers", '\0', Core::Idle),
    ("wait", 'w', Core::Wait),
    ("wait-interval", 'W', Core::Wait),
    ("fragments", 'f', Core::Fragments),
    ("modprobe", 'M', Core::Modprobe),
    ("set-counters", 'c', Core::SetCounters),
    ("ipv4", '4', Core::Ipv4),
    ("ipv6", '6', Core::Ipv6),
    ("help", 'h', Core::Help),
    ("version", 'V', Core::Help),
];

/// Makes an extension of what a rule gave.
enum Maker {
    Match(MatchMaker),
    Target(ActionMaker),
}

/// An extension that the rule uses.
struct Used<'a> {
    maker: Maker,
    args: Args<'a>,
}

struct Reader<'a> {
    setting: &'a Setting<'a>,
    words: &'a [Word],
    next: usize,
    negated: Option<u32>,
    command: Option<(Core, u32, Vec<&'a Word>)>,
    /// Core options that may be given once.
    once: Vec<Core>,
    only: Option<Family>,
    counters: Counters,
    sources: Vec<Located<Condition<Network>>>,
    destinations: Vec<Located<Condition<Network>>>,
    /// All that is the same in all rules of the line.
    rule: Rule,
    used: Vec<Used<'a>>,
}

/// Reads a command. `words` has no name of a program.
pub(crate) fn read(words: &[Word], setting: &Setting<'_>) -> Result<Line, Fault> {
    let begin = words.first().map_or(1, |word| word.column);
    let mut reader = Reader {
        setting,
        words,
        next: 0,
        negated: None,
        command: None,
        once: Vec::new(),
        only: None,
        counters: setting.counters,
        sources: Vec::new(),
        destinations: Vec::new(),
        rule: Rule {
            at: Position { line: setting.line, column: begin },
            counters: setting.counters,
            source: None,
            destination: None,
            input: None,
            output: None,
            protocol: None,
            fragment: None,
            matches: Vec::new(),
            target: None,
        },
        used: Vec::new(),
    };
    while let Some(word) = reader.take() {
        reader.word(word)?;
        // The rest is in the words of the other family.
        if let Some(only) = reader.only.filter(|only| *only != setting.family) {
            return Ok(Line { command: Command::Look, column: begin, rules: Vec::new(), only: Some(only) });
        }
    }
    reader.finish(begin)
}

impl<'a> Reader<'a> {
    fn take(&mut self) -> Option<&'a Word> {
        let word = self.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// The next word if it is no option.
    fn take_plain(&mut self) -> Option<&'a Word> {
        let word = self.words.get(self.next).filter(|word| !word.text.starts_with(['-', '!']))?;
        self.next += 1;
        Some(word)
    }

    /// The word behind an option.
    fn value(&mut self, option: &'static str, word: &Word) -> Result<Value<'a>, Fault> {
        let value = self.take();
        let value = value.map(|value| Value { option, text: &value.text, column: value.column });
        value.ok_or_else(|| Fault::syntax(word.column, &word.text, format!("`{}` needs a value", word.text)))
    }

    fn at(&self, column: u32) -> Position {
        Position { line: self.setting.line, column }
    }

    fn word(&mut self, word: &'a Word) -> Result<(), Fault> {
        let text = word.text.as_str();
        if text == "!" {
            return match self.negated.replace(word.column) {
                None => Ok(()),
                Some(_) => Err(Fault::syntax(word.column, "!", "there are two `!` in a row")),
            };
        }
        if let Some(name) = text.strip_prefix("--") {
            return self.long(name, word);
        }
        let mut letters = text.strip_prefix('-').unwrap_or("").chars();
        let (Some(letter), rest) = (letters.next(), letters.as_str()) else {
            let fault = Fault::syntax(word.column, text, format!("`{text}` belongs to no option"));
            let before = self.next.checked_sub(2).map(|at| self.words[at].text.as_str());
            return Err(match before {
                Some("!") => fault.instead("write the `!` before the option"),
                Some(_) | None => fault,
            });
        };
        let Some((_, _, core)) = CORE.iter().find(|(_, known, _)| *known == letter) else {
            return Err(Fault::syntax(word.column, text, format!("there is no option `{text}`")));
        };
        match (*core, rest) {
            (_, "") => self.core(*core, word),
            (Core::Idle, letters) if letters.chars().all(|letter| matches!(letter, 'n' | 'v' | 'x')) => Ok(()),
            (Core::Wait, digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
            _ => {
                let what = format!("`{text}` has an option and its value in one word");
                Err(Fault::syntax(word.column, text, what).instead(format!("write `-{letter} {rest}`")))
            }
        }
    }

    /// An option with two dashes: one of iptables itself, or one of an extension.
    fn long(&mut self, whole: &'a str, word: &'a Word) -> Result<(), Fault> {
        let (name, joined) = match whole.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (whole, None),
        };
        match self.find(name, word)? {
            Some(Found::Core(core)) if joined.is_none() => self.core(core, word),
            Some(Found::Core(_)) => {
                let what = format!("`{}` has an option and its value in one word", word.text);
                Err(Fault::syntax(word.column, &word.text, what).instead("write a space for the `=`"))
            }
            Some(Found::Of(nth, spec)) => self.of_extension(nth, spec, joined, word),
            None if self.load_protocol(word) => self.long(whole, word),
            None => Err(self.unknown(name, word)),
        }
    }

    /// Finds an option by its name or by a beginning that only one has, as getopt does. The newest extension comes first.
    fn find(&self, name: &str, word: &Word) -> Result<Option<Found>, Fault> {
        if let Some((_, _, core)) = CORE.iter().find(|(known, ..)| *known == name) {
            return Ok(Some(Found::Core(*core)));
        }
        let extensions = || self.used.iter().enumerate().rev();
        for (nth, used) in extensions() {
            if let Some(spec) = used.args.specs.iter().find(|spec| spec.is_called(name)) {
                return Ok(Some(Found::Of(nth, spec)));
            }
        }
        if name.is_empty() {
            return Ok(None);
        }
        let core = CORE.iter().filter(|(known, ..)| known.starts_with(name));
        let mut found: Vec<(Found, &str)> = core.map(|(known, _, core)| (Found::Core(*core), *known)).collect();
        for (nth, used) in extensions() {
            let begun = used.args.specs.iter().filter(|spec| spec.begins(name));
            found.extend(begun.map(|spec| (Found::Of(nth, spec), spec.name)));
        }
        match found.as_slice() {
            [] => Ok(None),
            [(only, _)] => Ok(Some(*only)),
            [(Found::Core(core), _), rest @ ..]
                if rest.iter().all(|(other, _)| matches!(other, Found::Core(known) if known == core)) =>
            {
                Ok(Some(Found::Core(*core)))
            }
            [(_, one), (_, other), ..] => {
                let what = format!("`--{name}` may be `--{one}` or `--{other}`");
                Err(Fault::syntax(word.column, &word.text, what).instead("write the whole name"))
            }
        }
    }

    /// Loads the match of the rule's protocol, which an option may belong to. False if there is none, or it is there already.
    fn load_protocol(&mut self, word: &Word) -> bool {
        let Some(protocol) = &self.rule.protocol else { return false };
        let name = match protocol.value.value {
            protocols::TCP => "tcp",
            protocols::UDP => "udp",
            protocols::ICMP => "icmp",
            protocols::ICMP_V6 => "icmp6",
            protocols::SCTP => "sctp",
            protocols::DCCP => "dccp",
            protocols::ESP => "esp",
            protocols::AH => "ah",
            protocols::MH => "mh",
            protocols::IPCOMP => "ipcomp",
            _ => return false,
        };
        if self.used.iter().any(|used| used.args.extension == name) {
            return false;
        }
        match find_match(name, self.setting.family) {
            Some((specs, maker)) => {
                self.load(name, word.column, specs, Maker::Match(maker));
                true
            }
            None => false,
        }
    }

    fn load(&mut self, extension: &'static str, column: u32, specs: &'static [Spec], maker: Maker) {
        let args = Args { extension, column, family: self.setting.family, protocol: None, specs, given: Vec::new() };
        self.used.push(Used { maker, args });
    }

    fn of_extension(
        &mut self,
        nth: usize,
        spec: &'static Spec,
        joined: Option<&'a str>,
        word: &'a Word,
    ) -> Result<(), Fault> {
        let negated = self.negated.take().is_some();
        let mut words = [None, None];
        let joined = joined.map(|text| {
            let column = word.column + (word.text.chars().count() - text.chars().count()) as u32;
            Value { option: spec.name, text, column }
        });
        match (spec.words, joined) {
            (0, Some(_)) => {
                return Err(Fault::syntax(word.column, &word.text, format!("`--{}` takes no value", spec.name)));
            }
            (0, None) => {}
            (count, joined) => {
                words[0] = Some(match joined {
                    Some(value) => value,
                    None => self.value(spec.name, word)?,
                });
                if count == 2 {
                    words[1] = Some(self.value(spec.name, word)?);
                }
            }
        }
        self.used[nth].args.add(Given { spec, column: word.column, negated, words }, word)
    }

    /// The error of an option that neither iptables nor a loaded extension has.
    fn unknown(&self, name: &str, word: &Word) -> Fault {
        let option = format!("--{name}");
        let of_match = MATCHES.iter().find(|row| row.options.iter().any(|spec| spec.is_called(name)));
        let of_target = ACTIONS.iter().find(|row| row.options.iter().any(|spec| spec.is_called(name)));
        let port = matches!(name, "sport" | "dport" | "source-port" | "destination-port");
        match (of_match, of_target) {
            _ if port => {
                let what = format!("`{option}` needs a protocol or a match that has it");
                Fault::syntax(word.column, &word.text, what).instead("write `-p tcp` before it")
            }
            (Some(row), _) => {
                let what = format!("`{option}` belongs to the match {}, which the rule doesn't name", row.name);
                Fault::syntax(word.column, &word.text, what).instead(format!("write `-m {}` before it", row.name))
            }
            (None, Some(row)) => {
                let what = format!("`{option}` belongs to the target {}, which the rule doesn't name", row.name);
                Fault::syntax(word.column, &word.text, what).instead(format!("write `-j {}` before it", row.name))
            }
            (None, None) => Fault::syntax(word.column, &word.text, format!("there is no option `{option}`")),
        }
    }

    /// Refuses a second option of a kind.
    fn once(&mut self, core: Core, word: &Word) -> Result<(), Fault> {
        if self.once.contains(&core) {
            return Err(Fault::syntax(word.column, &word.text, format!("`{}` may be given once", word.text)));
        }
        self.once.push(core);
        Ok(())
    }

    fn core(&mut self, core: Core, word: &'a Word) -> Result<(), Fault> {
        let negated = self.negated.take();
        let takes_not = matches!(
            core,
            Core::Source
                | Core::Destination
                | Core::Protocol
                | Core::InInterface
                | Core::OutInterface
                | Core::Fragments
        );
        if let Some(column) = negated.filter(|_| !takes_not) {
            return Err(Fault::syntax(column, "!", format!("`{}` can't have a `!`", word.text)));
        }
        let negated = negated.is_some();
        match core {
            Core::Append
            | Core::Delete
            | Core::Check
            | Core::Insert
            | Core::Replace
            | Core::List
            | Core::ListRules
            | Core::Flush
            | Core::Zero
            | Core::NewChain
            | Core::DeleteChain
            | Core::RenameChain
            | Core::Policy => self.command(core, word),
            Core::Source | Core::Destination => {
                self.once(core, word)?;
                let networks = self.networks(negated, word)?;
                match core {
                    Core::Source => self.sources = networks,
                    _ => self.destinations = networks,
                }
                Ok(())
            }
            Core::Protocol => {
                self.once(core, word)?;
                let value = self.value("protocol", word)?;
                let number = value.protocol()?;
                if number == 0 && negated {
                    return Err(value.fault("the rule would match no packet: `all` stands for each protocol"));
                }
                let protocol = Located { value: Condition { negated, value: number }, at: self.at(word.column) };
                self.rule.protocol = Some(protocol).filter(|_| number != 0);
                Ok(())
            }
            Core::InInterface | Core::OutInterface => {
                self.once(core, word)?;
                let value = self.value("interface", word)?;
                if value.text == "!" {
                    return Err(value.fault("`!` stands behind the option").instead("write it before the option"));
                }
                let interface = value.interface()?;
                // `+` alone, or nothing, is any interface. Without a `!` it tests nothing.
                let tells = !interface.as_str().is_empty() && (interface.as_str() != "+" || negated);
                let interface = Located { value: Condition { negated, value: interface }, at: self.at(word.column) };
                match core {
                    Core::InInterface => self.rule.input = Some(interface).filter(|_| tells),
                    _ => self.rule.output = Some(interface).filter(|_| tells),
                }
                Ok(())
            }
            Core::Fragments => {
                self.once(core, word)?;
                if self.setting.family == Family::V6 {
                    let fault = Fault::syntax(word.column, &word.text, "IPv6 has no `-f`");
                    return Err(fault.instead("write `-m frag`"));
                }
                self.rule.fragment = Some(Located { value: negated, at: self.at(word.column) });
                Ok(())
            }
            Core::Jump => {
                self.once(Core::Jump, word)?;
                self.jump(word)
            }
            Core::Goto => {
                self.once(Core::Jump, word)?;
                let chain = self.value("goto", word)?;
                if !(self.setting.has_chain)(chain.text) {
                    let what = format!("there is no chain `{}` in the table", chain.text);
                    return Err(chain.fault(what));
                }
                self.rule.target =
                    Some(Located { value: Target::Goto(chain.text.to_owned()), at: self.at(chain.column) });
                Ok(())
            }
            Core::Match => self.load_match(word),
            Core::Table => {
                let name = self.value("table", word)?;
                if self.setting.is_restore {
                    let what = "the table is the one after `*`, so `-t` must not be here";
                    return Err(Fault::syntax(word.column, &word.text, what));
                }
                table(name).map(|_| ())
            }
            Core::Idle => Ok(()),
            Core::Wait => {
                self.take_plain();
                Ok(())
            }
            Core::Modprobe => self.value("modprobe", word).map(|_| ()),
            Core::SetCounters => self.set_counters(word),
            Core::Ipv4 => {
                self.only = Some(Family::V4);
                Ok(())
            }
            Core::Ipv6 => {
                self.only = Some(Family::V6);
                Ok(())
            }
            Core::Help => {
                let what = format!("`{}` has no effect on rules", word.text);
                Err(Fault::unsupported(word.column, &word.text, &word.text, what))
            }
        }
    }

    /// A list of addresses. Two equal ones count once.
    fn networks(&mut self, negated: bool, word: &Word) -> Result<Vec<Located<Condition<Network>>>, Fault> {
        let value = self.value("address", word)?;
        if value.text == "!" {
            return Err(value.fault("`!` stands behind the option").instead("write it before the option"));
        }
        if negated && value.text.contains(',') {
            let fault = value.fault("a list of addresses can't have a `!`");
            return Err(fault.instead("write a chain with a rule for each address"));
        }
        let mut networks: Vec<Located<Condition<Network>>> = Vec::new();
        for part in value.parts(',') {
            let network = Condition { negated, value: part.network(self.setting.family)? };
            let network = Located { value: network, at: self.at(part.column) };
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        Ok(networks)
    }

    fn set_counters(&mut self, word: &Word) -> Result<(), Fault> {
        self.once(Core::SetCounters, word)?;
        let value = self.value("set-counters", word)?;
        let (packets, bytes) = match value.split_once(',') {
            Some((packets, bytes)) => (packets, bytes),
            None => (value, self.value("set-counters", word)?),
        };
        let number = |part: Value<'_>| {
            part.text.parse().map_err(|_| {
                value.fault("the counters are not numbers").instead("write packets and bytes, as `-c 5 320`")
            })
        };
        self.counters = Counters { packets: number(packets)?, bytes: number(bytes)? };
        Ok(())
    }

    fn load_match(&mut self, word: &Word) -> Result<(), Fault> {
        let name = self.value("match", word)?;
        let wanted = match name.text {
            "icmpv6" | "ipv6-icmp" => "icmp6",
            "ipv6-mh" | "mobility-header" => "mh",
            other => other,
        };
        let family = self.setting.family;
        if let Some((specs, maker)) = find_match(wanted, family) {
            let extension = if wanted == "state" { "state" } else { row(MATCHES, wanted).map_or("", |row| row.name) };
            self.load(extension, name.column, specs, Maker::Match(maker));
            return Ok(());
        }
        Err(match unsupported::of_match(wanted) {
            Some(reason) => {
                let what = format!("the match {wanted} is not supported: {reason}");
                Fault::unsupported(name.column, name.text, wanted, what)
            }
            None => no_extension(name, "match", row(MATCHES, wanted).map(|row| row.family), family, MATCHES),
        })
    }

    fn jump(&mut self, word: &Word) -> Result<(), Fault> {
        let name = self.value("jump", word)?;
        let at = self.at(name.column);
        let family = self.setting.family;
        let target = match name.text {
            "ACCEPT" => Some(Target::Accept),
            "DROP" => Some(Target::Drop),
            "RETURN" => Some(Target::Return),
            chain if (self.setting.has_chain)(chain) => Some(Target::Jump(chain.to_owned())),
            _ => None,
        };
        if let Some(target) = target {
            self.rule.target = Some(Located { value: target, at });
            return Ok(());
        }
        let found = match name.text {
            "NOTRACK" => Some(("NOTRACK", &[] as &[Spec], not_track as ActionMaker)),
            text => row(ACTIONS, text)
                .filter(|row| row.family.is_none_or(|of| of == family))
                .map(|row| (row.name, row.options, row.build)),
        };
        if let Some((extension, specs, build)) = found {
            self.load(extension, name.column, specs, Maker::Target(build));
            return Ok(());
        }
        Err(match unsupported::of_target(name.text) {
            Some(reason) => {
                let what = format!("the target {} is not supported: {reason}", name.text);
                Fault::unsupported(name.column, name.text, name.text, what)
            }
            None => no_extension(name, "target", row(ACTIONS, name.text).map(|row| row.family), family, ACTIONS),
        })
    }

    /// Makes the extensions and the rules.
    fn finish(mut self, begin: u32) -> Result<Line, Fault> {
        if let Some(column) = self.negated {
            return Err(Fault::syntax(column, "!", "nothing follows the `!`"));
        }
        let Some((core, column, words)) = self.command.take() else {
            return Err(Fault::syntax(begin, "", "there is no command").instead("write `-A` and a chain"));
        };
        let protocol = self.rule.protocol.as_ref().map(|protocol| protocol.value);
        for Used { maker, mut args } in core::mem::take(&mut self.used) {
            args.protocol = protocol;
            args.complete()?;
            let at = self.at(args.column);
            match maker {
                Maker::Match(build) => self.rule.matches.push(Located { value: build(&args)?, at }),
                Maker::Target(build) => {
                    self.rule.target = Some(Located { value: Target::Do(build(&args)?), at });
                }
            }
        }
        self.rule.counters = self.counters;
        let command = self.to_command(core, column, &words)?;
        let count = self.sources.len().max(1) * self.destinations.len().max(1);
        if count > RULES_MAX {
            let what = format!("the lists of addresses make {count} rules of one line, and at most {RULES_MAX} may be");
            return Err(Fault::syntax(column, "", what).instead("use a set"));
        }
        let has_rule = matches!(
            command,
            Command::Append { .. } | Command::Insert { .. } | Command::Replace { .. } | Command::Delete { .. }
        );
        let only = self.only;
        let rules = if has_rule { self.rules() } else { Vec::new() };
        Ok(Line { command, column, rules, only })
    }

    /// A rule for each pair of source and destination.
    fn rules(self) -> Vec<Rule> {
        let tells =
            |network: &Located<Condition<Network>>| network.negated || network.value.value.prefix_len() != Some(0);
        let each = |networks: Vec<Located<Condition<Network>>>| match networks.is_empty() {
            true => alloc::vec![None],
            false => networks.into_iter().map(|network| Some(network).filter(tells)).collect(),
        };
        let (sources, destinations) = (each(self.sources), each(self.destinations));
        let mut rules = Vec::new();
        for source in &sources {
            for destination in &destinations {
                let mut rule = self.rule.clone();
                (rule.source, rule.destination) = (*source, *destination);
                rules.push(rule);
            }
        }
        rules
    }
}

#[derive(Clone, Copy)]
enum Found {
    Core(Core),
    /// Of the extension with this number.
    Of(usize, &'static Spec),
}

fn row<T>(rows: &'static [Row<T>], name: &str) -> Option<&'static Row<T>> {
    rows.iter().find(|row| row.name == name)
}

type ActionMaker = fn(&Args<'_>) -> Result<Action, Fault>;

fn not_track(args: &Args<'_>) -> Result<Action, Fault> {
    Ct::build_notrack(args).map(Action::Ct)
}

type MatchMaker = fn(&Args<'_>) -> Result<Match, Fault>;

fn find_match(name: &str, family: Family) -> Option<(&'static [Spec], MatchMaker)> {
    if name == "state" {
        return Some((Conntrack::STATE_OPTIONS, |args| Conntrack::build_state(args).map(Match::Conntrack)));
    }
    let row = row(MATCHES, name).filter(|row| row.family.is_none_or(|of| of == family))?;
    Some((row.options, row.build))
}

/// The error of a name that is neither a match (or target) nor known as unsupported.
fn no_extension<T>(name: Value<'_>, what: &str, of: Option<Option<Family>>, family: Family, rows: &[Row<T>]) -> Fault {
    if of.is_some() {
        return name.fault(format!("{family} has no {what} {}", name.text));
    }
    let as_chain = if what == "target" { "neither a target nor a chain of the table" } else { "not a match" };
    let fault = name.fault(format!("`{}` is {as_chain}", name.text));
    match rows.iter().find(|row| row.name.eq_ignore_ascii_case(name.text)) {
        Some(row) => fault.instead(format!("did you mean `{}`?", row.name)),
        None => fault,
    }
}

/// The table of this name.
pub(crate) fn table(name: Value<'_>) -> Result<TableKind, Fault> {
    TableKind::named(name.text).ok_or_else(|| {
        let what = format!("there is no table `{}`", name.text);
        name.fault(what).instead("write raw, mangle, nat, filter or security")
    })
}
