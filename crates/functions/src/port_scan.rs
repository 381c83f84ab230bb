//! Finds hosts that scan others, by threshold random walk (Jung, Paxson, Berger, Balakrishnan: IEEE S&P '04), and drops what they send.
//! Behaviour and choices: `docs/port-scan.md`.

mod config;
mod doors;
mod walk;

use alloc::string::ToString;
use alloc::vec::Vec;
use alloc::{format, vec};

use memory::Memory;
use nf::{
    Context, Description, FlowList, HOST_BYTES, Meta, NetworkFunction, Opened, PacketSet, Reason, RecordReader,
    RecordWriter, Report, Sharing, Sizing, Speed, Step, Verdict,
};
use packet::{Family, FlowKey, Headers, Host, Key, TcpFlags, Transport};

pub use self::config::Config;
pub use self::walk::Suspect;
use self::walk::{Attempts, Standing, Walk};
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `port-scan` function.
#[derive(Clone, Debug)]
pub struct PortScan {
    config: Config,
    walk: Walk,
}

/// The metadata of a packet: the host that it judges, the peer, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The source, or the destination of a packet that may answer an attempt.
    host: Host,
    peer: Host,
    /// The peer's port.
    port: u16,
    event: Event,
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The host sends a SYN, or a segment without ACK as NULL, FIN and Xmas scans do.
    Attempt,
    /// The host sends a bare ACK to a lower port: part of a connection, or of an ACK, window or Maimon scan.
    Probe,
    /// The host sends something else.
    Data,
    /// The peer sends SYN+ACK.
    Granted,
    /// The peer sends a reset.
    Reset,
}

impl Meta for Contact {
    type Key = Host;

    const RECORD_BYTES: usize = 1 + 2 * HOST_BYTES + 2;

    #[inline]
    fn key(&self) -> Host {
        self.host
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).u8(self.event as u8).host(&self.host).host(&self.peer).u16(self.port).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let event = match fields.u8()? {
            0 => Event::Attempt,
            1 => Event::Probe,
            2 => Event::Data,
            3 => Event::Granted,
            4 => Event::Reset,
            _ => return None,
        };
        let (host, peer, port) = (fields.host()?, fields.host()?, fields.u16()?);
        fields.end()?;
        let is_one_family = matches!((host, peer), (Host::V4(_), Host::V4(_)) | (Host::V6(_), Host::V6(_)));
        is_one_family.then_some(Self { host, peer, port, event })
    }
}

const SCANNER: Reason = Reason::own(0);

impl PortScan {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { walk: config.walk(), config }
    }

    /// Returns the 64-bit hash of a peer.
    fn name(peer: &Host) -> u64 {
        // Without a secret key: the same on every core. A scanner that finds two hosts with one hash hides the second.
        match peer.family() {
            Family::V4(peer) => peer.hash(0),
            Family::V6(peer) => peer.hash(0),
        }
    }
}

/// Added to the report's title if no first contact succeeded.
const NOBODY_ANSWERED: &str = ", unless answers took another path: no first contact of any host succeeded";

impl Catalogued for PortScan {
    type Config = Config;

    const CRAMPED: &'static str = r#"
answer_timeout = 1
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
answer_timeout = 1
idle_timeout = 5
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for PortScan {
    type Meta = Contact;
    type Flow = Suspect;
    type Shared<M: Memory> = ();
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "port-scan",
        summary: "finds hosts that scan others, by failed first contacts (threshold random walk) or by failed ports of one host, and drops what they send",
        state: "the host's likelihood ratio, its open attempts, the hosts it tried last, and the ports that failed",
        sharing: Sharing::Nothing,
        keys: config::KEYS,
        drop_reasons: &["scanner"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Initiator
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.config.sizing()
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Contact> {
        let Transport::Tcp(tcp) = headers.transport else { return None };
        let (source, destination) = (headers.source()?, headers.destination()?);
        let (syn, ack) = (tcp.flags.contains(TcpFlags::SYN), tcp.flags.contains(TcpFlags::ACK));
        // Servers acknowledge to higher ports.
        let may_probe = headers.payload_len == 0 && tcp.dst_port < tcp.src_port;
        let event = match (tcp.flags.contains(TcpFlags::RST), syn, ack) {
            (true, _, _) => Event::Reset,
            (false, true, true) => Event::Granted,
            (false, _, false) => Event::Attempt,
            (false, false, true) if may_probe => Event::Probe,
            (false, false, true) => Event::Data,
        };
        Some(match event {
            Event::Granted | Event::Reset => Contact { host: destination, peer: source, port: tcp.src_port, event },
            Event::Attempt | Event::Probe | Event::Data => {
                Contact { host: source, peer: destination, port: tcp.dst_port, event }
            }
        })
    }

    /// Only attempts and probes create state.
    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, contact: &Contact) -> Step<Opened<Suspect>, M> {
        Ok(match contact.event {
            Event::Attempt | Event::Probe => Opened::Flow(Suspect::default()),
            Event::Data | Event::Granted | Event::Reset => Opened::Refused(Verdict::forward()),
        })
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        suspect: &mut Suspect,
        contact: &Contact,
    ) -> Step<Verdict, M> {
        let now = cx.now();
        suspect.miss(&self.walk, now);
        let is_own = matches!(contact.event, Event::Attempt | Event::Probe | Event::Data);
        if is_own {
            suspect.hear(now, self.config.idle());
        }
        match contact.event {
            Event::Attempt => suspect.attempt(&self.walk, Self::name(&contact.peer), contact.port, now),
            Event::Probe => suspect.probe(&self.walk, Self::name(&contact.peer), contact.port, now),
            Event::Granted => suspect.answer(&self.walk, Self::name(&contact.peer), contact.port, true, now),
            Event::Reset => suspect.answer(&self.walk, Self::name(&contact.peer), contact.port, false, now),
            Event::Data => {}
        }
        // Packets to a host extend its state only if it stays in the report.
        if suspect.is_named(&self.walk) {
            cx.expire_after(self.config.remembered());
        } else if is_own {
            cx.expire_after(self.config.idle());
        }
        if suspect.standing != Standing::Scanner {
            return Ok(Verdict::forward());
        }
        // Spoofed sources must not evict known scanners.
        cx.assure();
        Ok(if is_own && self.config.blocks() { Verdict::Drop(SCANNER) } else { Verdict::forward() })
    }

    /// Forwards packets without room for their host: a full detector doesn't stop the traffic.
    fn orphan<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Contact) -> Step<Verdict, M> {
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let row = |(host, suspect): (Host, Suspect)| {
            let Attempts { failed, succeeded } = suspect.attempts;
            let ports = u64::from(suspect.most_ports());
            vec![host.to_string().into(), failed.into(), succeeded.into(), ports.into()]
        };
        let weight = |suspect: &Suspect| match suspect.standing {
            Standing::Scanner | Standing::Former => {
                u64::from(suspect.attempts.failed).max(suspect.most_ports().into()).max(1)
            }
            Standing::Open => 0,
        };
        let mut any_succeeded = false;
        let mut flows = flows
            .alive()
            .inspect(|(_, suspect)| any_succeeded |= suspect.attempts.succeeded > 0)
            .map(|(host, suspect)| (host, suspect.settled(&self.walk)));
        let rows: Vec<_> = heaviest(&mut flows, self.config.top(), weight).into_iter().map(row).collect();
        let doubt = if rows.is_empty() || any_succeeded { "" } else { NOBODY_ANSWERED };
        Ok(Some(Report {
            title: format!("hosts that scan{doubt}"),
            columns: vec!["host", "failed first contacts", "successful ones", "failed ports of one host"],
            rows,
        }))
    }
}

impl Speed<Self> for PortScan {
    const SELECTIVE: bool = true;

    #[inline]
    fn refuses(_: &Self, contact: &Contact) -> bool {
        !matches!(contact.event, Event::Attempt | Event::Probe)
    }
}

#[cfg(test)]
mod tests;
