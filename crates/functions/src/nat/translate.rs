//! The step of a packet: finds, opens or refuses a session, and returns the rewrite.

use memory::Memory;
use nf::{PortId, Reason, Step, Verdict};
use packet::{Endpoint, Nanos, Rewrite, TcpFlags};

use super::config::Filtering;
use super::state::{Between, Endpoint4, Found, Full, Protocol, State};
use super::tcp::{Phase, Side, opens};
use super::{Content, Meta, Nat, Translation};

/// The result for a packet that may pass, or the drop reason.
type Passage<T> = Result<T, Reason>;

/// The new endpoints of a packet; `None` leaves one unchanged.
#[derive(Clone, Copy)]
struct Ends {
    src: Option<Endpoint4>,
    dst: Option<Endpoint4>,
}

impl Nat {
    /// Returns what the step of an outward or inward packet will look up, for prefetching. Others are rare.
    #[inline(always)]
    pub(super) fn look_ahead(&self, meta: &Meta) -> Option<(Translation, Between)> {
        let protocol = meta.content.protocol();
        let between = match (meta.content, meta.translation) {
            (Content::Error { .. }, _) | (_, Translation::Hairpin | Translation::Within) => return None,
            (_, Translation::Outward) => (meta.source, self.scope(protocol, meta.destination), protocol),
            (_, Translation::Inward) => (self.scope(protocol, meta.source), meta.destination, protocol),
        };
        Some((meta.translation, between))
    }

    // Always inlined, like the path of outward and inward packets: a verdict returned from a call goes through memory. It is built
    // in one place from plain numbers, so that no `IpAddr` is copied.
    #[inline(always)]
    pub(super) fn translate<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
    ) -> Step<Verdict, M> {
        let mut renewed;
        let mut meta = meta;
        if !self.former.is_empty() && self.is_free_of_mappings(state, tx, meta)? {
            match meta.translation {
                Translation::Inward => return Ok(Verdict::FORWARD),
                Translation::Hairpin => {
                    renewed = *meta;
                    renewed.translation = Translation::Outward;
                    meta = &renewed;
                }
                Translation::Outward | Translation::Within => {}
            }
        }
        let passage = match (meta.content, meta.translation) {
            (Content::Error { .. }, _) => self.error(state, tx, now, meta)?,
            (_, Translation::Outward) => {
                let external = self.outward(state, tx, now, meta)?;
                external.map(|external| Ends { src: Some(external), dst: None })
            }
            (_, Translation::Inward) => {
                let internal = self.inward(state, tx, now, meta, meta.source)?;
                internal.map(|internal| Ends { src: None, dst: Some(internal) })
            }
            (_, Translation::Hairpin | Translation::Within) => self.hairpin(state, tx, now, meta)?,
        };
        Ok(match passage {
            Ok(_) if meta.translation == Translation::Within => Verdict::forward(),
            Ok(Ends { src, dst }) => {
                let port = match meta.translation {
                    Translation::Outward | Translation::Inward | Translation::Within => PortId::ACROSS,
                    Translation::Hairpin => PortId::BACK,
                };
                let embedded = matches!(meta.content, Content::Error { .. });
                let [src, dst] = [src, dst].map(|end| end.map(Endpoint::from));
                Verdict::Rewrite { port, rewrite: Rewrite { src, dst, embedded, ..Rewrite::NONE } }
            }
            Err(reason) => Verdict::Drop(reason),
        })
    }

    /// Returns true if a packet goes to an address that was external, and to an endpoint of it that nothing is mapped to.
    #[inline(never)]
    fn is_free_of_mappings<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        meta: &Meta,
    ) -> Step<bool, M> {
        let is_former = self.former.binary_search(&meta.destination.address).is_ok();
        if !is_former || matches!(meta.content, Content::Error { .. }) {
            return Ok(false);
        }
        Ok(state.mapping_to(tx, meta.content.protocol(), meta.destination)?.is_none())
    }

    /// Handles a packet from inside. Returns its external endpoint.
    #[inline(always)]
    fn outward<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
    ) -> Step<Passage<Endpoint4>, M> {
        let protocol = meta.content.protocol();
        let fixed = self.config.fixed().external_of(protocol, meta.source);
        if let (Some(external), false) = (fixed, self.sessions_first) {
            return Ok(Ok(external));
        }
        let between = (meta.source, self.scope(protocol, meta.destination), protocol);
        let found = state.outbound(tx, now, between)?;
        if let Some(found) = found
            && found.alive
        {
            self.use_session(state, tx, now, found, Side::Inside, meta.content)?;
            return Ok(Ok(found.external()));
        }
        if let Some(external) = fixed {
            return Ok(Ok(external));
        }
        match self.opening_from_inside(meta.content) {
            Ok(phase) => self.open(state, tx, now, found, between, phase),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Handles a packet from `remote` to an external endpoint. Returns the inside endpoint.
    #[inline(always)]
    fn inward<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
        remote: Endpoint4,
    ) -> Step<Passage<Endpoint4>, M> {
        let protocol = meta.content.protocol();
        let fixed = self.config.fixed().internal_of(protocol, meta.destination);
        if let (Some(internal), false) = (fixed, self.sessions_first) {
            return Ok(Ok(internal));
        }
        let remote = self.scope(protocol, remote);
        let found = state.inbound(tx, now, (remote, meta.destination, protocol))?;
        match (found, fixed) {
            (Some(found), _) if found.alive => {
                self.use_session(state, tx, now, found, Side::Outside, meta.content)?;
                Ok(Ok(found.internal()))
            }
            (_, Some(internal)) => Ok(Ok(internal)),
            (found, None) => self.unsolicited(state, tx, now, meta, remote, found),
        }
    }

    /// Handles a packet from outside that belongs to no live session. Only a TCP SYN can open one, if filtering permits it.
    #[cold]
    #[inline(never)]
    fn unsolicited<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
        remote: Endpoint4,
        stale: Option<Found>,
    ) -> Step<Passage<Endpoint4>, M> {
        let (protocol, external) = (meta.content.protocol(), meta.destination);
        let mapping = state.mapping_to(tx, protocol, external)?;
        let filtering = self.config.settings().filtering;
        let (internal, flags) = match (mapping, meta.content) {
            (None, _) => return Ok(Err(Self::NO_MAPPING)),
            (Some(internal), Content::Segment(flags)) => (internal, flags),
            // For other protocols a session is the permission. If anyone may send, a missing session means a missing mapping.
            (Some(_), _) if filtering == Filtering::EndpointIndependent => return Ok(Err(Self::NO_MAPPING)),
            (Some(_), _) => return Ok(Err(Self::FILTERED)),
        };
        let permitted = match filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => state.knows(tx, remote, external)?,
            Filtering::AddressAndPortDependent => false,
        };
        if !permitted {
            return Ok(Err(Self::FILTERED));
        }
        if !opens(flags) {
            return Ok(Err(Self::TCP_NOT_SYN));
        }
        let phase = Phase::opened_by(Side::Outside);
        let opened = self.open(state, tx, now, stale, (internal, remote, protocol), phase)?;
        Ok(opened.map(|_| internal))
    }

    /// Handles a packet from inside to an external endpoint: it goes out and comes back in (RFC 4787 REQ-9, "external source IP address
    /// and port"). A mapping that it opened on the way out stays even if the packet isn't let in.
    #[cold]
    #[inline(never)]
    fn hairpin<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
    ) -> Step<Passage<Ends>, M> {
        let is_query = matches!(meta.content, Content::Query { .. });
        let is_from_host = is_query && self.config.fixed().external_of(Protocol::Icmp, meta.source).is_some();
        let is_to_host = is_query && self.config.fixed().internal_of(Protocol::Icmp, meta.destination).is_some();
        // A query has one identifier, which can't belong to both ends: RFC 5508 REQ-7 requires hairpinned queries of basic NAT only. A
        // `static` host accepts any identifier.
        if !self.config.settings().hairpinning || is_query && !is_from_host && !is_to_host {
            return Ok(Err(Self::HAIRPIN_REFUSED));
        }
        let mut external = match self.outward(state, tx, now, meta)? {
            Ok(external) => external,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut seen = *meta;
        if is_to_host {
            seen.destination.port = external.port;
        }
        let internal = self.inward(state, tx, now, &seen, external)?;
        Ok(internal.map(|internal| {
            if is_from_host {
                external.port = internal.port;
            }
            Ends { src: Some(external), dst: Some(internal) }
        }))
    }

    /// Handles an ICMP error about a translated packet: the quoted packet gets its original endpoints, and no session's deadline changes
    /// (RFC 4787 REQ-12, RFC 5382 REQ-10, RFC 5508 REQ-6).
    #[cold]
    #[inline(never)]
    fn error<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        meta: &Meta,
    ) -> Step<Passage<Ends>, M> {
        let Content::Error { source, destination, protocol } = meta.content else {
            return Ok(Err(Self::ICMP_NO_FLOW));
        };
        // An error goes to the sender of the quoted packet.
        if source.address != meta.destination.address {
            return Ok(Err(Self::ICMP_NO_FLOW));
        }
        let mut ends = Ends { src: None, dst: None };
        if meta.translation == Translation::Within {
            let between = (source, self.scope(protocol, destination), protocol);
            let is_known = self.external_of(state, tx, now, between)?.is_some();
            return Ok(if is_known { Ok(ends) } else { Err(Self::PRIVATE_DESTINATION) });
        }
        let mut remote = destination;
        if meta.translation != Translation::Inward {
            let between = (destination, self.scope(protocol, source), protocol);
            // A hairpinned packet went to the other host's external endpoint, seen from the mapping that it left by.
            let Some(external) = self.external_of(state, tx, now, between)? else { return Ok(Err(Self::ICMP_NO_FLOW)) };
            remote = external;
            ends.src = Some(remote);
        }
        if meta.translation != Translation::Outward {
            let between = (self.scope(protocol, remote), source, protocol);
            let fixed = self.config.fixed().internal_of(protocol, source);
            let found = state.inbound(tx, now, between)?.filter(|found| found.alive).map(|found| found.internal());
            ends.dst = if self.sessions_first { found.or(fixed) } else { fixed.or(found) };
            if ends.dst.is_none() {
                return Ok(Err(Self::ICMP_NO_FLOW));
            }
        }
        Ok(Ok(ends))
    }

    /// Returns the external endpoint of what an inside endpoint sends to a remote one, as far as there is one already.
    fn external_of<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        between: Between,
    ) -> Step<Option<Endpoint4>, M> {
        let (internal, _, protocol) = between;
        let fixed = self.config.fixed().external_of(protocol, internal);
        if let (Some(external), false) = (fixed, self.sessions_first) {
            return Ok(Some(external));
        }
        let found = state.outbound(tx, now, between)?.filter(|found| found.alive);
        Ok(found.map(|found| found.external()).or(fixed))
    }

    /// Updates a live session with another packet.
    #[inline(always)]
    fn use_session<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        found: Found,
        side: Side,
        content: Content,
    ) -> Step<(), M> {
        let mut phase = found.phase();
        if let Content::Segment(flags) = content {
            phase = phase.next(side, flags);
        } else if side == Side::Outside && !self.config.settings().inbound_refresh {
            return Ok(());
        }
        state.renew(tx, found, phase, now + self.idle(found.protocol(), phase))
    }

    /// Opens a session in this phase. It replaces an expired session with the same key, if there is one.
    #[cold]
    #[inline(never)]
    fn open<'a, M: Memory>(
        &self,
        state: &'a State<M>,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        stale: Option<Found>,
        between: Between,
        phase: Phase,
    ) -> Step<Passage<Endpoint4>, M> {
        let deadline = now + self.idle(between.2, phase);
        if let Some(found) = stale {
            state.renew(tx, found, phase, deadline)?;
            return Ok(Ok(found.external()));
        }
        Ok(state.open(tx, deadline, between, phase)?.map_err(|full| match full {
            Full::Ports => Self::POOL_EXHAUSTED,
            Full::Mappings => Self::MAPPINGS_FULL,
            Full::Sessions => Self::SESSIONS_FULL,
        }))
    }

    /// Returns the phase of a session that a packet from inside opens, or why it may not.
    fn opening_from_inside(&self, content: Content) -> Passage<Phase> {
        match content {
            Content::Segment(flags) if opens(flags) => Ok(Phase::opened_by(Side::Inside)),
            Content::Segment(flags) => {
                let is_midstream = !flags.contains(TcpFlags::RST) && !flags.contains(TcpFlags::SYN);
                let picked_up = is_midstream && self.config.settings().loose;
                if picked_up { Ok(Phase::picked_up(Side::Inside, flags)) } else { Err(Self::TCP_NOT_SYN) }
            }
            Content::Datagram | Content::Query { is_request: true } => Ok(Phase::NONE),
            Content::Query { is_request: false } => Err(Self::NO_MAPPING),
            Content::Error { .. } => Err(Self::ICMP_NO_FLOW),
        }
    }

    /// Returns the part of a remote endpoint that is in the session's key. For TCP it is all, because each connection has its own state.
    /// For others it is the part that filtering uses. A query's identifier is not its remote host's.
    #[inline(always)]
    fn scope(&self, protocol: Protocol, remote: Endpoint4) -> Endpoint4 {
        match (protocol, self.config.settings().filtering) {
            (Protocol::Tcp, _) | (Protocol::Udp, Filtering::AddressAndPortDependent) => remote,
            (Protocol::Udp | Protocol::Icmp, Filtering::EndpointIndependent) => Endpoint4::ANY,
            (Protocol::Udp, Filtering::AddressDependent)
            | (Protocol::Icmp, Filtering::AddressDependent | Filtering::AddressAndPortDependent) => {
                Endpoint4 { port: 0, ..remote }
            }
        }
    }

    /// Returns the idle timeout of a session.
    #[inline(always)]
    fn idle(&self, protocol: Protocol, phase: Phase) -> Nanos {
        let timeouts = &self.config.settings().timeouts;
        match protocol {
            Protocol::Tcp if phase.is_established() => timeouts.tcp_established.nanos(),
            Protocol::Tcp => timeouts.tcp_transitory.nanos(),
            Protocol::Udp => timeouts.udp.nanos(),
            Protocol::Icmp => timeouts.icmp.nanos(),
        }
    }
}

impl Content {
    /// Returns the protocol of the packet's session.
    #[inline]
    fn protocol(self) -> Protocol {
        match self {
            Self::Segment(_) => Protocol::Tcp,
            Self::Datagram => Protocol::Udp,
            Self::Query { .. } => Protocol::Icmp,
            Self::Error { protocol, .. } => protocol,
        }
    }
}
