//! A MAC-learning bridge of two ports (IEEE 802.1D, clauses 7.7 to 7.9; the bridge of NFork, table 6).
//! Behaviour and choices: `docs/bridge.md`.
//!
//! All state is shared: a station's entry is written by frames from it and read by frames to it.

mod config;
mod keys;

use alloc::format;
use alloc::string::String;

use memory::{Allocator, Map, Memory, Vector};
use nf::{
    Context, Description, Fates, Fingerprint, Kept, Meta, NetworkFunction, Opened, PacketSet, Plain, PortId, Reason,
    RecordReader, RecordWriter, Sharing, Sizing, Step, Verdict, grouped,
};
use packet::{Headers, Mac, Nanos};

use crate::list::Catalogued;

pub use self::config::Config;

/// The `bridge` function.
#[derive(Clone, Debug)]
pub struct Bridge {
    stations: usize,
    ageing: Nanos,
    refresh_interval: Nanos,
}

/// The metadata of a frame: source, destination and ingress port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    source: Mac,
    destination: Mac,
    port: u16,
}

impl Meta for Frame {
    type Key = Mac;

    const RECORD_BYTES: usize = 14;

    #[inline]
    fn key(&self) -> Mac {
        self.source
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).bytes(self.source.0).bytes(self.destination.0).u16(self.port).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let frame = Self { source: Mac(fields.bytes()?), destination: Mac(fields.bytes()?), port: fields.u16()? };
        fields.end()?;
        is_station(frame.source).then_some(frame)
    }
}

/// The port of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StationEntry {
    port: u16,
    /// Index in the pool.
    index: u32,
    /// Time of the last write. The entry counts for `ageing` after it.
    written: Nanos,
}

packet::words! {
    StationEntry: [2], entry => [u64::from(entry.index) << 16 | u64::from(entry.port), entry.written.0],
        words => Self { port: words[0] as u16, index: (words[0] >> 16) as u32, written: Nanos(words[1]) };
}

/// The known stations.
pub struct Stations<M: Memory> {
    entries: M::Map<Mac, StationEntry>,
    /// Ages the entries. Each entry has an index; `names` maps it back to the station.
    pool: M::Allocator,
    names: M::Vector<Mac>,
}

/// How many expired entries each frame removes. A frame adds one at most.
const RECLAIMED_A_PACKET: usize = 2;

const SAME_SIDE: Reason = Reason::own(0);
const RESERVED: Reason = Reason::own(1);
const BAD_SOURCE: Reason = Reason::own(2);
const NOT_ETHERNET: Reason = Reason::own(3);

impl Bridge {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let Config(fields) = config;
        Self {
            stations: fields.stations.get() as usize,
            ageing: fields.ageing.nanos(),
            refresh_interval: Nanos::from_secs(fields.refresh_interval.get()),
        }
    }

    /// Removes expired entries.
    #[inline]
    fn reclaim<M: Memory>(&self, cx: &mut Context<'_, Self, M>) -> Step<(), M> {
        let (stations, now) = (cx.shared, cx.now());
        for _ in 0..RECLAIMED_A_PACKET {
            let Some(index) = stations.pool.expire(&mut cx.tx, now)? else { break };
            let name = stations.names.read(&mut cx.tx, index)?;
            stations.entries.remove(&mut cx.tx, &name)?;
        }
        Ok(())
    }

    /// Records the sender's port, unless it is known and was written within `refresh_interval`.
    #[inline]
    fn learn<M: Memory>(&self, cx: &mut Context<'_, Self, M>, Frame { source, port, .. }: &Frame) -> Step<(), M> {
        let (stations, now) = (cx.shared, cx.now());
        let deadline = now + self.ageing;
        let index = match stations.entries.get(&mut cx.tx, source)? {
            Some(known) if known.port == *port && now.since(known.written) <= self.refresh_interval => return Ok(()),
            Some(known) => {
                stations.pool.refresh(&mut cx.tx, known.index as usize, deadline)?;
                known.index
            }
            None => {
                let Some(index) = stations.pool.allocate(&mut cx.tx, deadline)? else { return Ok(()) };
                stations.names.write(&mut cx.tx, index, *source)?;
                index as u32
            }
        };
        // The map has as much room as the pool has indices.
        stations.entries.insert(&mut cx.tx, *source, StationEntry { port: *port, index, written: now })?;
        Ok(())
    }

    /// Returns the port of a station, if it is known.
    #[inline]
    fn find<M: Memory>(&self, cx: &mut Context<'_, Self, M>, station: &Mac) -> Step<Option<u16>, M> {
        let (now, ageing) = (cx.now(), self.ageing);
        let entry = cx.shared.entries.get(&mut cx.tx, station)?;
        Ok(entry.filter(|entry| entry.written + ageing > now).map(|entry| entry.port))
    }
}

/// Returns true if the address is a valid source: the address of one station.
const fn is_station(Mac(address): Mac) -> bool {
    !is_group(Mac(address)) && !matches!(address, [0, 0, 0, 0, 0, 0])
}

/// Returns true for a group address.
const fn is_group(Mac([first, ..]): Mac) -> bool {
    first & 1 == 1
}

/// Returns true for an address that bridges don't forward (802.1D, table 7-10).
const fn is_reserved(Mac(address): Mac) -> bool {
    matches!(address, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

impl Catalogued for Bridge {
    type Config = Config;

    const CRAMPED: &'static str = r#"
stations = 3
ageing = 2
"#;
    const SMALL: &'static str = "stations = 256";

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for Bridge {
    type Meta = Frame;
    type Flow = ();
    type Shared<M: Memory> = Stations<M>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "bridge",
        summary: "learns on which port each station is, and forwards a frame to the port of its destination (IEEE 802.1D)",
        state: "none of its own",
        sharing: Sharing::Shares("the map of stations"),
        keys: keys::KEYS,
        drop_reasons: &["same-side", "reserved-address", "bad-source", "not-ethernet"],
        recipes: keys::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::None
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Stations<M> {
        Stations {
            entries: memory.map(self.stations),
            pool: memory.allocator(self.stations),
            names: memory.vector(self.stations, Mac::default()),
        }
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Stations<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        let (mut stations, mut sum) = (0, 0_u64);
        for index in 0..shared.pool.capacity() {
            if let Some(deadline) = shared.pool.deadline(tx, index)? {
                let name = shared.names.read(tx, index)?;
                let Some(entry) = shared.entries.get(tx, &name)? else { continue };
                let mut digest = Fingerprint::default();
                let [station] = packet::Words::to_words(&name);
                let words = [station, u64::from(entry.port), entry.written.0, deadline.0];
                words.into_iter().for_each(|word| digest.add(word));
                // A sum, because a station's index has no visible effect.
                sum = sum.wrapping_add(digest.value());
                stations += 1;
            }
        }
        fingerprint.add(stations);
        fingerprint.add(sum);
        Ok(())
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a Stations<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for index in kept.pool::<M>(tx, &shared.pool)? {
            let Some(name) = kept.element::<M, _>(tx, &shared.names, index)? else { return Ok(()) };
            let empty = StationEntry { port: 0, index: index as u32, written: Nanos(0) };
            let known = shared.entries.get(tx, &name)?.unwrap_or(empty);
            let Some(entry) = kept.value(known) else { return Ok(()) };
            if kept.reads() {
                shared.entries.insert(tx, name, StationEntry { index: index as u32, ..entry })?;
            }
        }
        Ok(())
    }

    #[inline]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Frame> {
        let (source, destination) = headers.macs?;
        is_station(source).then_some(Frame { source, destination, port: headers.interface })
    }

    fn other(&self, headers: &Headers) -> Verdict {
        Verdict::Drop(if headers.macs.is_some() { BAD_SOURCE } else { NOT_ETHERNET })
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Frame) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), frame: &Frame) -> Step<Verdict, M> {
        self.reclaim(cx)?;
        // Learn before the verdict: also from frames that are dropped.
        self.learn(cx, frame)?;
        if is_reserved(frame.destination) {
            return Ok(Verdict::Drop(RESERVED));
        }
        if is_group(frame.destination) {
            return Ok(Verdict::forward());
        }
        Ok(match self.find(cx, &frame.destination)? {
            Some(port) if port == frame.port => Verdict::Drop(SAME_SIDE),
            Some(port) => Verdict::Forward(PortId(port)),
            None => Verdict::forward(),
        })
    }

    /// Explains a run that dropped most frames, probably because the capture has one interface.
    fn remark(&self, fates: &Fates<'_>) -> Option<String> {
        let same_side = fates.dropped_for(SAME_SIDE);
        (same_side > fates.received / 2).then(|| {
            format!(
                "{} of {} frames were for stations on the port that they came from, so the bridge dropped them. Each interface of \
                 a capture is a port; `mergecap -I none -w both.pcapng A.pcap B.pcap` makes a capture with two ports from two \
                 captures",
                grouped(same_side),
                grouped(fates.received)
            )
        })
    }
}

#[cfg(test)]
mod tests;
