//! A packet's way through a chain.

use alloc::string::String;
use alloc::vec::Vec;

use memory::Memory;
use packet::{FlowKey, Fragment, Headers, Nanos, OrdinaryHeaders, Rewrite};

use super::apart::words_of;
use super::{AllHeaders, COMMON, Chain, Entry, Link, Passage, Place, Slot, Stage, Visit, VisitWith};
use crate::context::{Context, Effects};
use crate::function::{Flow, Meta, NetworkFunction, Opened, Step};
use crate::kept::Kept;
use crate::report::Fingerprint;
use crate::speed::Speed;
use crate::verdict::{PortId, Reason, Verdict};

impl<L: Link, const W: usize> Chain<L, W> {
    /// Lets the functions take their steps, one behind another, until one drops or answers the packet. Sets the entry's deadline.
    #[inline]
    pub(super) fn walk<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        entry: &mut Entry<W>,
        meta: &Passage,
    ) -> Step<Verdict, M> {
        let shared = cx.shared;
        // In time for their steps.
        for number in &self.apart {
            if let Place::Apart { table, found_at: at @ 1.., .. } = self.stages[*number].place {
                shared.apart[table].prefetch_found(entry.0[at + usize::from(meta.is_reversed)]);
            }
        }
        let mut sum = Sum::of(&meta.headers);
        for (number, stage) in self.order(meta.headers.interface()) {
            let step = Take { cx: &mut *cx, entry: &mut *entry, passage: meta, sum: &mut sum, stage };
            stage.link.visit_with(&shared.parts[number], step)?;
            if sum.is_over() {
                break;
            }
        }
        if entry.0[0] != 0 {
            let idle = Nanos(self.deadline(entry).saturating_sub(cx.now().0));
            cx.expire_after(idle);
        }
        Ok(sum.verdict())
    }

    /// Prefetches what the functions read first of shared state, or what that leads to. A function that sees other addresses than those with
    /// which the packet came can't tell yet.
    #[inline]
    pub(super) fn look_ahead<M: Memory>(&self, shared: &super::Linked<L, W, M>, meta: &Passage, is_second: bool) {
        let AllHeaders::Ordinary(headers) = &meta.headers else { return };
        for number in &self.ahead {
            let stage = &self.stages[*number];
            let apart = match stage.place {
                Place::Apart { table, .. } => Some(&shared.apart[table]),
                Place::Nowhere | Place::Entry { .. } => None,
            };
            stage.link.visit_with(&shared.parts[*number], LookAhead { apart, headers, is_second });
        }
    }

    /// When the last flow of an entry expires.
    #[inline]
    fn deadline(&self, entry: &Entry<W>) -> u64 {
        let open = |slot: &Slot| if entry.0[0] & slot.bit == 0 { 0 } else { entry.0[slot.at] };
        self.slots.iter().map(open).max().unwrap_or(0)
    }
}

impl<L> Stage<L> {
    /// The chain's number of this function's reason. Reasons of malformed packets, and of engines, stay as they are.
    fn reason(&self, reason: Reason) -> Reason {
        let number = match reason.0.checked_sub(Reason::OWN) {
            Some(own) if own < self.reasons => own,
            Some(_) => return reason,
            None => match COMMON.iter().position(|common| *common == reason) {
                Some(at) => self.reasons + at as u8,
                None => return reason,
            },
        };
        Reason(Reason::OWN + self.first_reason + number)
    }
}

/// The changes to a packet by the functions so far, as one verdict.
struct Sum<'p> {
    port: PortId,
    copy: Option<PortId>,
    rewrite: Option<Rewrite>,
    /// The verdict of a function that drops or answers the packet.
    end: Option<Verdict>,
    /// The headers with which the packet came.
    first: &'p AllHeaders,
    /// The headers of an ordinary packet after the rewrites so far.
    ordinary: Option<OrdinaryHeaders>,
    /// The headers of another packet after the rewrites so far; `None` if there was none.
    other: Option<Headers>,
}

/// The headers of a packet as a function sees them.
#[derive(Clone, Copy)]
enum Seen<'s> {
    Ordinary(&'s OrdinaryHeaders),
    Other(&'s Headers),
}

impl<'p> Sum<'p> {
    #[inline]
    const fn of(first: &'p AllHeaders) -> Self {
        let ordinary = match first {
            AllHeaders::Ordinary(ordinary) => Some(*ordinary),
            AllHeaders::Other(_) => None,
        };
        Self { port: PortId::ACROSS, copy: None, rewrite: None, end: None, first, ordinary, other: None }
    }

    /// True if the packet goes no further.
    #[inline]
    const fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Adds a function's verdict. It was just written field by field, and is read so.
    #[inline(always)]
    fn add<L>(&mut self, verdict: &Verdict, stage: &Stage<L>) {
        match verdict {
            Verdict::Forward(port) => self.leave_by(*port),
            Verdict::Rewrite { port, rewrite } => {
                self.leave_by(*port);
                self.rewrite(rewrite);
            }
            Verdict::Copy { port, copy, src, dst, macs } => {
                self.leave_by(*port);
                self.rewrite(&Rewrite { src: *src, dst: *dst, macs: *macs, ..Rewrite::NONE });
                self.copy = Some(*copy);
            }
            Verdict::Drop(reason) => self.end = Some(Verdict::Drop(stage.reason(*reason))),
            Verdict::Reply(_) | Verdict::Transform { .. } => self.end = Some(*verdict),
        }
    }

    #[inline]
    fn seen(&self) -> Seen<'_> {
        match (&self.ordinary, &self.other, self.first) {
            (Some(ordinary), ..) | (None, None, AllHeaders::Ordinary(ordinary)) => Seen::Ordinary(ordinary),
            (None, Some(headers), _) | (None, None, AllHeaders::Other(headers)) => Seen::Other(headers),
        }
    }

    /// A function sends the packet out by a port of its own choice, or across, as it would have gone.
    #[inline]
    fn leave_by(&mut self, port: PortId) {
        if port != PortId::ACROSS {
            self.port = port;
        }
    }

    #[inline]
    fn rewrite(&mut self, rewrite: &Rewrite) {
        match &mut self.ordinary {
            Some(ordinary) => ordinary.rewrite(rewrite),
            None => self.rewrite_other(rewrite),
        }
        match &self.rewrite {
            Some(before) => self.rewrite = Some(before.then(rewrite, &self.first.all())),
            None => self.rewrite = Some(*rewrite),
        }
    }

    #[inline(never)]
    fn rewrite_other(&mut self, rewrite: &Rewrite) {
        self.other = Some(rewrite.seen_in(&self.other.unwrap_or_else(|| self.first.all())));
    }

    #[inline(always)]
    fn verdict(self) -> Verdict {
        match (self.end, self.rewrite, self.copy) {
            (Some(end), ..) => end,
            (None, None, _) => Verdict::Forward(self.port),
            (None, Some(Rewrite { src, dst, macs, .. }), Some(copy)) => {
                Verdict::Copy { port: self.port, copy, src, dst, macs }
            }
            (None, Some(rewrite), None) => Verdict::Rewrite { port: self.port, rewrite },
        }
    }
}

/// Takes one function's step.
struct Take<'s, 'p, 'a, L: Link, M: Memory, const W: usize> {
    cx: &'s mut Context<'a, Chain<L, W>, M>,
    entry: &'s mut Entry<W>,
    passage: &'s Passage,
    sum: &'s mut Sum<'p>,
    stage: &'s Stage<L>,
}

/// The metadata of a packet that isn't ordinary.
#[inline(never)]
fn rare_meta<N: NetworkFunction>(nf: &N, headers: &Headers) -> Option<N::Meta> {
    nf.meta(headers, &[])
}

/// The verdict on a packet without metadata.
#[inline(never)]
fn verdict_without_meta<N: NetworkFunction>(nf: &N, seen: Seen<'_>) -> Verdict {
    match seen {
        Seen::Ordinary(ordinary) => ordinary.look(|headers| nf.other(headers)),
        Seen::Other(headers) => nf.other(headers),
    }
}

impl<'a, L: Link, M: Memory, const W: usize> VisitWith<'a, M> for Take<'_, '_, 'a, L, M, W> {
    type Answer = Step<(), M>;

    #[inline]
    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<(), M> {
        let Self { cx, entry, passage, sum, stage } = self;
        let meta = match sum.seen() {
            Seen::Ordinary(ordinary) => ordinary.look(
                #[inline(always)]
                |headers| nf.meta(headers, &[]),
            ),
            Seen::Other(Headers { fragment: Fragment::Later, .. }) if stage.drops_fragments => {
                sum.add(&Verdict::Drop(Reason::FRAGMENT), stage);
                return Ok(());
            }
            Seen::Other(headers) => rare_meta(nf, headers),
        };
        // Here and below matched by reference: a move would copy the value.
        let Some(meta) = &meta else {
            let verdict = verdict_without_meta(nf, sum.seen());
            sum.add(&verdict, stage);
            return Ok(());
        };
        match stage.place {
            Place::Nowhere => cx.part(shared, stage.first_counter, |cx| {
                match nf.open(cx, meta)? {
                    Opened::Refused(verdict) => sum.add(&verdict, stage),
                    Opened::Flow(mut flow) => match nf.packet(cx, &mut flow, meta) {
                        Ok(ref verdict) => sum.add(verdict, stage),
                        Err(conflict) => return Err(conflict),
                    },
                }
                Ok(())
            }),
            Place::Apart { table, found_at, .. } => {
                let apart = &cx.shared.apart[table];
                let mut nowhere = 0;
                let found = match found_at {
                    0 => &mut nowhere,
                    at => &mut entry.0[at + usize::from(passage.is_reversed)],
                };
                cx.part(shared, stage.first_counter, |cx| {
                    apart.reclaim(nf, cx)?;
                    apart.step(nf, cx, &meta.key(), meta, found, |verdict| sum.add(verdict, stage))
                })
            }
            Place::Entry { bit, at, words, is_directed } => {
                let tuple = meta.key().to_tuple().unwrap_or(passage.key);
                let second = usize::from(is_directed && !tuple.symmetric().1);
                debug_assert_eq!(
                    if is_directed { tuple.symmetric().0 } else { tuple },
                    passage.key,
                    "{} has another key than the functions with which it shares entries",
                    N::DESCRIPTION.name
                );
                let (bit, at) = (1 << (bit + second as u32), at + second * words);
                let (open, flows) = entry.0.split_at_mut(1);
                let place = InEntry { open: &mut open[0], bit, slot: &mut flows[at - 1..][..words] };
                let mut is_assured = false;
                cx.part(shared, stage.first_counter, |cx| {
                    place.step(nf, cx, meta, &mut is_assured, |verdict| sum.add(verdict, stage))
                })?;
                if is_assured {
                    cx.assure();
                }
                Ok(())
            }
        }
    }
}

/// A function's place for a flow in an entry.
struct InEntry<'s> {
    /// The entry's places that are in use.
    open: &'s mut u64,
    /// This place.
    bit: u64,
    /// The deadline and the flow.
    slot: &'s mut [u64],
}

impl InEntry<'_> {
    /// Takes the step of a packet, as engines do. Sets `is_assured` if the function protects the flow from eviction.
    #[inline(always)]
    fn step<N: NetworkFunction, M: Memory>(
        self,
        nf: &N,
        cx: &mut Context<'_, N, M>,
        meta: &N::Meta,
        is_assured: &mut bool,
        decided: impl FnOnce(&Verdict),
    ) -> Step<(), M> {
        let before = Nanos(self.slot[0]);
        if *self.open & self.bit != 0
            && before > cx.now()
            && let Some(mut flow) = N::Flow::read_words(&self.slot[1..])
        {
            match nf.packet(cx, &mut flow, meta) {
                Ok(ref verdict) => decided(verdict),
                Err(conflict) => return Err(conflict),
            }
            let Effects { deadline, close, assured } = cx.effects();
            if close {
                return self.end(nf, cx, &flow);
            }
            self.slot[0] = deadline.unwrap_or(before).0;
            flow.write_words(&mut self.slot[1..]);
            *is_assured = assured;
            return Ok(());
        }
        let verdict = self.open(nf, cx, meta, is_assured)?;
        decided(&verdict);
        Ok(())
    }

    /// Takes the step of a packet without a flow that is alive.
    #[inline(never)]
    fn open<N: NetworkFunction, M: Memory>(
        self,
        nf: &N,
        cx: &mut Context<'_, N, M>,
        meta: &N::Meta,
        is_assured: &mut bool,
    ) -> Step<Verdict, M> {
        if *self.open & self.bit != 0
            && let Some(lapsed) = N::Flow::read_words(&self.slot[1..])
        {
            nf.expire(cx, &lapsed)?;
            cx.next();
        }
        *self.open &= !self.bit;
        let mut flow = match nf.open(cx, meta)? {
            Opened::Refused(verdict) => return Ok(verdict),
            Opened::Flow(flow) => flow,
        };
        let opened = cx.next();
        let verdict = nf.packet(cx, &mut flow, meta)?;
        let Effects { deadline, close, assured } = cx.effects();
        if close {
            self.end(nf, cx, &flow)?;
        } else {
            self.slot[0] = deadline.or(opened.deadline).unwrap_or(Nanos::NEVER).0;
            flow.write_words(&mut self.slot[1..]);
            *self.open |= self.bit;
            *is_assured = opened.assured | assured;
        }
        Ok(verdict)
    }

    /// Ends the flow with this packet.
    #[inline(never)]
    fn end<N: NetworkFunction, M: Memory>(self, nf: &N, cx: &mut Context<'_, N, M>, flow: &N::Flow) -> Step<(), M> {
        cx.next();
        nf.expire(cx, flow)?;
        cx.next();
        *self.open &= !self.bit;
        Ok(())
    }
}

/// The places of a function in an entry that are in use: the first word of each.
fn open_slots<const W: usize>(entry: &Entry<W>, place: Place) -> impl Iterator<Item = usize> {
    let open = entry.0[0];
    place.slots().filter(move |slot| open & slot.bit != 0).map(|slot| slot.at)
}

/// Ends a function's flows in an entry.
pub(super) struct Expire<'s, 'a, L: Link, M: Memory, const W: usize> {
    pub(super) cx: &'s mut Context<'a, Chain<L, W>, M>,
    pub(super) entry: &'s Entry<W>,
    pub(super) stage: &'s Stage<L>,
}

impl<'a, L: Link, M: Memory, const W: usize> VisitWith<'a, M> for Expire<'_, 'a, L, M, W> {
    type Answer = Step<(), M>;

    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<(), M> {
        let Self { cx, entry, stage } = self;
        for at in open_slots(entry, stage.place) {
            if let Some(flow) = N::Flow::read_words(&entry.0[at + 1..][..words_of::<N>()]) {
                cx.part(shared, stage.first_counter, |cx| nf.expire(cx, &flow))?;
            }
        }
        Ok(())
    }
}

/// Prefetches what a function reads of shared state.
struct LookAhead<'s, M: Memory, const W: usize> {
    apart: Option<&'s super::Apart<M, W>>,
    headers: &'s OrdinaryHeaders,
    is_second: bool,
}

impl<'a, M: Memory, const W: usize> VisitWith<'a, M> for LookAhead<'_, M, W> {
    type Answer = ();

    #[inline]
    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) {
        let meta = self.headers.look(
            #[inline(always)]
            |headers| nf.meta(headers, &[]),
        );
        let Some(meta) = &meta else { return };
        match (self.apart, self.is_second) {
            (Some(apart), false) => apart.prefetch(&meta.key()),
            (Some(apart), true) => apart.prefetch_flow(&meta.key()),
            (None, false) => N::Speed::prefetch(nf, shared, meta),
            (None, true) => N::Speed::prefetch_entry(nf, shared, meta),
        }
    }
}

/// Adds a function's shared state to a fingerprint.
pub(super) struct Digest<'s, 'a, M: Memory> {
    pub(super) tx: &'s mut M::Tx<'a>,
    pub(super) fingerprint: &'s mut Fingerprint,
}

impl<'a, M: Memory> VisitWith<'a, M> for Digest<'_, 'a, M> {
    type Answer = Step<(), M>;

    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<(), M> {
        nf.fingerprint(shared, self.tx, self.fingerprint)
    }
}

/// Keeps a function's shared state.
pub(super) struct KeepShared<'s, 'a, 'w, M: Memory> {
    pub(super) tx: &'s mut M::Tx<'a>,
    pub(super) kept: &'s mut Kept<'w>,
}

impl<'a, M: Memory> VisitWith<'a, M> for KeepShared<'_, 'a, '_, M> {
    type Answer = Step<(), M>;

    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<(), M> {
        if nf.description().sharing.is_any() { nf.keep(shared, self.tx, self.kept) } else { Ok(()) }
    }
}

/// The words of what a function has inherited.
pub(super) struct Inherited;

impl Visit for Inherited {
    type Answer = Vec<u64>;

    fn function<N: NetworkFunction>(self, nf: &N) -> Vec<u64> {
        nf.inherited()
    }
}

/// Counts a function's flows in an entry that are alive.
pub(super) struct Alive<'s, const W: usize> {
    pub(super) entry: &'s Entry<W>,
    pub(super) place: Place,
    pub(super) now: Nanos,
}

impl<const W: usize> Visit for Alive<'_, W> {
    type Answer = u64;

    fn function<N: NetworkFunction>(self, _: &N) -> u64 {
        let Self { entry, place, now } = self;
        open_slots(entry, place).filter(|at| Nanos(entry.0[*at]) > now).count() as u64
    }
}

/// Shows a function's flows in an entry.
pub(super) struct Shown<'s, const W: usize> {
    pub(super) entry: &'s Entry<W>,
    pub(super) place: Place,
}

impl<const W: usize> Visit for Shown<'_, W> {
    type Answer = Vec<String>;

    fn function<N: NetworkFunction>(self, nf: &N) -> Vec<String> {
        let words = words_of::<N>();
        let flow = |at: usize| N::Flow::read_words(&self.entry.0[at + 1..][..words]).map(|flow| nf.shown(&flow));
        open_slots(self.entry, self.place).filter_map(flow).collect()
    }
}

/// The ports that a function's configuration names.
pub(super) struct PortsOf;

impl Visit for PortsOf {
    type Answer = Vec<u16>;

    fn function<N: NetworkFunction>(self, nf: &N) -> Vec<u16> {
        nf.ports()
    }
}
