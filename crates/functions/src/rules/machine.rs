//! A rule set in the form that runs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use iptables::matches::{ConnBytes, Conntrack};
use iptables::targets::ConnMarkAction;
use iptables::{Family, Hook, Mark, MarkChange, Policy, TableKind};

use super::bytes::ByteTests;
use super::nat::Range;
use super::stateful::Stateful;
use super::test::Test;
use super::view::View;

/// A rule set in the form that runs.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) family: Family,
    /// The number of policies.
    pub(super) policies: usize,
    /// The chains that hooks call, by table and hook.
    pub(super) bases: [[Option<Base>; HOOKS]; TABLES],
    pub(super) chains: Vec<Chain>,
    pub(super) rules: Vec<Rule>,
    pub(super) highs: Vec<High>,
    /// The chains of hooks, in the order of a packet's way, by [`Part`].
    pub(super) ways: [Vec<Way>; Part::COUNT],
    pub(super) checks: Vec<Check>,
    /// For each check, whether it [comes out the same](Check::is_steady) for all packets of a direction.
    pub(super) steady: Vec<bool>,
    /// For each check, the number of its match among those of its rule.
    pub(super) match_of_check: Vec<u16>,
    pub(super) actions: Vec<Action>,
    pub(super) bytes: ByteTests,
    /// The matches with state, by number.
    pub(super) stateful: Vec<Stateful>,
    /// Packets are tracked.
    pub(super) tracks: bool,
    /// The table `nat` is there, and packets are tracked.
    pub(super) has_nat: bool,
    /// A match or a target needs random numbers.
    pub(super) draws: bool,
    /// A rule may rewrite addresses.
    pub(super) translates: bool,
    /// Packets and bytes of connections are counted.
    pub(super) accounts: bool,
}

pub(super) const TABLES: usize = TableKind::ALL.len();
pub(super) const HOOKS: usize = 5;

/// The deepest that chains may be nested.
pub(super) const DEPTH_MAX: usize = 64;

/// A chain that a hook calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) chain: u32,
    pub(super) policy: Policy,
    /// The number of the policy's counter.
    pub(super) counter: u32,
}

/// A part of a packet's way, in which tables follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Before the tracker.
    Raw,
    /// Behind the tracker, before the table `nat` may rewrite the destination.
    Arrival,
    /// To the router itself.
    Input,
    /// Through the router, before the table `nat` may rewrite the source.
    Forward,
    /// An answer of the router.
    Answer,
}

impl Part {
    const COUNT: usize = 5;

    /// The tables that the kernel asks, in order.
    pub(super) const fn tables(self) -> &'static [(TableKind, Hook)] {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        use TableKind::{Filter, Mangle, Raw, Security};
        match self {
            Self::Raw => &[(Raw, Prerouting)],
            Self::Arrival => &[(Mangle, Prerouting)],
            Self::Input => &[(Mangle, Input), (Filter, Input), (Security, Input)],
            Self::Forward => &[(Mangle, Forward), (Filter, Forward), (Security, Forward), (Mangle, Postrouting)],
            Self::Answer => {
                &[(Raw, Output), (Mangle, Output), (Filter, Output), (Security, Output), (Mangle, Postrouting)]
            }
        }
    }

    pub(super) const ALL: [Self; Self::COUNT] = [Self::Raw, Self::Arrival, Self::Input, Self::Forward, Self::Answer];
}

/// A chain on a packet's way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) table: TableKind,
    pub(super) hook: Hook,
    pub(super) base: Base,
}

/// A chain: its rules, which lie together.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) end: u32,
    /// Finds the rules that may match, if the chain is long.
    pub(super) classifier: Option<Box<super::classify::Classifier>>,
}

impl Chain {
    /// Its rules.
    pub(super) fn rules<'a>(&self, machine: &'a Machine) -> &'a [Rule] {
        &machine.rules[self.first as usize..self.end as usize]
    }
}

/// A rule. Its number is that of its counter.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The low 64 bits of addresses and their masks.
    pub(super) src: [u64; 2],
    pub(super) dst: [u64; 2],
    /// The interfaces that pass, a bit each.
    pub(super) input: u64,
    pub(super) output: u64,
    /// The checks of [`Machine::checks`].
    pub(super) checks: (u32, u32),
    pub(super) target: Target,
    /// The number of the high bits among [`Machine::highs`], with [`Self::HIGH`].
    pub(super) high: u32,
    pub(super) protocol: u8,
    pub(super) flags: u8,
}

/// The high 64 bits of a rule's addresses and masks.
#[derive(Clone, Copy, Debug)]
pub(super) struct High {
    pub(super) src: [u64; 2],
    pub(super) dst: [u64; 2],
}

impl Rule {
    pub(super) const NOT_SRC: u8 = 1;
    pub(super) const NOT_DST: u8 = 2;
    pub(super) const NOT_PROTOCOL: u8 = 4;
    pub(super) const ANY_PROTOCOL: u8 = 8;
    pub(super) const FRAGMENT: u8 = 16;
    pub(super) const NOT_FRAGMENT: u8 = 32;
    /// Addresses of IPv6, whose high bits count too.
    pub(super) const HIGH: u8 = 64;
    /// Not all is in the fields of this struct.
    const RARE: u8 = Self::FRAGMENT | Self::NOT_FRAGMENT | Self::HIGH;

    const fn has(&self, bit: u8) -> bool {
        self.flags & bit != 0
    }

    /// True if the packet passes the conditions of the rule itself, without matches.
    #[inline(always)]
    pub(super) fn holds(&self, view: &View, highs: &[High]) -> bool {
        let interfaces = self.input >> view.input & self.output >> view.output & 1 != 0;
        let protocol =
            self.has(Self::ANY_PROTOCOL) | ((view.protocol == self.protocol) != self.has(Self::NOT_PROTOCOL));
        if !(interfaces & protocol) {
            return false;
        }
        if self.has(Self::RARE) {
            return self.holds_rarely(view, highs);
        }
        let within = |[address, mask]: [u64; 2], own: u128| own as u64 & mask == address;
        (within(self.src, view.src) != self.has(Self::NOT_SRC))
            & (within(self.dst, view.dst) != self.has(Self::NOT_DST))
    }

    #[inline(never)]
    fn holds_rarely(&self, view: &View, highs: &[High]) -> bool {
        let is_later = view.fragment == packet::Fragment::Later;
        let is_kind = match self.flags & (Self::FRAGMENT | Self::NOT_FRAGMENT) {
            0 => true,
            kind => is_later == (kind == Self::FRAGMENT),
        };
        let ([src, src_mask], [dst, dst_mask]) = self.addresses(highs);
        is_kind
            && (view.src & src_mask == src) != self.has(Self::NOT_SRC)
            && (view.dst & dst_mask == dst) != self.has(Self::NOT_DST)
    }

    /// Source and destination, each with its mask.
    pub(super) fn addresses(&self, highs: &[High]) -> ([u128; 2], [u128; 2]) {
        let none = High { src: [0; 2], dst: [0; 2] };
        let high = if self.has(Self::HIGH) { &highs[self.high as usize] } else { &none };
        let whole = |high: [u64; 2], low: [u64; 2]| [0, 1].map(|at| u128::from(high[at]) << 64 | u128::from(low[at]));
        (whole(high.src, self.src), whole(high.dst, self.dst))
    }
}

/// What becomes of a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The next rule.
    Next,
    Accept,
    Drop,
    Return,
    Jump(u32),
    Goto(u32),
    /// The action of this number.
    Do(u32),
    /// A list of a match is full: the packet is dropped.
    ListFull,
}

/// A match of a rule.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// A test of the packet alone.
    Plain(Test),
    /// State, addresses and status of the connection.
    Conntrack(Box<Conntrack>),
    /// The state of the connection alone: the states that pass, in the bits of [`iptables::matches::States`].
    State(u8),
    /// The connection's mark.
    ConnMark(Mark, bool),
    ConnBytes(Box<ConnBytes>),
    /// A test that reads or changes state which packet sets share: the number among [`Machine::stateful`].
    Stateful(u32),
}

/// An action of a rule.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Reject(iptables::targets::RejectWith),
    Dnat(Range),
    Snat(Range),
    Masquerade(Range),
    Redirect(Range),
    /// The new network part of an address, and its mask.
    NetMap(u128, u128),
    Mark(MarkChange),
    ConnMark(ConnMarkAction),
    NotTracked,
    Mss(iptables::targets::TcpMssChange),
    Ttl(iptables::targets::TtlStep),
    /// The type of service becomes `tos & !mask ^ value`.
    Tos {
        mask: u8,
        value: u8,
    },
    /// Adds to a set or removes from it: the number among [`Machine::stateful`].
    Set(u32),
    /// Nothing that a packet or a later rule shows: the log, classes of queues.
    Nothing,
}

impl Check {
    /// True if it tests nothing but addresses, ports, protocol, interfaces, packet mark and the state of the connection: it comes out the
    /// same for all whole packets of one direction of an established connection that go the same way to it.
    pub(super) const fn is_steady(&self) -> bool {
        match self {
            Self::Plain(test) => test.is_steady(),
            Self::State(_) => true,
            Self::Conntrack(_) | Self::ConnMark(..) | Self::ConnBytes(_) | Self::Stateful(_) => false,
        }
    }
}

impl Action {
    /// True if what it does is the same for all packets that go the same way to it, and leaves nothing behind.
    pub(super) const fn is_steady(&self) -> bool {
        matches!(self, Self::Mark(_) | Self::NotTracked | Self::Nothing)
    }
}

impl Machine {
    /// The chain that a hook calls in a table.
    #[inline(always)]
    pub(super) const fn base(&self, table: TableKind, hook: Hook) -> Option<Base> {
        self.bases[table as usize][hook as usize]
    }

    /// The state that packet sets share because of a rule's target.
    pub(super) fn shares(&self, target: Target) -> Option<&'static str> {
        let Target::Do(number) = target else { return None };
        match &self.actions[number as usize] {
            Action::Dnat(_) | Action::Snat(_) | Action::Masquerade(_) | Action::Redirect(_) | Action::NetMap(..) => {
                Some("connections with rewritten addresses")
            }
            Action::Set(_) => Some("a set that rules change"),
            _ => None,
        }
    }

    /// True if a rule may answer packets.
    pub(super) fn rejects(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Reject(_)))
    }

    /// The number of counters: rules, then policies.
    pub(super) fn counters(&self) -> usize {
        self.rules.len() + self.policies
    }
}
