//! An IPsec gateway: ESP tunnels between networks (RFC 4303 in tunnel mode, AES-GCM as in RFC 4106). Behaviour and choices:
//! `docs/ipsec.md`.
//!
//! A tunnel's state is small: the last sequence number sent, or the replay window. Encryption needs only the sequence number, so it runs
//! after the step, on the core that has the packet.

mod config;
mod ends;
mod esp;
mod gcm;
mod passage;
#[cfg(test)]
mod tests;
mod window;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, Fates, Flow, FlowList, NetworkFunction, Opened, PacketSet, Plain, PortId, Reason,
    Report, Sharing, Sizing, Step, Transform, Verdict,
};
use packet::{FiveTuple, Fragment, Headers, protocol};

pub use config::Config;
use config::Other;
use ends::{Ends, TunnelDirection};
pub use passage::Passage;
use passage::What;
use window::Window;

use crate::list::Catalogued;

/// The `ipsec` function.
#[derive(Clone, Debug)]
pub struct Ipsec {
    tunnels: Vec<Ends>,
    replay_window: u32,
    mtu: u64,
    other: Other,
}

/// The state of one direction of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    window: Window,
    packets: u64,
}

impl Flow for Counted {}

/// The function's own drop reasons, in the order of the description.
mod reason {
    use nf::Reason;

    pub(super) const NO_POLICY: Reason = Reason::own(0);
    pub(super) const UNKNOWN: Reason = Reason::own(1);
    pub(super) const FORGED: Reason = Reason::own(2);
    pub(super) const REPLAYED: Reason = Reason::own(3);
    pub(super) const EXHAUSTED: Reason = Reason::own(4);
    pub(super) const TRUNCATED: Reason = Reason::own(5);
    pub(super) const TTL: Reason = Reason::own(6);
    pub(super) const MALFORMED: Reason = Reason::own(7);
    pub(super) const SELECTOR: Reason = Reason::own(8);
    pub(super) const TOO_BIG: Reason = Reason::own(9);
    pub(super) const DUMMY: Reason = Reason::own(10);
    pub(super) const LINK: Reason = Reason::own(11);
    pub(super) const CONGESTION: Reason = Reason::own(12);
}

impl Ipsec {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let fields = config.fields;
        Self {
            tunnels: fields.tunnels.iter().map(Ends::new).collect(),
            replay_window: fields.replay_window.get() as u32,
            mtu: fields.mtu.get(),
            other: fields.other,
        }
    }

    /// Extracts the metadata of an ESP packet that arrives by a tunnel.
    fn arriving(&self, headers: &Headers, esp: &[u8]) -> Option<Passage> {
        let (source, destination) = headers.addresses()?;
        let (spi, number) = esp.split_first_chunk::<4>()?;
        let number = u32::from_be_bytes(*number.first_chunk()?);
        let spi = u32::from_be_bytes(*spi);
        let matches_tunnel = |ends: &Ends| (ends.peer, ends.local, ends.into.spi) == (source, destination, spi);
        let tunnel = self.tunnels.iter().position(matches_tunnel)?;
        let ends = &self.tunnels[tunnel];
        let what = if (esp.len() as u64) < u64::from(headers.payload_len) {
            What::Truncated
        } else if ends.into.is_authentic(esp) {
            What::Sealed
        } else {
            What::Forged
        };
        Some(Passage { key: ends.key(TunnelDirection::In), tunnel: tunnel as u16, what, number })
    }
}

impl Catalogued for Ipsec {
    type Config = Config;

    const CRAMPED: &'static str = r#"
[[tunnels]]
local = "192.0.2.1"
peer = "10.0.0.1"
inside = ["0.0.0.0/1", "::/0"]
beyond = ["128.0.0.0/1", "::/0"]
spi_out = 4097
key_out = "000102030405060708090a0b0c0d0e0f10111213"
spi_in = 4098
key_in = "ff0102030405060708090a0b0c0d0e0f10111213"
"#;
    const SMALL: &'static str = r#"
mtu = 1500
other = "forward"
[[tunnels]]
local = "192.0.2.1"
peer = "10.0.0.1"
inside = ["0.0.0.0/1", "::/0"]
beyond = ["128.0.0.0/1", "::/0"]
spi_out = 4097
key_out = "000102030405060708090a0b0c0d0e0f10111213"
spi_in = 4098
key_in = "ff0102030405060708090a0b0c0d0e0f10111213"
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl Ipsec {
    fn transform(&self, work: u64, headers: &Headers, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        let ends = &self.tunnels[usize::from((work >> 33) as u16)];
        if work >> 32 & 1 == 1 {
            return esp::decapsulate(&ends.into, |source, to| ends.gives(source, to), headers, bytes, out);
        }
        esp::encapsulate(&ends.out, [ends.local, ends.peer], (work as u32, self.mtu), headers, bytes, out)
    }
}

impl NetworkFunction for Ipsec {
    type Meta = Passage;
    type Flow = Counted;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "ipsec",
        summary: "encrypts packets between networks into ESP tunnels (AES-GCM), and decrypts what comes out of them",
        state: "the last sequence number sent, or the window of received ones",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "tunnels",
                default: "[]",
                help: "as [{local=\"192.0.2.1\", peer=\"192.0.2.2\", inside=[\"10.1.0.0/16\"], beyond=[\"10.2.0.0/16\"], spi_out=4096, \
                       key_out=\"HEX\", spi_in=4097, key_in=\"HEX\"}]: a packet takes the first that matches; a key is 16, 24 or 32 bytes \
                       of AES key and 4 bytes of salt, for one run: sequence numbers, which are the nonces, begin at 1 with each run",
            },
            ConfigKey { name: "replay_window", default: "64", help: "size of the replay window in packets; 1 to 256" },
            ConfigKey {
                name: "mtu",
                default: "65535",
                help: "maximum length of an encrypted IP packet in bytes; 576 to 65535",
            },
            ConfigKey { name: "other", default: "\"drop\"", help: "packets that match no tunnel: drop or forward" },
        ],
        drop_reasons: &[
            "no-policy",
            "unknown-spi",
            "forged",
            "replayed",
            "sequence-exhausted",
            "truncated",
            "ttl-exceeded",
            "inner-malformed",
            "wrong-selector",
            "too-big",
            "dummy",
            "unsupported-link",
            "congestion-unmarkable",
        ],
        recipes: &[],
    };

    const TRANSFORM: Option<Transform<Self>> = Some(Transform { growth: esp::GROWTH, frame: Self::transform });

    fn packet_set(&self) -> PacketSet {
        PacketSet::Tunnel
    }

    fn sizing(&self) -> Sizing {
        // Twice the room that is needed, so no association is evicted.
        let room = (4 * self.tunnels.len()).max(16);
        Sizing { flows: room, flows_v6: room }
    }

    /// All of what a tunnel brings is authenticated.
    fn reads_payload(&self) -> bool {
        true
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Passage> {
        let (source, destination) = headers.addresses()?;
        if headers.protocol == protocol::ESP
            && headers.fragment == Fragment::Whole
            && let Some(passage) = self.arriving(headers, headers.payload(frame))
        {
            return Some(passage);
        }
        let tunnel = self.tunnels.iter().position(|ends| ends.takes(source, destination))?;
        let key = self.tunnels[tunnel].key(TunnelDirection::Out);
        Some(Passage { key, tunnel: tunnel as u16, what: What::Out, number: 0 })
    }

    fn other(&self, headers: &Headers) -> Verdict {
        let is_ours = |(source, destination): (IpAddr, IpAddr)| {
            self.tunnels.iter().any(|ends| (ends.peer, ends.local) == (source, destination))
        };
        if headers.protocol == protocol::ESP && headers.addresses().is_some_and(is_ours) {
            let is_whole = headers.fragment == Fragment::Whole;
            return Verdict::Drop(if is_whole { reason::UNKNOWN } else { Reason::FRAGMENT });
        }
        match self.other {
            Other::Drop => Verdict::Drop(reason::NO_POLICY),
            Other::Forward => Verdict::forward(),
        }
    }

    fn open<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _meta: &Passage) -> Step<Opened<Counted>, M> {
        Ok(Opened::Flow(Counted::default()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, way: &mut Counted, meta: &Passage) -> Step<Verdict, M> {
        // An evicted association would restart its sequence numbers, which are the nonces.
        cx.assure();
        let number = match meta.what {
            What::Forged => return Ok(Verdict::Drop(reason::FORGED)),
            What::Truncated => return Ok(Verdict::Drop(reason::TRUNCATED)),
            What::Sealed if way.window.take(meta.number, self.replay_window) => meta.number,
            What::Sealed => return Ok(Verdict::Drop(reason::REPLAYED)),
            What::Out => match way.window.top.checked_add(1) {
                // A repeated number would be a repeated nonce, which breaks the key.
                None => return Ok(Verdict::Drop(reason::EXHAUSTED)),
                Some(number) => {
                    way.window.top = number;
                    number
                }
            },
        };
        way.packets += 1;
        Ok(Verdict::Transform { port: PortId::ACROSS, work: Work { meta, number }.into() })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let mut ways: Vec<_> = flows.alive().filter(|(_, way)| way.packets > 0).collect();
        ways.sort_unstable_by_key(|(key, _)| *key);
        let row = |(key, way): &(FiveTuple, Counted)| {
            let (source, destination) = (key.source(), key.destination());
            let spi = u32::from(source.port) << 16 | u32::from(destination.port);
            vec![
                format!("{}", source.address).into(),
                format!("{}", destination.address).into(),
                format!("{spi:#x}").into(),
                way.packets.into(),
                way.window.top.into(),
            ]
        };
        Ok((!self.tunnels.is_empty()).then(|| Report {
            title: "tunnels".into(),
            columns: vec!["from", "to", "spi", "packets", "last sequence number"],
            rows: ways.iter().map(row).collect(),
        }))
    }

    fn remark(&self, _: &Fates<'_>) -> Option<String> {
        let becomes = match self.other {
            Other::Drop => "is dropped",
            Other::Forward => "passes unchanged",
        };
        self.tunnels.is_empty().then(|| format!("there are no `tunnels`, so every packet {becomes}"))
    }
}

/// The work after the step, packed into a `u64`: tunnel, direction and sequence number.
struct Work<'a> {
    meta: &'a Passage,
    number: u32,
}

impl From<Work<'_>> for u64 {
    fn from(Work { meta, number }: Work<'_>) -> Self {
        let is_in = Self::from(meta.what != What::Out);
        Self::from(meta.tunnel) << 33 | is_in << 32 | Self::from(number)
    }
}
