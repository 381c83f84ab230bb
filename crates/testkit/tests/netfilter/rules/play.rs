//! Plays packets to two routers, and looks for the first difference.

use std::collections::HashMap;
use std::fmt::{self, Write};

use iptables::{Options, RuleSet};

use super::case::{Numbered, Rules, Step, described};
use super::compare::{Pair, Ports, counter_differences, is_answer, told};
use super::layout::Layout;
use super::runner::{Outcome, RuleRunner};
use super::traffic::Traffic;
use crate::craft;

/// Two routers: the kernel first.
pub(crate) struct Match<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) kernel: &'a mut dyn RuleRunner,
    pub(crate) ours: &'a mut dyn RuleRunner,
    pub(crate) tally: &'a mut Tally,
}

/// A difference between the two.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The number of the step. `None`: the counters at the end.
    pub(crate) step: Option<usize>,
    pub(crate) what: String,
}

/// What the kernel did with the packets so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) forwarded: usize,
    pub(crate) delivered: usize,
    pub(crate) answered: usize,
    pub(crate) dropped: usize,
    /// Rules that some packet matched, and all rules.
    pub(crate) rules: (usize, usize),
}

/// What became of the packets so far.
struct Game {
    ports: Ports,
    outcomes: HashMap<usize, [Outcome; 2]>,
    /// True if the router itself has answered the last packet, and if it has answered any.
    is_answered: bool,
    has_answered: bool,
}

impl Match<'_> {
    /// Loads a rule set on both sides.
    pub(crate) fn load(&mut self, rules: &Rules) -> Result<(), String> {
        self.kernel.load(rules).map_err(|what| format!("the kernel does not load it: {what}"))?;
        self.ours.load(rules).map_err(|what| format!("we do not load it: {what}"))
    }

    /// Plays steps to loaded rule sets.
    pub(crate) fn replay(&mut self, parsed: &RuleSet, steps: &[Numbered]) -> Option<Difference> {
        let mut game = Game::new(parsed);
        steps.iter().find_map(|step| game.step(self, step)).or_else(|| game.end(self))
    }

    /// Plays `count` packets of a generator to loaded rule sets, which answers what comes out. Returns the steps too.
    pub(crate) fn generate(
        &mut self,
        parsed: &RuleSet,
        traffic: &mut Traffic<'_>,
        count: usize,
    ) -> (Vec<Numbered>, Option<Difference>) {
        let (mut game, mut steps) = (Game::new(parsed), Vec::new());
        for number in 0..count {
            let step = (number, traffic.next());
            let difference = game.step(self, &step);
            steps.push(step);
            if difference.is_some() {
                return (steps, difference);
            }
            // Nobody answers what the router itself has sent.
            if let Some([outcome, _]) = game.outcomes.get(&number).filter(|_| !game.is_answered) {
                traffic.answer(number, outcome);
            }
        }
        (steps, game.end(self))
    }

    /// Plays steps and returns the kernel's outcomes.
    pub(crate) fn outcomes(&mut self, parsed: &RuleSet, steps: &[Numbered]) -> (Vec<Outcome>, Option<Difference>) {
        let mut game = Game::new(parsed);
        let difference = steps.iter().find_map(|step| game.step(self, step)).or_else(|| game.end(self));
        let outcome =
            |(number, _): &Numbered| game.outcomes.get(number).map_or_else(Outcome::default, |both| both[0].clone());
        (steps.iter().map(outcome).collect(), difference)
    }
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, is_answered: bool) {
        match outcome {
            Outcome { delivered: 1.., .. } => self.delivered += 1,
            Outcome { left, .. } if left.is_empty() => self.dropped += 1,
            _ if is_answered => self.answered += 1,
            _ => self.forwarded += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forwarded, delivered, answered, dropped, rules: (matched, rules) } = self;
        write!(f, "{} packets: ", forwarded + delivered + answered + dropped)?;
        write!(f, "{forwarded} forwarded, {delivered} to the router, {answered} answered, {dropped} dropped; ")?;
        write!(f, "{matched} of {rules} rules matched")
    }
}

impl Game {
    fn new(parsed: &RuleSet) -> Self {
        Self {
            ports: Ports::new(&parsed.to_string()),
            outcomes: HashMap::new(),
            is_answered: false,
            has_answered: false,
        }
    }

    fn step(&mut self, sides: &mut Match<'_>, (number, step): &Numbered) -> Option<Difference> {
        let (from, sent) = self.packets(step)?;
        let both = [sides.kernel.inject(from, &sent[0]), sides.ours.inject(from, &sent[1])];
        self.is_answered = both[0].left.iter().any(|(_, packet)| is_answer(&sent[0], packet));
        self.has_answered |= self.is_answered;
        sides.tally.add(&both[0], self.is_answered);
        let pair = Pair { from, sent: [&sent[0], &sent[1]], outcomes: [&both[0], &both[1]] };
        let difference = self.ports.difference(&pair, sides.layout).map(|what| {
            let name = &sides.layout.interfaces[from].name;
            let theirs =
                if sent[0] == sent[1] { String::new() } else { format!("\n      to us {}", described(&sent[1])) };
            let [kernel, ours] = [&both[0], &both[1]].map(|outcome| told(outcome, sides.layout));
            let what = format!(
                "{what}\n    {name}: {}{theirs}\n      kernel {kernel}\n      ours   {ours}",
                described(&sent[0])
            );
            Difference { step: Some(*number), what }
        });
        self.outcomes.insert(*number, both);
        difference
    }

    /// Builds the packet for each side. `None` if there is nothing to answer.
    fn packets(&self, step: &Step) -> Option<(usize, [Vec<u8>; 2])> {
        match step {
            Step::Send { from, packet } => Some((*from, [packet.clone(), packet.clone()])),
            Step::Answer { to, answer, spoilt } => {
                let [kernel, ours] = self.outcomes.get(to)?;
                let ((from, theirs), (_, mine)) = (kernel.left.first()?, ours.left.first()?);
                let mut packets = [answer.packet(theirs)?, answer.packet(mine)?];
                if *spoilt {
                    packets.iter_mut().for_each(|packet| craft::spoil(packet));
                }
                Some((*from, packets))
            }
        }
    }

    /// Compares the counters.
    fn end(&self, sides: &mut Match<'_>) -> Option<Difference> {
        let (kernel, ours) = (sides.kernel.counters(), sides.ours.counters());
        let rules = kernel.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        sides.tally.rules.0 += rules.filter(|rule| rule.counters.packets > 0).count();
        sides.tally.rules.1 += kernel.rule_count();
        let differences = counter_differences(&kernel, &ours, self.has_answered);
        (!differences.is_empty()).then(|| Difference { step: None, what: differences.join("\n    ") })
    }
}

/// Parses a rule set.
pub(crate) fn parsed(rules: &Rules) -> Result<RuleSet, String> {
    let options = Options { family: Some(rules.family), ..Options::default() };
    iptables::parse(&rules.text, &options).map(|parsed| parsed.rules).map_err(|errors| errors.to_string())
}

/// Formats a rule set, the steps and their difference.
pub(crate) fn report(
    name: &str,
    rules: &Rules,
    layout: &Layout,
    steps: &[Numbered],
    difference: &Difference,
) -> String {
    let mut text = format!("{name}\n{}", rules.text);
    if !rules.sets.is_empty() {
        let _ = write!(text, "sets:\n{}", rules.sets);
    }
    for laid in &layout.interfaces {
        let addresses: Vec<String> = laid.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
        let _ = writeln!(text, "interface {}: {}", laid.name, addresses.join(", "));
    }
    for (number, step) in steps {
        let _ = match step {
            Step::Send { from, packet } => {
                writeln!(text, "  {number}. {}: {}", layout.interfaces[*from].name, described(packet))
            }
            Step::Answer { to, answer, spoilt } => {
                let spoilt = if *spoilt { ", with a wrong checksum" } else { "" };
                writeln!(text, "  {number}. to what {to} brought out: {answer:?}{spoilt}")
            }
        };
    }
    let at = difference.step.map_or_else(|| "counters".to_owned(), |step| format!("step {step}"));
    text + &format!("  {at}: {}\n", difference.what)
}
