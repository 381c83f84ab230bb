//! A packet's way through a chain.

use alloc::string::String;
use alloc::vec::Vec;

use memory::Memory;
use packet::{FlowKey, Fragment, Headers, Nanos, Rewrite};

use super::apart::words_of;
use super::{COMMON, Chain, Entry, Link, Passage, Place, Stage, Visit, VisitWith};
use crate::context::{Context, Effects};
use crate::function::{Flow, Meta, NetworkFunction, Opened, Step};
use crate::report::Fingerprint;
use crate::speed::Speed;
use crate::verdict::{PortId, Reason, Verdict};

impl<L: Link, const W: usize> Chain<L, W> {
    /// Lets the functions take their steps, one behind another, until one drops or answers the packet. Sets the entry's deadline.
    pub(super) fn walk<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        entry: &mut Entry<W>,
        meta: &Passage,
    ) -> Step<Verdict, M> {
        let shared = cx.shared;
        for (apart, number) in shared.apart.iter().zip(&self.apart) {
            let stage = &self.stages[*number];
            stage.link.visit_with(&shared.parts[*number], Reclaim { cx: &mut *cx, apart, stage })?;
        }
        // In time for their steps.
        for number in &self.apart {
            if let Place::Apart { table, found_at: at @ 1.., .. } = self.stages[*number].place {
                shared.apart[table].prefetch_found(entry.0[at + usize::from(meta.is_reversed)]);
            }
        }
        let mut sum = Sum::default();
        let mut end = None;
        for (number, stage) in self.order(meta.headers.interface) {
            let headers = sum.seen.as_ref().unwrap_or(&meta.headers);
            let step = Take { cx: &mut *cx, entry: &mut *entry, meta, headers, stage };
            match stage.link.visit_with(&shared.parts[number], step)? {
                Verdict::Forward(port) => sum.leave_by(port),
                Verdict::Rewrite { port, rewrite } => {
                    sum.leave_by(port);
                    sum.rewrite(&rewrite, &meta.headers);
                }
                Verdict::Copy { port, copy, src, dst, macs } => {
                    sum.leave_by(port);
                    sum.rewrite(&Rewrite { src, dst, macs, ..Rewrite::NONE }, &meta.headers);
                    sum.copy = Some(copy);
                }
                Verdict::Drop(reason) => {
                    end = Some(Verdict::Drop(stage.reason(reason)));
                    break;
                }
                verdict @ (Verdict::Reply(_) | Verdict::Transform { .. }) => {
                    end = Some(verdict);
                    break;
                }
            }
        }
        if let Some(deadline) = self.deadline(entry) {
            let idle = Nanos(deadline.0.saturating_sub(cx.now().0));
            cx.expire_after(idle);
        }
        Ok(end.unwrap_or_else(|| sum.verdict()))
    }

    /// Prefetches what the functions read first of shared state, or what that leads to. A function that sees other addresses than those with
    /// which the packet came can't tell yet.
    #[inline]
    pub(super) fn look_ahead<M: Memory>(&self, shared: &super::Linked<L, W, M>, meta: &Passage, is_second: bool) {
        for (stage, part) in self.stages.iter().zip(&shared.parts) {
            let apart = match stage.place {
                Place::Nowhere => None,
                Place::Apart { table, .. } => Some(&shared.apart[table]),
                Place::Entry { .. } => continue,
            };
            if stage.sees_as_sent {
                stage.link.visit_with(part, LookAhead { apart, headers: &meta.headers, is_second });
            }
        }
    }

    /// When the last flow of an entry expires; `None` if it has none.
    #[inline]
    fn deadline(&self, entry: &Entry<W>) -> Option<Nanos> {
        let slots = self.stages.iter().flat_map(|stage| open_slots(entry, stage.place));
        slots.map(|at| Nanos(entry.0[at])).max()
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
#[derive(Default)]
struct Sum {
    port: Option<PortId>,
    copy: Option<PortId>,
    rewrite: Option<Rewrite>,
    /// The packet's headers as they are now, if they were rewritten.
    seen: Option<Headers>,
}

impl Sum {
    /// A function sends the packet out by a port of its own choice, or across, as it would have gone.
    #[inline]
    fn leave_by(&mut self, port: PortId) {
        if port != PortId::ACROSS {
            self.port = Some(port);
        }
    }

    fn rewrite(&mut self, rewrite: &Rewrite, first: &Headers) {
        self.seen = Some(rewrite.seen_in(self.seen.as_ref().unwrap_or(first)));
        self.rewrite = Some(match &self.rewrite {
            Some(before) => before.then(rewrite, first),
            None => *rewrite,
        });
    }

    #[inline]
    fn verdict(self) -> Verdict {
        let port = self.port.unwrap_or(PortId::ACROSS);
        match (self.rewrite, self.copy) {
            (None, _) => Verdict::Forward(port),
            (Some(Rewrite { src, dst, macs, .. }), Some(copy)) => Verdict::Copy { port, copy, src, dst, macs },
            (Some(rewrite), None) => Verdict::Rewrite { port, rewrite },
        }
    }
}

/// Takes one function's step.
struct Take<'s, 'a, L: Link, M: Memory, const W: usize> {
    cx: &'s mut Context<'a, Chain<L, W>, M>,
    entry: &'s mut Entry<W>,
    meta: &'s Passage,
    /// The packet as the function sees it.
    headers: &'s Headers,
    stage: &'s Stage<L>,
}

impl<'a, L: Link, M: Memory, const W: usize> VisitWith<'a, M> for Take<'_, 'a, L, M, W> {
    type Answer = Step<Verdict, M>;

    #[inline]
    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<Verdict, M> {
        let Self { cx, entry, meta: passage, headers, stage } = self;
        if stage.drops_fragments && headers.fragment == Fragment::Later {
            return Ok(Verdict::Drop(Reason::FRAGMENT));
        }
        let Some(meta) = nf.meta(headers, &[]) else { return Ok(nf.other(headers)) };
        match stage.place {
            Place::Nowhere => cx.part(shared, stage.first_counter, |cx| match nf.open(cx, &meta)? {
                Opened::Refused(verdict) => Ok(verdict),
                Opened::Flow(mut flow) => nf.packet(cx, &mut flow, &meta),
            }),
            Place::Apart { table, found_at, .. } => {
                let apart = &cx.shared.apart[table];
                let mut nowhere = 0;
                let found = match found_at {
                    0 => &mut nowhere,
                    at => &mut entry.0[at + usize::from(passage.is_reversed)],
                };
                cx.part(shared, stage.first_counter, |cx| apart.step(nf, cx, &meta.key(), &meta, found))
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
                let is_open = entry.0[0] & bit != 0;
                let slot = &mut entry.0[at..at + words];
                let (taken, assured) = cx.part(shared, stage.first_counter, |cx| {
                    let mut place = InEntry { slot, is_open, assured: false };
                    let verdict = place.step(nf, cx, &meta);
                    (verdict.map(|verdict| (verdict, place.is_open)), place.assured)
                });
                let (verdict, is_open) = taken?;
                entry.0[0] = entry.0[0] & !bit | if is_open { bit } else { 0 };
                if assured {
                    cx.assure();
                }
                Ok(verdict)
            }
        }
    }
}

/// A function's flow in an entry.
struct InEntry<'s> {
    /// The deadline and the flow.
    slot: &'s mut [u64],
    /// True if there is a flow.
    is_open: bool,
    /// True if the function protects it from eviction.
    assured: bool,
}

impl InEntry<'_> {
    /// Takes the step of a packet, as engines do.
    #[inline]
    fn step<N: NetworkFunction, M: Memory>(
        &mut self,
        nf: &N,
        cx: &mut Context<'_, N, M>,
        meta: &N::Meta,
    ) -> Step<Verdict, M> {
        let before = Nanos(self.slot[0]);
        let known = if self.is_open { N::Flow::read_words(&self.slot[1..]) } else { None };
        let known = match known {
            Some(lapsed) if before <= cx.now() => {
                nf.expire(cx, &lapsed)?;
                cx.next();
                None
            }
            known => known,
        };
        self.is_open = false;
        let (mut flow, opened) = match known {
            Some(flow) => (flow, Effects { deadline: Some(before), ..Effects::default() }),
            None => match nf.open(cx, meta)? {
                Opened::Refused(verdict) => return Ok(verdict),
                Opened::Flow(flow) => (flow, cx.next()),
            },
        };
        let verdict = nf.packet(cx, &mut flow, meta)?;
        let effects = cx.next();
        if effects.close {
            nf.expire(cx, &flow)?;
            cx.next();
        } else {
            self.slot[0] = effects.deadline.or(opened.deadline).unwrap_or(Nanos::NEVER).0;
            flow.write_words(&mut self.slot[1..]);
            self.is_open = true;
            self.assured = opened.assured | effects.assured;
        }
        Ok(verdict)
    }
}

/// The places of a function in an entry that are in use: the first word of each.
#[inline]
fn open_slots<const W: usize>(entry: &Entry<W>, place: Place) -> impl Iterator<Item = usize> {
    let (places, bit, at, words) = match place {
        Place::Entry { bit, at, words, is_directed } => (if is_directed { 2 } else { 1 }, bit, at, words),
        Place::Nowhere | Place::Apart { .. } => (0, 0, 0, 0),
    };
    let open = entry.0[0];
    (0..places).filter(move |number| open & 1 << (bit + *number as u32) != 0).map(move |number| at + number * words)
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

/// Ends some flows that a function keeps apart.
struct Reclaim<'s, 'a, L: Link, M: Memory, const W: usize> {
    cx: &'s mut Context<'a, Chain<L, W>, M>,
    apart: &'a super::Apart<M, W>,
    stage: &'s Stage<L>,
}

impl<'a, L: Link, M: Memory, const W: usize> VisitWith<'a, M> for Reclaim<'_, 'a, L, M, W> {
    type Answer = Step<(), M>;

    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Step<(), M> {
        let Self { cx, apart, stage } = self;
        cx.part(shared, stage.first_counter, |cx| apart.reclaim(nf, cx))
    }
}

/// Prefetches what a function reads of shared state.
struct LookAhead<'s, M: Memory, const W: usize> {
    apart: Option<&'s super::Apart<M, W>>,
    headers: &'s Headers,
    is_second: bool,
}

impl<'a, M: Memory, const W: usize> VisitWith<'a, M> for LookAhead<'_, M, W> {
    type Answer = ();

    #[inline]
    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) {
        let Some(meta) = nf.meta(self.headers, &[]) else { return };
        match (self.apart, self.is_second) {
            (Some(apart), false) => apart.prefetch(&meta.key()),
            (Some(apart), true) => apart.prefetch_flow(&meta.key()),
            (None, false) => N::Speed::prefetch(nf, shared, &meta),
            (None, true) => N::Speed::prefetch_entry(nf, shared, &meta),
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
