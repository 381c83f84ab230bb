//! The look-up of a packet in one chain, apart from the rest, for benches.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

use iptables::{Options, RuleSet, Sets, parse};

use super::classify::Classifier;
use super::machine::{Chain, Check, Machine};
use super::router::{Paths, Router};
use super::sets::SetContents;
use super::test::Environment;
use super::view::View;

pub use super::classify::Method;

/// A chain of rules that have no state.
#[derive(Clone, Debug)]
pub struct LookUp {
    machine: Machine,
    environment: Environment,
    chain: Chain,
}

impl LookUp {
    /// The longest chain of a rule set.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn new(text: &str) -> Result<Self, String> {
        let rules = parse(text, &Options::default()).map_err(|errors| errors.to_string())?.rules;
        Self::compile(&rules)
    }

    fn compile(rules: &RuleSet) -> Result<Self, String> {
        let paths = Paths::new(&Router::default())?;
        let sets = Sets::parse("", "sets").map_err(|errors| errors.to_string())?;
        let environment =
            Environment { paths, sets: SetContents::new(&sets, &Paths::new(&Router::default())?, &BTreeSet::new())? };
        let refused =
            |refused: alloc::vec::Vec<super::Refusal>| refused.first().map(ToString::to_string).unwrap_or_default();
        let (machine, _) = Machine::compile(rules, &environment, &sets).map_err(refused)?;
        let chain = machine.chains.iter().max_by_key(|chain| chain.end - chain.first).cloned();
        Ok(Self { machine, environment, chain: chain.ok_or("there are no chains")? })
    }

    /// Builds the classifier anew, of this kind.
    pub fn rebuild(&mut self, method: Method) {
        self.chain.classifier = Classifier::build(&self.machine, &self.chain, method).map(Box::new);
    }

    /// Bytes that the classifier takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chain.classifier.as_ref().map_or(0, |classifier| classifier.bytes())
    }

    /// Of tuple space search, the numbers of hash tables, of rules outside of them, and of bit vectors for those.
    #[must_use]
    pub fn parts(&self) -> Option<[usize; 3]> {
        self.chain.classifier.as_ref().and_then(|classifier| classifier.parts())
    }

    /// The number within the chain of the first rule that the packet matches, and the number of rules that were compared.
    #[must_use]
    pub fn first_match(&self, view: &View) -> (Option<u32>, u32) {
        match self.chain.classifier.as_deref() {
            None => self.first_of(0..self.chain.end - self.chain.first, view),
            Some(Classifier::BitVectors(vectors)) => self.first_of(vectors.candidates(view, 0), view),
            Some(Classifier::TupleSpace(space)) => self.first_of(space.candidates(view, 0), view),
        }
    }

    #[inline]
    fn first_of(&self, candidates: impl Iterator<Item = u32>, view: &View) -> (Option<u32>, u32) {
        let rules = self.chain.rules(&self.machine);
        let mut compared = 0;
        for nth in candidates {
            let rule = &rules[nth as usize];
            let (first, end) = rule.checks;
            let mut checks = self.machine.checks[first as usize..end as usize].iter();
            compared += 1;
            if rule.holds(view, &self.machine.highs)
                && checks.all(|check| matches!(check, Check::Plain(test) if test.holds(view, &self.environment)))
            {
                return (Some(nth), compared);
            }
        }
        (None, compared)
    }
}
