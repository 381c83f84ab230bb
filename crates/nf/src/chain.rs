//! Chains: several functions as one, with one parse and one look-up for all that have the same packet sets. See [`Chain`].

mod apart;
mod entry;
mod link;
mod passage;
mod step;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use memory::Memory;
use packet::{FiveTuple, FlowKey, Headers, Words};

use crate::context::Context;
use crate::description::{Description, IcmpErrors, PacketSet, Sharing};
use crate::function::{FlowList, KeyOf, Meta, NetworkFunction, Opened, Sizing, Step};
use crate::kept::Kept;
use crate::report::{Fingerprint, Report};
use crate::speed::Speed;
use crate::verdict::{Reason, Verdict};

use self::apart::{AnyKey, Apart, FLOW};
use self::passage::{AllHeaders, NO_KEY};
use self::step::{Alive, Expire, PortsOf, Shown};

pub use self::entry::Entry;
pub use self::link::{Link, Visit, VisitWith};
pub use self::passage::Passage;

/// Several functions, one behind another, as one function. `L` is the type of its functions ([`chain!`](crate::chain)), `W` the number of
/// words of an entry.
///
/// - A packet is parsed once. Each function sees it as the one before has left it, with its addresses and ports rewritten.
/// - Functions with the same packet sets have one **entry** in the flow table, found by one look-up. It has each one's flow at a fixed place
///   with a deadline of its own, and goes when the last of them has ended. A function by five-tuple and direction has two places in the
///   entry of a connection.
/// - A function with other packet sets, or behind one that rewrites addresses, keeps its flows **apart**, in shared state: then engines that
///   can't share state refuse the chain, and name the function.
/// - A packet that a function drops or answers goes no further. Reasons of drops are told by function.
/// - On interfaces of which packets go **backwards** the last function comes first.
///
/// The outcome is that of the functions run one behind another, but for this: functions that draw by [`Context::random`] draw by the
/// number that the packet has ahead of the chain; an answer is made from the packet as it came, not as it was rewritten; and a full table
/// evicts entries as a whole.
#[derive(Clone)]
pub struct Chain<L, const W: usize> {
    stages: Box<[Stage<L>]>,
    backwards: Box<[u16]>,
    description: Description,
    set: PacketSet,
    sizing: Sizing,
    counters: usize,
    growth: u32,
    wants_whole_datagrams: bool,
    /// The functions that keep flows apart, by their place in the chain.
    apart: Box<[usize]>,
    /// The functions that read shared state under the addresses with which a packet came.
    ahead: Box<[usize]>,
    /// The places for flows in an entry.
    slots: Box<[Slot]>,
}

/// A place for a flow in an entry.
#[derive(Clone, Copy)]
struct Slot {
    /// Its bit in the entry's first word.
    bit: u64,
    /// Its first word, the deadline.
    at: usize,
}

/// A function of a chain.
#[derive(Clone)]
struct Stage<L> {
    name: String,
    link: L,
    place: Place,
    /// The function's first reason among the chain's own ones.
    first_reason: u8,
    /// Its own reasons.
    reasons: u8,
    first_counter: usize,
    drops_fragments: bool,
    /// True if it sees packets with the addresses with which they came.
    sees_as_sent: bool,
}

/// Where a function keeps its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has none.
    Nowhere,
    /// In the chain's entry.
    Entry {
        /// Its first bit in the entry's first word.
        bit: u32,
        /// Its first word.
        at: usize,
        /// Words of a flow with its deadline.
        words: usize,
        /// True if it has two flows there, one for each direction.
        is_directed: bool,
    },
    /// In a table of its own.
    Apart {
        /// The table's number.
        table: usize,
        why: Why,
        /// Where an entry remembers the place of the function's flow, a word for each direction; 0 if chains of these functions have no
        /// entries.
        found_at: usize,
    },
}

impl Place {
    /// The places for a function's flows in an entry.
    fn slots(self) -> impl Iterator<Item = Slot> {
        let (count, bit, at, words) = match self {
            Self::Entry { bit, at, words, is_directed } => (if is_directed { 2 } else { 1 }, bit, at, words),
            Self::Nowhere | Self::Apart { .. } => (0, 0, 0, 0),
        };
        (0..count).map(move |number| Slot { bit: 1 << (bit + number as u32), at: at + number * words })
    }
}

/// The reason why a function keeps its flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The function with this number gives packets other addresses.
    Readdressed(usize),
    /// The end of a flow changes what its packet sets share.
    Shares,
    /// It has other packet sets.
    OtherSets,
    /// It has ICMP errors in other packet sets.
    IcmpErrors,
}

/// The shared state of a chain.
pub struct Linked<L: Link, const W: usize, M: Memory> {
    parts: Vec<L::Shared<M>>,
    apart: Vec<Apart<M, W>>,
}

/// The most functions of a chain.
const FUNCTIONS_MAX: usize = 16;

/// The reasons that a function may give besides its own, and that are told by function.
const COMMON: [Reason; 3] = [Reason::TABLE_FULL, Reason::FRAGMENT, Reason::UNREADABLE];

/// The facts of a function that decide its place in a chain.
struct Facts {
    description: Description,
    set: PacketSet,
    errors: IcmpErrors,
    sizing: Sizing,
    words: Option<usize>,
    /// True if its keys can be five-tuples.
    has_tuples: bool,
    is_stored: bool,
    readdresses: bool,
    drops_fragments: bool,
    counters: usize,
    growth: u32,
    wants_whole_datagrams: bool,
    /// The reason why it can't be in a chain.
    flaw: Option<&'static str>,
}

/// The question for a function's [`Facts`].
struct Ask;

impl Visit for Ask {
    type Answer = Facts;

    fn function<N: NetworkFunction>(self, nf: &N) -> Facts {
        let is_stored = <N::Flow as crate::Flow>::STORED;
        let key_words = <<KeyOf<N> as FlowKey>::V4 as Words>::COUNT.max(<<KeyOf<N> as FlowKey>::V6 as Words>::COUNT);
        let words = <N::Flow as crate::Flow>::WORDS;
        Facts {
            description: nf.description(),
            set: nf.packet_set(),
            errors: nf.icmp_errors(),
            sizing: nf.sizing(),
            words,
            has_tuples: KeyOf::<N>::IS_TUPLE,
            is_stored,
            readdresses: nf.readdresses(),
            drops_fragments: nf.drops_fragments(),
            counters: nf.counters(),
            growth: nf.growth(),
            wants_whole_datagrams: nf.wants_whole_datagrams(),
            flaw: if N::READS_FRAMES || nf.reads_payload() {
                Some("it reads payload, and the functions of a chain share headers alone")
            } else if N::TRANSFORM.is_some() {
                Some("it makes packets anew, and functions behind it would not see them")
            } else if is_stored && (words.is_none() || key_words > AnyKey::WORDS) {
                Some("its flows have no form outside of memory")
            } else {
                None
            },
        }
    }
}

impl Facts {
    /// The number of flows that it has in an entry: by direction, if its packet sets are.
    fn flows(&self) -> usize {
        if self.set == PacketSet::FiveTuple { 2 } else { 1 }
    }

    /// The kind of packet sets that functions must have in common to share an entry.
    fn kind(&self) -> Option<Kind> {
        // The end of a flow may change what packet sets share, so it must not wait for the flows of other functions.
        if !self.is_stored || !self.has_tuples || self.description.sharing.is_any() {
            return None;
        }
        match (self.set, self.errors) {
            (PacketSet::FiveTuple | PacketSet::SymmetricFiveTuple, IcmpErrors::Own) => {
                Some(Kind::Connection { quoted: false })
            }
            (PacketSet::FiveTuple | PacketSet::SymmetricFiveTuple, IcmpErrors::Quoted) => {
                Some(Kind::Connection { quoted: true })
            }
            (PacketSet::FiveTuple | PacketSet::SymmetricFiveTuple, IcmpErrors::None) => Some(Kind::AnyConnection),
            (set @ (PacketSet::Source | PacketSet::Destination | PacketSet::SourceDestination), _) => {
                Some(Kind::Other(set))
            }
            _ => None,
        }
    }
}

/// A kind of packet sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Five-tuples, with ICMP errors under the packet that they quote, or under their own addresses.
    Connection {
        quoted: bool,
    },
    /// Five-tuples without ICMP errors.
    AnyConnection,
    Other(PacketSet),
}

impl Kind {
    /// True if a function of the kind `other` can have its flows in the same entry.
    fn takes(self, other: Self) -> bool {
        self == other || matches!((self, other), (Self::Connection { .. }, Self::AnyConnection))
    }
}

/// True if the function with this number sees packets with the addresses with which they came.
fn sees_as_sent(facts: &[Facts], number: usize, backwards: &[u16]) -> bool {
    let readdresses = |part: &[Facts]| part.iter().any(|facts| facts.readdresses);
    !readdresses(&facts[..number]) && (backwards.is_empty() || !readdresses(&facts[number + 1..]))
}

/// The places of the functions of a chain.
struct Places {
    /// The kind of the packet sets of entries; `None` if no function has its flows in entries.
    entries: Option<Kind>,
    places: Vec<Place>,
    /// Words of an entry, or of a flow apart if that is longer.
    words: usize,
}

impl Places {
    fn of(facts: &[Facts], backwards: &[u16]) -> Self {
        let kind = |(at, one): (usize, &Facts)| one.kind().filter(|_| sees_as_sent(facts, at, backwards));
        let kinds: Vec<Option<Kind>> = facts.iter().enumerate().map(kind).collect();
        let first = |wanted: &dyn Fn(Kind) -> bool| kinds.iter().flatten().copied().find(|kind| wanted(*kind));
        let entries = first(&|kind| kind == Kind::Connection { quoted: true })
            .or_else(|| first(&|kind| matches!(kind, Kind::Connection { .. })))
            .or_else(|| first(&|_| true));
        let (mut bit, mut at, mut table, mut longest) = (0, 1, 0, 0);
        let place = |(number, (one, kind)): (usize, (&Facts, &Option<Kind>))| {
            let words = one.words.unwrap_or(0);
            if !one.is_stored {
                return Place::Nowhere;
            }
            if kind.zip(entries).is_some_and(|(kind, entries)| entries.takes(kind)) {
                let flows = one.flows();
                let place = Place::Entry { bit, at, words: 1 + words, is_directed: flows == 2 };
                (bit, at) = (bit + flows as u32, at + flows * (1 + words));
                return place;
            }
            let why = why(facts, number, entries, backwards);
            let place = Place::Apart { table, why, found_at: if entries.is_some() { at } else { 0 } };
            (table, longest) = (table + 1, longest.max(FLOW + words));
            at += if entries.is_some() { 2 } else { 0 };
            place
        };
        let places = facts.iter().zip(&kinds).enumerate().map(place).collect();
        Self { entries, places, words: longest.max(at) }
    }
}

impl<L: Link, const W: usize> Chain<L, W> {
    /// A chain of these functions with their names, first to last. Packets of the interfaces `backwards` go from last to first.
    ///
    /// # Errors
    /// The reason why the functions can't be a chain, as a sentence.
    pub fn new(functions: impl IntoIterator<Item = (impl Into<String>, L)>, backwards: &[u16]) -> Result<Self, String> {
        let functions: Vec<(String, L)> = functions.into_iter().map(|(name, link)| (name.into(), link)).collect();
        let facts: Vec<Facts> = functions.iter().map(|(_, link)| link.visit(Ask)).collect();
        if functions.is_empty() {
            return Err("a chain needs functions".into());
        }
        if functions.len() > FUNCTIONS_MAX {
            return Err(format!("a chain has at most {FUNCTIONS_MAX} functions, not {}", functions.len()));
        }
        if let Some((name, flaw)) =
            functions.iter().zip(&facts).find_map(|((name, _), facts)| Some((name, facts.flaw?)))
        {
            return Err(format!("{name} can't be in a chain: {flaw}"));
        }
        let Places { entries, places, words } = Places::of(&facts, backwards);
        if words > W {
            return Err(format!(
                "the functions of this chain keep {words} words of a packet set, and there is room for {W}: use fewer of them"
            ));
        }
        let (mut stages, mut names, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (((name, link), one), place)) in functions.into_iter().zip(&facts).zip(places).enumerate() {
            if let Place::Apart { .. } = place {
                shared.push(format!("what {name} keeps by {}", one.set));
            }
            if let Some(what) = one.description.sharing.what() {
                shared.push(format!("{what} (of {name})"));
            }
            let (first_reason, reasons) = (names.len(), one.description.drop_reasons);
            names.extend(reasons.iter().map(|reason| format!("{name}:{reason}")));
            names.extend(COMMON.iter().map(|reason| format!("{name}:{}", reason.name(&[]))));
            stages.push(Stage {
                name,
                link,
                place,
                first_reason: first_reason as u8,
                reasons: reasons.len() as u8,
                first_counter: facts[..number].iter().map(|before| before.counters).sum(),
                drops_fragments: one.drops_fragments,
                sees_as_sent: sees_as_sent(&facts, number, backwards),
            });
        }
        if usize::from(Reason::OWN) + names.len() > Reason::COUNT {
            return Err("the functions of this chain have too many reasons to drop packets: use fewer of them".into());
        }
        let mut description = L::DESCRIPTION;
        // A configuration lives as long as the process; one that takes over while a run goes on leaves its names behind.
        description.drop_reasons = names.into_iter().map(leaked).collect::<Vec<_>>().leak();
        if !shared.is_empty() {
            description.sharing = Sharing::Shares(leaked(listed(&shared)));
        }
        // A table holds at least one flow.
        let with_entries = stages.iter().zip(&facts).filter(|(stage, _)| matches!(stage.place, Place::Entry { .. }));
        let sizing = with_entries.fold(Sizing { flows: 1, flows_v6: 1 }, |all, (_, one)| Sizing {
            flows: all.flows.max(one.sizing.flows),
            flows_v6: all.flows_v6.max(one.sizing.flows_v6),
        });
        let apart = |(number, stage): (usize, &Stage<L>)| matches!(stage.place, Place::Apart { .. }).then_some(number);
        let ahead = |(number, stage): (usize, &Stage<L>)| {
            (stage.sees_as_sent && !matches!(stage.place, Place::Entry { .. })).then_some(number)
        };
        Ok(Self {
            ahead: stages.iter().enumerate().filter_map(ahead).collect(),
            slots: stages.iter().flat_map(|stage| stage.place.slots()).collect(),
            apart: stages.iter().enumerate().filter_map(apart).collect(),
            stages: stages.into(),
            backwards: backwards.into(),
            description,
            set: match entries {
                None => PacketSet::None,
                Some(Kind::Connection { .. } | Kind::AnyConnection) => PacketSet::SymmetricFiveTuple,
                Some(Kind::Other(set)) => set,
            },
            sizing,
            counters: facts.iter().map(|one| one.counters).sum(),
            growth: facts.iter().map(|one| one.growth).max().unwrap_or(0),
            wants_whole_datagrams: facts.iter().any(|one| one.wants_whole_datagrams),
        })
    }

    /// Number of words that a chain of these functions needs room for.
    #[must_use]
    pub fn words<'l>(functions: impl IntoIterator<Item = &'l L>, backwards: &[u16]) -> usize {
        let facts: Vec<Facts> = functions.into_iter().map(|link| link.visit(Ask)).collect();
        Places::of(&facts, backwards).words
    }

    /// The functions in the order in which a packet of this interface meets them, with their numbers.
    #[inline]
    fn order(&self, interface: u16) -> impl Iterator<Item = (usize, &Stage<L>)> {
        let is_backwards = !self.backwards.is_empty() && self.backwards.contains(&interface);
        let count = self.stages.len();
        (0..count).map(move |step| {
            let number = if is_backwards { count - 1 - step } else { step };
            (number, &self.stages[number])
        })
    }

    /// The key of the packet's entry, and whether the packet goes from its second end to its first.
    #[inline(never)]
    fn entry_key(&self, headers: &Headers) -> (FiveTuple, bool) {
        let tuple = self.stages.iter().find_map(|stage| match stage.place {
            Place::Entry { .. } => stage.link.visit(KeyAt(headers)),
            Place::Nowhere | Place::Apart { .. } => None,
        });
        match (tuple, self.set) {
            (None, _) => (NO_KEY, false),
            (Some(tuple), PacketSet::SymmetricFiveTuple) => {
                let key = tuple.symmetric().0;
                (key, headers.source().is_some_and(|source| source.address() != key.source().address))
            }
            (Some(tuple), _) => (tuple, false),
        }
    }
}

/// The reason why the function with this number keeps its flows apart.
fn why(all: &[Facts], number: usize, entries: Option<Kind>, backwards: &[u16]) -> Why {
    let mut others = (0..number).chain(if backwards.is_empty() { 0..0 } else { number + 1..all.len() });
    match (others.find(|other| all[*other].readdresses), all[number].kind(), entries) {
        _ if all[number].description.sharing.is_any() => Why::Shares,
        (Some(by), ..) => Why::Readdressed(by),
        (None, Some(Kind::Connection { .. }), Some(Kind::Connection { .. })) => Why::IcmpErrors,
        _ => Why::OtherSets,
    }
}

/// A list in words: a, b and c.
fn listed(names: &[String]) -> String {
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// The key of a packet at the functions that have entries. `None` if none of them has metadata.
struct KeyAt<'h>(&'h Headers);

impl Visit for KeyAt<'_> {
    type Answer = Option<FiveTuple>;

    #[inline]
    fn function<N: NetworkFunction>(self, nf: &N) -> Option<FiveTuple> {
        nf.meta(self.0, &[])?.key().to_tuple()
    }
}

impl<L: Link, const W: usize> NetworkFunction for Chain<L, W> {
    type Meta = Passage;
    type Flow = Entry<W>;
    type Shared<M: Memory> = Linked<L, W, M>;
    type Speed = Self;

    const DESCRIPTION: Description = L::DESCRIPTION;
    const COUNTS: bool = L::COUNTS;

    fn counters(&self) -> usize {
        self.counters
    }

    fn description(&self) -> Description {
        self.description
    }

    fn growth(&self) -> u32 {
        self.growth
    }

    fn packet_set(&self) -> PacketSet {
        self.set
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    /// Each function says that for itself.
    fn drops_fragments(&self) -> bool {
        false
    }

    fn wants_whole_datagrams(&self) -> bool {
        self.wants_whole_datagrams
    }

    fn shown(&self, entry: &Entry<W>) -> String {
        let shown = self.stages.iter().filter_map(|stage| {
            let flows = stage.link.visit(Shown { entry, place: stage.place });
            (!flows.is_empty()).then(|| format!("{}: {}", stage.name, flows.join("; ")))
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// One for those that have their flows together, and one for each that has its flows apart.
    fn look_ups(&self) -> usize {
        let has_entry = self.stages.iter().any(|stage| matches!(stage.place, Place::Entry { .. }));
        usize::from(has_entry) + self.apart.len()
    }

    /// Which functions have their flows together, and which have not.
    fn notes(&self) -> Vec<String> {
        let has_entry = |stage: &&Stage<L>| matches!(stage.place, Place::Entry { .. });
        let together: Vec<String> = self.stages.iter().filter(has_entry).map(|stage| stage.name.clone()).collect();
        let mut notes = Vec::new();
        if !together.is_empty() {
            notes.push(format!("one entry for {}, by {}", listed(&together), self.set));
        }
        for stage in &self.stages {
            let Place::Apart { why, .. } = stage.place else { continue };
            let why = match why {
                Why::Readdressed(by) => format!("{} gives packets other addresses", self.stages[by].name),
                Why::Shares => "the end of a flow changes what all flows share".to_owned(),
                Why::OtherSets => format!("it needs {}", stage.link.visit(Ask).set),
                Why::IcmpErrors => "it counts ICMP errors by their own addresses (see its key icmp_errors)".to_owned(),
            };
            notes.push(format!("an entry of its own for {}: {why}", stage.name));
        }
        notes
    }

    fn shared<M: Memory>(&self, memory: &M) -> Linked<L, W, M> {
        let flows = |number: &usize| {
            let Sizing { flows, flows_v6 } = self.stages[*number].link.visit(Ask).sizing;
            Apart::new(memory, flows + flows_v6)
        };
        Linked {
            parts: self.stages.iter().map(|stage| stage.link.shared(memory)).collect(),
            apart: self.apart.iter().map(flows).collect(),
        }
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Linked<L, W, M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        for (stage, part) in self.stages.iter().zip(&shared.parts) {
            stage.link.visit_with(part, step::Digest { tx: &mut *tx, fingerprint: &mut *fingerprint })?;
        }
        shared.apart.iter().try_for_each(|apart| apart.fingerprint(tx, fingerprint))
    }

    fn succeed(self, old: &Self) -> Result<Self, String> {
        let places = |chain: &Self| chain.stages.iter().map(|stage| stage.place).collect::<Vec<_>>();
        if places(&self) != places(old) || self.set != old.set {
            return Err("the functions of a chain, and where they keep their flows, can't change while it runs".into());
        }
        let stages = self
            .stages
            .into_iter()
            .zip(&old.stages)
            .map(|(stage, before)| Ok(Stage { link: stage.link.succeed(&before.link)?, ..stage }))
            .collect::<Result<_, String>>()?;
        Ok(Self { stages, ..self })
    }

    fn adopt<M: Memory>(&self, old: &Self, shared: &mut Linked<L, W, M>, memory: &M) {
        for ((stage, before), part) in self.stages.iter().zip(&old.stages).zip(&mut shared.parts) {
            stage.link.adopt(&before.link, part, memory);
        }
    }

    const KEEPS: bool = L::KEEPS;

    fn keep<'a, M: Memory>(&self, shared: &'a Linked<L, W, M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for (stage, part) in self.stages.iter().zip(&shared.parts) {
            stage.link.visit_with(part, step::KeepShared { tx: &mut *tx, kept: &mut *kept })?;
        }
        shared.apart.iter().try_for_each(|apart| apart.keep(tx, kept))
    }

    /// For each function its number of words, and these.
    fn inherited(&self) -> Vec<u64> {
        let parts: Vec<Vec<u64>> = self.stages.iter().map(|stage| stage.link.visit(step::Inherited)).collect();
        if parts.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        parts.into_iter().flat_map(|words| [words.len() as u64].into_iter().chain(words)).collect()
    }

    fn inherit(&self, mut words: &[u64]) -> Option<Self> {
        let stage = |stage: &Stage<L>| {
            let (len, rest) = words.split_first()?;
            let (own, rest) = rest.split_at_checked(usize::try_from(*len).ok()?)?;
            words = rest;
            let link = if own.is_empty() { stage.link.clone() } else { stage.link.inherit(own)? };
            Some(Stage { link, ..stage.clone() })
        };
        let stages = self.stages.iter().map(stage).collect::<Option<_>>()?;
        words.is_empty().then(|| Self { stages, ..self.clone() })
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Passage> {
        let kept = AllHeaders::of(headers);
        let (key, is_reversed) = match (&kept, self.set) {
            // Functions by connections have these fields of a TCP or UDP packet as their key (`packet_set`).
            (AllHeaders::Ordinary(_), PacketSet::SymmetricFiveTuple) => {
                headers.five_tuple().map_or((NO_KEY, false), |tuple| {
                    let (key, in_order) = tuple.symmetric();
                    (key, !in_order)
                })
            }
            // Copied, so that above the headers stay in registers.
            _ => self.entry_key(&{ *headers }),
        };
        Some(Passage { key, is_reversed, headers: kept })
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Passage) -> Step<Opened<Entry<W>>, M> {
        let mut entry = Entry::EMPTY;
        let verdict = self.walk(cx, &mut entry, meta)?;
        Ok(if entry.is_over() {
            Opened::Refused(verdict)
        } else {
            cx.leave(verdict);
            Opened::Flow(entry)
        })
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        entry: &mut Entry<W>,
        meta: &Passage,
    ) -> Step<Verdict, M> {
        if let Some(verdict) = cx.take_left() {
            return Ok(verdict);
        }
        let verdict = self.walk(cx, entry, meta)?;
        if entry.is_over() {
            cx.close();
        }
        Ok(verdict)
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, entry: &Entry<W>) -> Step<(), M> {
        let shared = cx.shared;
        for (stage, part) in self.stages.iter().zip(&shared.parts) {
            if matches!(stage.place, Place::Entry { .. }) {
                stage.link.visit_with(part, Expire { cx: &mut *cx, entry, stage })?;
            }
        }
        Ok(())
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, now) = (cx.shared, cx.now());
        let has_entry = |stage: &&Stage<L>| matches!(stage.place, Place::Entry { .. });
        let mut rows = Vec::new();
        for stage in &self.stages {
            let alive = match stage.place {
                Place::Nowhere => continue,
                Place::Entry { .. } => flows
                    .alive()
                    .map(|(_, entry)| stage.link.visit(Alive { entry: &entry, place: stage.place, now }))
                    .sum(),
                Place::Apart { table, .. } => shared.apart[table].alive(&mut cx.tx, now)?,
            };
            let kept = if has_entry(&stage) { "the chain's entries" } else { "entries of its own" };
            rows.push(vec![stage.name.as_str().into(), kept.into(), alive.into()]);
        }
        Ok((!rows.is_empty()).then(|| Report {
            title: "flows of the chain's functions".into(),
            columns: vec!["function", "kept in", "flows"],
            rows,
        }))
    }

    fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.stages.iter().flat_map(|stage| stage.link.visit(PortsOf)).collect();
        ports.extend(&self.backwards);
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

impl<L: Link, const W: usize> Speed<Self> for Chain<L, W> {
    fn prefetch<M: Memory>(nf: &Self, shared: &Linked<L, W, M>, meta: &Passage) {
        nf.look_ahead(shared, meta, false);
    }

    fn prefetch_entry<M: Memory>(nf: &Self, shared: &Linked<L, W, M>, meta: &Passage) {
        nf.look_ahead(shared, meta, true);
    }
}

impl<L, const W: usize> fmt::Debug for Chain<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| (&stage.name, stage.place))).finish()
    }
}
