//! What both sides of the comparison do: load a rule set, and run it on packets.

use iptables::RuleSet;
use millrace_testkit::netns::Sent;

use super::case::Rules;

/// What became of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The packets that left, with the numbers of their interfaces, in order of these.
    pub(crate) left: Vec<Sent>,
    /// Packets that passed INPUT: they are for the router itself.
    pub(crate) delivered: usize,
}

/// A router that runs a rule set.
pub(crate) trait RuleRunner {
    /// Loads a rule set in place of the last one, and forgets all flows. Returns why it can't.
    fn load(&mut self, rules: &Rules) -> Result<(), String>;

    /// Sends a packet to an interface.
    fn inject(&mut self, from: usize, packet: &[u8]) -> Outcome;

    /// Says how an engine of ours differs from another on the packets since the rule set was loaded, if one does.
    fn engines_agree(&self) -> Result<(), String> {
        Ok(())
    }

    /// The rule set with its counters now.
    fn counters(&mut self) -> RuleSet;
}
