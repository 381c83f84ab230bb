//! Learns by listening which hosts exist, which systems they run and which services they offer (after PRADS, an example of NFork's
//! table 6). Behaviour and choices: `docs/asset-monitor.md`.

mod assets;
mod config;
mod sighting;
pub mod systems;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use core::net::IpAddr;

use memory::{Distributed, Memory};
use nf::{
    Cell, Context, Description, Fingerprint, Flow, FlowList, Kept, NetworkFunction, Opened, PacketSet, Plain, Report,
    Sharing, Sizing, Step, Verdict, grouped,
};
use packet::{Headers, Nanos, Transport};

use self::assets::Services;
pub use self::assets::{Asset, Assets};
pub use self::config::Config;
use self::sighting::Look;
pub use self::sighting::Sighting;
use self::systems::{System, Told};
use crate::identify::{self, DatagramState, Protocol, Side, Signatures};
use crate::list::Catalogued;

/// The `asset-monitor` function.
#[derive(Clone, Debug)]
pub struct AssetMonitor {
    config: Config,
    signatures: Arc<Signatures>,
}

/// The state of a session. The key's lower endpoint comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Both hosts as the session last noted them.
    assets: [Option<Asset>; 2],
    /// The side that offers the service.
    server: Option<u8>,
    /// The side that sent first over UDP.
    opener: Option<u8>,
    /// The number of the service's protocol in [`Signatures`], counted from 1; 0 while it is unknown.
    service: u16,
}

impl Flow for Session {
    nf::in_words!();
}

/// Bits of a session's first word: which sides are known as server and opener, and below them the number of the service.
const HAS_SERVER: u64 = 1 << 16;
const SERVER: u64 = 1 << 17;
const HAS_OPENER: u64 = 1 << 18;
const OPENER: u64 = 1 << 19;

packet::words! {
    Session: [9], session => {
        let side = |side: Option<u8>, has: u64, second: u64| match side {
            Some(0) => has,
            Some(_) => has | second,
            None => 0,
        };
        let sides = side(session.server, HAS_SERVER, SERVER) | side(session.opener, HAS_OPENER, OPENER);
        let mut words = [u64::from(session.service) | sides, 0, 0, 0, 0, 0, 0, 0, 0];
        for (asset, words) in session.assets.iter().zip(words[1..].as_chunks_mut::<4>().0) {
            if let Some(asset) = asset {
                let [about, services, first, last] = asset.to_words();
                *words = [about | 1 << 63, services, first, last];
            }
        }
        words
    }, words => {
        let side = |has: u64, second: u64| (words[0] & has != 0).then_some(u8::from(words[0] & second != 0));
        let asset = |at: usize| {
            let words: [u64; 4] = words[at..][..4].try_into().expect("four words");
            (words[0] >> 63 == 1).then(|| Asset::from_words(words))
        };
        Self {
            assets: [asset(1), asset(5)],
            server: side(HAS_SERVER, SERVER),
            opener: side(HAS_OPENER, OPENER),
            service: words[0] as u16,
        }
    };
}

impl Session {
    /// Both hosts, and the side and the number of the service.
    #[must_use]
    pub fn told(&self) -> ([Option<Asset>; 2], Option<(u8, u16)>) {
        (self.assets, self.server.map(|server| (server, self.service)))
    }
}

impl AssetMonitor {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, signatures: Signatures::shared() }
    }

    /// The name of a service by its number, as in [`Session::told`].
    #[must_use]
    pub fn service_name(&self, service: u16) -> &str {
        match service.checked_sub(1).map_or("", |number| self.signatures.name(Protocol(number))) {
            "" => "unknown",
            name => name,
        }
    }

    /// Finds the side that offers the service: it sends a SYN+ACK, or answers a datagram. Returns true if it was found now.
    fn find_server(session: &mut Session, sighting: &Sighting, side: u8) -> bool {
        if session.server.is_some() {
            return false;
        }
        let is_found = match sighting.look() {
            Look::Grants(_) => true,
            Look::Speaks(_) if sighting.is_udp() => session.opener.is_some_and(|opener| opener != side),
            Look::Speaks(_) | Look::Asks(_) | Look::Quiet => false,
        };
        if sighting.is_udp() {
            session.opener.get_or_insert(side);
        }
        if is_found {
            session.server = Some(side);
        }
        is_found
    }
}

impl Catalogued for AssetMonitor {
    type Config = Config;

    const CRAMPED: &'static str = r#"
hosts = 3
services = 2
asset_timeout = 3
refresh_interval = 1
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
hosts = 256
services = 128
asset_timeout = 5
refresh_interval = 1
idle_timeout = 5
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for AssetMonitor {
    type Meta = Sighting;
    type Flow = Session;
    type Shared<M: Memory> = Assets<M>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "asset-monitor",
        summary: "learns by listening which hosts exist, which systems they run and which services they offer",
        state: "what the session last reported about its two hosts, and which of them offers which service",
        sharing: Sharing::Shares("the maps of hosts and services, and the sum of all traffic"),
        keys: config::KEYS,
        drop_reasons: &[],
        recipes: config::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    /// Protocols show in what is said.
    fn reads_payload(&self) -> bool {
        true
    }

    fn sizing(&self) -> Sizing {
        self.config.sizing()
    }

    fn shared<M: Memory>(&self, memory: &M) -> Assets<M> {
        Assets::new(memory, &self.config)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Assets<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a Assets<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        shared.keep(tx, kept)
    }

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Sighting> {
        let look = match headers.transport {
            Transport::Tcp(tcp) => match systems::of(headers, &tcp) {
                Some((system, false)) => Look::Asks(system),
                Some((system, true)) => Look::Grants(system),
                None => Look::Quiet,
            },
            Transport::Udp { .. } => Look::Quiet,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return None,
        };
        let look = match headers.payload(frame) {
            [] => look,
            payload if look == Look::Quiet => {
                // Only the words of the side that offers the service count.
                let (side, state) = (Side::Responder, &mut DatagramState::default());
                let found = identify::look(&self.signatures, state, headers, payload, side);
                Look::Speaks(found.map_or(0, |Protocol(number)| number + 1))
            }
            _ => look,
        };
        headers.five_tuple().map(|tuple| Sighting::new(tuple, headers.wire_len, look))
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Sighting) -> Step<Opened<Session>, M> {
        Ok(Opened::Flow(Session::default()))
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        session: &mut Session,
        sighting: &Sighting,
    ) -> Step<Verdict, M> {
        cx.expire_after(self.config.idle());
        let (assets, now) = (cx.shared, cx.now());
        let (side, sender) = (sighting.side(), sighting.sender());
        assets.traffic.update(&mut cx.tx, |traffic| traffic.add(sighting.bytes()))?;
        let found = Self::find_server(session, sighting, side);
        let told = match sighting.look() {
            // A system without a rule is no evidence.
            Look::Asks(System::Unknown) | Look::Grants(System::Unknown) | Look::Speaks(_) | Look::Quiet => {
                Told::default()
            }
            Look::Asks(system) => Told { system, evidence: 2 },
            Look::Grants(system) => Told { system, evidence: 1 },
        };
        let known = session.assets[usize::from(side)];
        let is_due =
            known.is_none_or(|known| known.last + self.config.refresh() <= now || known.told.evidence < told.evidence);
        if is_due || found {
            session.assets[usize::from(side)] = assets.note_host(&mut cx.tx, now, sender.address, told)?;
        }
        let speaks = match sighting.look() {
            Look::Speaks(service) if session.server == Some(side) && session.service == 0 => service,
            Look::Speaks(_) | Look::Asks(_) | Look::Grants(_) | Look::Quiet => 0,
        };
        if speaks > 0 {
            session.service = speaks;
        }
        let is_served = session.server == Some(side);
        if is_served && (found || is_due || speaks > 0) {
            let is_new = assets.note_service(&mut cx.tx, now, sender, sighting.protocol(), session.service)?;
            if is_new {
                session.assets[usize::from(side)] = assets.count_service(&mut cx.tx, sender.address)?;
            }
            cx.assure();
        }
        Ok(Verdict::forward())
    }

    /// Forwards packets without room for their session: a full monitor doesn't stop the traffic.
    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, sighting: &Sighting) -> Step<Verdict, M> {
        cx.shared.traffic.update(&mut cx.tx, |traffic| traffic.add(sighting.bytes()))?;
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, now, tx) = (cx.shared, cx.now(), &mut cx.tx);
        let (hosts, traffic) = shared.known(tx, now)?;
        let seconds = |time: Nanos| Cell::Number(time.0 / 1_000_000_000);
        let service = |((protocol, port), class): (&(u8, u16), &u16)| {
            let carrier = if *protocol == packet::protocol::TCP { "tcp" } else { "udp" };
            format!("{port}/{carrier} {}", self.service_name(*class))
        };
        let row = |(address, (asset, services)): (&IpAddr, &(Asset, Services))| {
            let services: vec::Vec<String> = services.iter().map(service).collect();
            vec![
                address.to_string().into(),
                asset.told.system.name().into(),
                seconds(asset.first),
                seconds(asset.last),
                asset.services.into(),
                services.join(", ").into(),
            ]
        };
        let count =
            |count: u64, one: &str, many: &str| format!("{} {}", grouped(count), if count == 1 { one } else { many });
        Ok(Some(Report {
            title: format!(
                "{}; {}, {}",
                count(hosts.len() as u64, "host", "hosts"),
                count(traffic.packets, "packet", "packets"),
                count(traffic.bytes, "byte", "bytes")
            ),
            columns: vec!["host", "system", "first seen, s", "last noted, s", "services found", "services"],
            rows: hosts.iter().take(self.config.top()).map(row).collect(),
        }))
    }
}

#[cfg(test)]
mod tests;
