//! A network function for Millrace: the packets of each host, up to a limit.
//!
//! It is a sequential program over packet sets and knows of no core, no lock, no clock and no thread. `README.md` says what to
//! change first.

use millrace::prelude::*;
use serde::Deserialize;

/// The configuration file, in TOML. A key that isn't here is refused.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How many packets a host may send.
    pub limit: u32,
    /// After so many seconds without a packet a host is forgotten.
    pub idle: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { limit: 1000, idle: 60 }
    }
}

/// The function: what is the same for all packets.
pub struct Skeleton {
    config: Config,
}

impl Skeleton {
    /// The function with this configuration.
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

/// What a packet contributes: all that `open` and `packet` will know of it. Plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    host: Host,
}

impl Meta for Seen {
    type Key = Host;

    /// The wire form, by which a core hears of packets that others got: as many bytes for every packet.
    const RECORD_BYTES: usize = HOST_BYTES;

    /// The packet set that the packet belongs to.
    fn key(&self) -> Host {
        self.host
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.host).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let host = fields.host()?;
        fields.end().map(|()| Self { host })
    }
}

/// What is remembered of a packet set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count(u32);

impl Flow for Count {}

impl NetworkFunction for Skeleton {
    type Meta = Seen;
    type Flow = Count;
    /// What all packet sets share; written with `M::Vector`, `M::Map`, `M::Allocator` and `M::Distributed`, if there is anything.
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "skeleton",
        summary: "drops the packets of hosts that send more than they may",
        state: "how many packets the host has sent",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey { name: "limit", default: "1000", help: "how many packets a host may send" },
            ConfigKey { name: "idle", default: "60", help: "seconds without a packet after which a host is forgotten" },
        ],
        drop_reasons: &["too-many"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 65_536, flows_v6: 65_536 }
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    fn meta(&self, headers: &Headers, _payload: &[u8]) -> Option<Seen> {
        headers.source().map(|host| Seen { host })
    }

    /// A packet of a packet set that is not known.
    fn open<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _seen: &Seen) -> Step<Opened<Count>, M> {
        Ok(Opened::Flow(Count(0)))
    }

    /// A packet of one that is, the first included. Put a `?` behind every access to shared state.
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _seen: &Seen) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(u64::from(self.config.idle)));
        count.0 = count.0.saturating_add(1);
        let too_many = count.0 > self.config.limit;
        Ok(if too_many { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}
