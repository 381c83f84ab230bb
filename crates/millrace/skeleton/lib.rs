//! A network function for Millrace that limits the packets of each host.
//!
//! It is a sequential program over packet sets, without cores, locks, clocks and threads. `README.md` says what to
//! change first.

use millrace::prelude::*;
use serde::Deserialize;

/// The configuration, read from TOML. Unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum number of packets of a host.
    pub limit: u32,
    /// Seconds without a packet after which a host's state expires.
    pub idle: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { limit: 1000, idle: 60 }
    }
}

/// The function: data that is the same for all packets.
pub struct Skeleton {
    config: Config,
}

impl Skeleton {
    /// Builds the function from its configuration.
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

/// The metadata of a packet: all that `open` and `packet` know of it. Plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    host: Host,
}

impl Meta for Seen {
    type Key = Host;

    /// Size of the record that tells other cores of a packet, in bytes; the same for every packet.
    const RECORD_BYTES: usize = HOST_BYTES;

    /// The packet set of the packet.
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

/// The state of a packet set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count(u32);

impl Flow for Count {}

impl NetworkFunction for Skeleton {
    type Meta = Seen;
    type Flow = Count;
    /// State that all packet sets share, made of `M::Vector`, `M::Map`, `M::Allocator` and `M::Distributed`; here none.
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "skeleton",
        summary: "drops packets of hosts above a limit",
        state: "number of packets of the host",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey { name: "limit", default: "1000", help: "maximum number of packets of a host" },
            ConfigKey {
                name: "idle",
                default: "60",
                help: "seconds without a packet after which a host's state expires",
            },
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

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Seen> {
        headers.source().map(|host| Seen { host })
    }

    /// Called for the first packet of a packet set; creates its state.
    fn open<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _seen: &Seen) -> Step<Opened<Count>, M> {
        Ok(Opened::Flow(Count(0)))
    }

    /// Called for every packet, including the first. Write `?` after every access to shared state.
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _seen: &Seen) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(u64::from(self.config.idle)));
        count.0 = count.0.saturating_add(1);
        let too_many = count.0 > self.config.limit;
        Ok(if too_many { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}
