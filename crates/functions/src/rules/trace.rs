//! The steps of a packet's way, for explanations.

use iptables::{Hook, Policy, TableKind};

use super::view::View;

/// A step of a packet's way through the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The tracker has seen the packet: its state, behind a comma why if that is not clear, and whether it goes against the connection's
    /// first packet.
    Tracked(&'static str, bool),
    /// A hook calls a table's chain.
    Chain(TableKind, Hook),
    /// A rule's conditions were compared: the rule's number, and the first condition that the packet doesn't pass.
    Rule(usize, Option<Condition>),
    /// The end of a hook's chain.
    Policy(Policy),
    /// Addresses and ports were rewritten.
    Rewritten,
    /// The way leads on by this interface.
    Forwarded(u8),
    /// The packet is for the router itself.
    Local,
    /// No route leads to the destination.
    NoRoute,
    /// The time to live is over.
    Expired,
    /// The router answers; the next steps are those of the answer.
    Answer,
}

/// A condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Addresses, interfaces, protocol or fragment.
    Header,
    /// The match of this number among those of the rule.
    Match(usize),
}

/// Takes the steps of a packet's way.
pub trait Trace: Clone + Send + Sync + 'static {
    /// False if steps are not needed: then nothing is spent on them.
    const ON: bool;

    /// Takes a step, with what rules see of the packet.
    fn step(&self, step: Step, view: &View);
}

/// Takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Trace for Silent {
    const ON: bool = false;

    #[inline(always)]
    fn step(&self, _: Step, _: &View) {}
}
