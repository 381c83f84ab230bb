//! Network address and port translation for IPv4: endpoint-independent mapping after RFC 4787 (UDP), RFC 5382 (TCP) and
//! RFC 5508 (ICMP). `docs/nat.md` says what the function does and why.
//!
//! All state is shared, because several packet sets use one mapping.

mod config;
mod fixed;
mod keys;
mod meta;
mod ports;
mod state;
mod tcp;
mod translate;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use memory::Memory;
use nf::{
    Cell, Context, Description, Fates, Fingerprint, FlowList, Kept, NetworkFunction, Opened, PacketSet, Reason, Report,
    Sharing, Sizing, Speed, Step, Verdict, grouped,
};
use packet::{Endpoint, Fragment, Headers, Icmp, Ipv4, Nanos, Network, Transport, protocol};

use crate::list::Catalogued;

use self::config::is_unicast;
use self::keys::{KEYS, RECIPES};
use self::meta::{Content, Translation, is_icmp_error};
use self::state::{Endpoint4, Listed, Use};

pub use self::config::Config;
pub use self::meta::Meta;
pub use self::state::State;

/// The `nat` function.
#[derive(Clone, Debug)]
pub struct Nat {
    config: Config,
    inside: Box<[(u32, u32)]>,
    /// All external addresses, the former ones too, sorted.
    external: Box<[u32]>,
    /// Addresses that configurations before this one had in `external`, sorted. Only what is mapped to them already is translated.
    former: Box<[u32]>,
    /// True if a configuration before this one had other fixed mappings, so that sessions may contradict those of now.
    sessions_first: bool,
    /// True if there was a configuration before this one.
    is_successor: bool,
}

impl Nat {
    /// The function's own drop reasons, in the order of the description.
    const POOL_EXHAUSTED: Reason = Reason::own(0);
    const MAPPINGS_FULL: Reason = Reason::own(1);
    const SESSIONS_FULL: Reason = Reason::own(2);
    const NO_MAPPING: Reason = Reason::own(3);
    const FILTERED: Reason = Reason::own(4);
    const TCP_NOT_SYN: Reason = Reason::own(5);
    const ICMP_NO_FLOW: Reason = Reason::own(6);
    const ICMP_UNSUPPORTED: Reason = Reason::own(7);
    const HAIRPIN_REFUSED: Reason = Reason::own(8);
    const UNSUPPORTED_PROTOCOL: Reason = Reason::own(9);
    const PRIVATE_DESTINATION: Reason = Reason::own(10);

    /// The most former external addresses.
    const FORMER_MAX: usize = 1024;

    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::after(config, Box::new([]), false)
    }

    /// The same, in place of others that have left something.
    fn after(config: Config, former: Box<[u32]>, sessions_first: bool) -> Self {
        let mut external: Vec<u32> = config.known_outside().iter().chain(&former).copied().collect();
        external.sort_unstable();
        Self { inside: config.inside(), external: external.into(), former, sessions_first, is_successor: false, config }
    }

    /// The addresses that were external and are not any more, once `new` has taken over.
    fn former_after(&self, new: &Config) -> Box<[u32]> {
        let known = new.known_outside();
        let mut former: Vec<u32> = self.config.external().iter().chain(&self.former).copied().collect();
        let is_inside = |address: u32| new.inside().iter().any(|&(bits, mask)| address & mask == bits);
        former.retain(|&address| known.binary_search(&address).is_err() && !is_inside(address));
        former.sort_unstable();
        former.into()
    }

    /// Returns how a packet between these addresses is translated, or the verdict if it is not translated.
    #[inline]
    fn translation_between(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Result<Translation, Verdict> {
        let (source, destination) = (source.to_bits(), destination.to_bits());
        match (self.is_inside(source), self.is_external(destination)) {
            (false, true) => Ok(Translation::Inward),
            (true, true) => Ok(Translation::Hairpin),
            (true, false) if self.is_inside(destination) || !is_unicast(destination) => Err(Verdict::FORWARD),
            (true, false) => Ok(Translation::Outward),
            // No outside host can know an inside address: a sender that uses one tries to bypass the filter.
            (false, false) if self.is_inside(destination) => Err(Verdict::Drop(Self::PRIVATE_DESTINATION)),
            (false, false) => Err(Verdict::FORWARD),
        }
    }

    /// Returns how an ICMP error is translated, or the verdict if it is not translated. The quoted packet decides, not the sender's
    /// address: routers outside may have inside addresses, and routers inside may have others.
    #[inline(never)]
    fn translation_of_error(
        &self,
        ip: &Ipv4,
        source: Endpoint4,
        destination: Endpoint4,
    ) -> Result<Translation, Verdict> {
        let is_external = self.is_external(source.address);
        match (self.is_inside(source.address), self.is_inside(destination.address)) {
            (false, true) if is_external => Ok(Translation::Hairpin),
            (false, false) if is_external => Ok(Translation::Inward),
            (false, true) => Ok(Translation::Outward),
            // The quoted packet has not been translated: it was on its way out, or stays inside.
            (true, _) => match self.is_inside(ip.src.to_bits()) && self.is_inside(ip.dst.to_bits()) {
                true => Err(Verdict::FORWARD),
                false => Ok(Translation::Within),
            },
            // The quoted packet went to an external address and has not come in yet.
            (false, false) if self.is_external(destination.address) => Err(Verdict::FORWARD),
            (false, false) => self.translation_between(ip.src, ip.dst),
        }
    }

    /// Returns how a packet is translated, or the verdict if it is not translated.
    #[inline(always)]
    fn translation_of(&self, ip: &Ipv4, content: &Content) -> Result<Translation, Verdict> {
        match *content {
            Content::Error { source, destination, .. } => self.translation_of_error(ip, source, destination),
            Content::Segment(_) | Content::Datagram | Content::Query { .. } => self.translation_between(ip.src, ip.dst),
        }
    }

    /// Returns the verdict for an ICMP error that quotes no flow. It is dropped if it might show an inside address.
    fn unnamed_error(&self, ip: &Ipv4, icmp: &Icmp) -> Verdict {
        match Content::of_icmp(icmp) {
            Some(content) => self.translation_of(ip, &content).err(),
            None => {
                let quoted = icmp.embedded.map(|embedded| (embedded.tuple.source(), embedded.tuple.destination()));
                let is_ours = |end: Endpoint| match end.address {
                    IpAddr::V4(address) => self.is_inside(address.to_bits()) || self.is_external(address.to_bits()),
                    IpAddr::V6(_) => false,
                };
                match quoted {
                    Some((source, destination)) if !is_ours(source) && !is_ours(destination) => {
                        self.translation_between(ip.src, ip.dst).err()
                    }
                    Some(_) if self.is_inside(ip.src.to_bits()) && self.is_inside(ip.dst.to_bits()) => {
                        Some(Verdict::FORWARD)
                    }
                    Some(_) | None => None,
                }
            }
        }
        .unwrap_or(Verdict::Drop(Self::ICMP_NO_FLOW))
    }

    /// Builds the report that lists at most `most` mappings: those of the configuration, then those in use.
    fn list<'a, M: Memory>(&self, state: &'a State<M>, tx: &mut M::Tx<'a>, now: Nanos, most: usize) -> Step<Report, M> {
        let mut rows: Vec<Vec<Cell>> = self.config.fixed().each().map(fixed_row).collect();
        let fixed = rows.len();
        rows.truncate(most);
        let (listed, in_use) = state.listed(tx, now, most - rows.len())?;
        let shown = |end: Endpoint4| Endpoint::from(end).to_string();
        let row = |one: &Listed| {
            vec![
                one.protocol.into(),
                shown(one.internal).into(),
                shown(one.external).into(),
                one.sessions.into(),
                Cell::Number(one.expires_in.0 / 1_000_000_000),
            ]
        };
        rows.extend(listed.iter().map(row));
        let (shown, all) = (grouped(rows.len() as u64), grouped((fixed + in_use) as u64));
        let title = match rows.len() < fixed + in_use {
            true => format!("{shown} of {all} mappings; `--set list=` shows more"),
            false => format!("mappings: {all}"),
        };
        Ok(Report { title, columns: vec!["protocol", "inside", "external", "sessions", "seconds left"], rows })
    }

    #[inline]
    fn is_inside(&self, address: u32) -> bool {
        self.inside.iter().any(|&(bits, mask)| address & mask == bits)
    }

    #[inline]
    fn is_external(&self, address: u32) -> bool {
        // Most addresses are below or above all of them.
        match *self.external {
            [only] => only == address,
            [first, .., last] => (first..=last).contains(&address) && self.external.binary_search(&address).is_ok(),
            [] => false,
        }
    }
}

impl Catalogued for Nat {
    type Config = Config;

    const CRAMPED: &'static str = r#"
ports = "1024-1055"
mappings = 8
sessions = 12
"#;
    const SMALL: &'static str = r#"
mappings = 2048
sessions = 2048
ports = "1024-9215"
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for Nat {
    type Meta = Meta;
    type Flow = ();
    type Shared<M: Memory> = State<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "nat",
        summary: "translates inside addresses and ports to external ones, with endpoint-independent mapping (RFC 4787, 5382, 5508)",
        state: "none of its own",
        sharing: Sharing::Shares("the pools of external ports, and the maps of mappings and sessions"),
        keys: KEYS,
        drop_reasons: &[
            "pool-exhausted",
            "mapping-table-full",
            "session-table-full",
            "no-mapping",
            "filtered",
            "tcp-not-syn",
            "icmp-no-flow",
            "icmp-unsupported",
            "hairpin-refused",
            "unsupported-protocol",
            "private-destination",
        ],
        recipes: RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::FiveTuple
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> State<M> {
        State::new(&self.config, self.is_successor, memory)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a State<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, now, tx) = (cx.shared, cx.now(), &mut cx.tx);
        let most = self.config.settings().list.get() as usize;
        if most > 0 {
            return self.list(shared, tx, now, most).map(Some);
        }
        let row = |used: Use| {
            let Use { address, protocol, mappings, sessions } = used;
            vec![address.to_string().into(), protocol.into(), mappings.into(), sessions.into()]
        };
        Ok(Some(Report {
            title: "external addresses in use".into(),
            columns: vec!["external", "protocol", "mappings", "sessions"],
            rows: shared.in_use(tx, now)?.into_iter().map(row).collect(),
        }))
    }

    /// Explains a run that dropped most packets, probably because the capture was made elsewhere.
    fn remark(&self, fates: &Fates<'_>) -> Option<String> {
        let [to_inside, unmapped] =
            [Self::PRIVATE_DESTINATION, Self::NO_MAPPING].map(|reason| fates.dropped_for(reason));
        let (count, what) = if to_inside > fates.received / 2 {
            (
                to_inside,
                "went from outside to inside addresses, which no outside host can know: in a capture from the inside of a \
                    translator, answers are translated back already",
            )
        } else if unmapped > fates.received / 2 {
            (
                unmapped,
                "came from outside to external endpoints without a mapping: check `external` and `inside`, the addresses of \
                       the translator and of the inside hosts",
            )
        } else {
            return None;
        };
        Some(format!("{} of {} packets {what}", grouped(count), grouped(fates.received)))
    }

    fn succeed(self, old: &Self) -> Result<Self, String> {
        let (new, before) = (&self.config, &old.config);
        if new.settings().filtering != before.settings().filtering {
            return Err(
                "sessions are found by what `filtering` looks at, so it can't change while there are any: begin anew"
                    .into(),
            );
        }
        if (new.mappings(), new.sessions()) != (before.mappings(), before.sessions()) {
            return Err("the tables of mappings and sessions keep their sizes while packets flow: `mappings`, `sessions` and what \
                 `pool.overprovision` adds to them can't change"
                .into());
        }
        let former = old.former_after(new);
        if former.len() > Self::FORMER_MAX {
            return Err(format!(
                "since it began the run has had {} external addresses that are not in `external` any more, and keeps {} apart: \
                 begin anew",
                former.len(),
                Self::FORMER_MAX
            ));
        }
        let sessions_first = old.sessions_first || new.fixed() != before.fixed();
        Ok(Self { is_successor: true, ..Self::after(self.config, former, sessions_first) })
    }

    fn adopt<M: Memory>(&self, _: &Self, shared: &mut State<M>, memory: &M) {
        shared.adopt(&self.config, memory);
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a State<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        shared.keep(tx, kept)
    }

    /// Whether sessions go first, then the former addresses.
    fn inherited(&self) -> Vec<u64> {
        let former = self.former.iter().map(|address| u64::from(*address));
        let first = [u64::from(self.sessions_first)].into_iter();
        if self.is_successor { first.chain(former).collect() } else { Vec::new() }
    }

    fn inherit(&self, words: &[u64]) -> Option<Self> {
        let (first, former) = words.split_first()?;
        let former: Option<Box<[u32]>> = former.iter().map(|word| u32::try_from(*word).ok()).collect();
        let former = former.filter(|former| former.is_sorted() && former.len() <= Self::FORMER_MAX)?;
        Some(Self { is_successor: true, ..Self::after(self.config.clone(), former, *first != 0) })
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Meta> {
        let Network::V4(ip) = headers.network else { return None };
        let (source, destination, content) = match headers.transport {
            Transport::Tcp(tcp) => (tcp.src_port, tcp.dst_port, Content::Segment(tcp.flags)),
            Transport::Udp { src_port, dst_port } => (src_port, dst_port, Content::Datagram),
            Transport::Icmp(icmp) if headers.protocol == protocol::ICMP => {
                let port = icmp.identifier.unwrap_or(0);
                (port, port, Content::of_icmp(&icmp)?)
            }
            Transport::Icmp(_) | Transport::Sctp { .. } | Transport::None => return None,
        };
        let translation = self.translation_of(&ip, &content).ok()?;
        let source = Endpoint4::new(ip.src, source);
        let destination = Endpoint4::new(ip.dst, destination);
        Some(Meta { source, destination, translation, content })
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        let ip = match headers.network {
            Network::V4(ip) => ip,
            // The frame may contain an inside address.
            Network::Unreadable => return Verdict::Drop(Reason::UNREADABLE),
            Network::V6(_) | Network::Arp | Network::None => return Verdict::FORWARD,
        };
        if let Transport::Icmp(icmp) = headers.transport
            && is_icmp_error(icmp.kind)
        {
            return self.unnamed_error(&ip, &icmp);
        }
        match self.translation_between(ip.src, ip.dst) {
            Err(verdict) => verdict,
            Ok(_) if headers.fragment == Fragment::Later => Verdict::Drop(Reason::FRAGMENT),
            Ok(_) => Verdict::Drop(match headers.transport {
                Transport::Icmp(_) => Self::ICMP_UNSUPPORTED,
                _ => Self::UNSUPPORTED_PROTOCOL,
            }),
        }
    }

    #[inline(always)]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Meta) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    #[inline(always)]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), meta: &Meta) -> Step<Verdict, M> {
        let now = cx.now();
        cx.shared.reclaim(&mut cx.tx, now)?;
        self.translate(cx.shared, &mut cx.tx, now, meta)
    }
}

impl Speed<Self> for Nat {
    #[inline(always)]
    fn prefetch<M: Memory>(nf: &Self, shared: &State<M>, meta: &Meta) {
        if let Some(wanted) = nf.look_ahead(meta) {
            shared.prefetch(wanted);
        }
    }

    #[inline(always)]
    fn prefetch_entry<M: Memory>(nf: &Self, shared: &State<M>, meta: &Meta) {
        if let Some(wanted) = nf.look_ahead(meta) {
            shared.prefetch_session(wanted);
        }
    }
}

/// Builds the report row of a fixed mapping, which has no sessions and does not expire.
fn fixed_row([protocol, internal, external]: [String; 3]) -> Vec<Cell> {
    vec![protocol.into(), internal.into(), external.into(), "-".into(), "fixed".into()]
}
