//! The XDP program of an interface, with its maps: one of the three in `bpf/xsk.c`, as committed bytecode.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget};

use crate::bpf::{self, Map, MapKind};
use crate::error::XdpError;
use crate::filter::{ENCODED_LEN, Filter};
use crate::offload::Connections;
use crate::sequencer::Sequencer;

/// The bytecode.
const OBJECT: &[u8] = include_bytes!("../bpf/xsk.o");

/// The program that hands each queue's packets to its socket.
const BY_QUEUE: &str = "xdp.frags";
/// The program that numbers packets and hands them to cores in turn.
const SEQUENCER: &str = "xdp.frags/sequence";
/// The program that takes packets of the connections in a table, and does as the first with the others.
const OFFLOAD: &str = "xdp.frags/offload";

/// A loaded program and its maps.
#[derive(Debug)]
pub(crate) struct Program {
    file: OwnedFd,
    sockets: Map,
    filter: Map,
    counts: Map,
    /// What the sequencing program knows of itself. Only held, as the program uses it.
    _place: Option<Map>,
    /// The interface that a program with a table of connections forwards to.
    outlet: Option<Map>,
    /// False on kernels where a program can't run on packets of several buffers.
    has_frags: bool,
}

/// Counters of a program since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Packets handed to a socket.
    pub redirected: u64,
    /// Packets dropped because no socket has their queue.
    pub unclaimed: u64,
    /// Link traffic that passed to the kernel.
    pub link_passed: u64,
    /// Packets that passed to the kernel because they go to a management port.
    pub management_passed: u64,
    /// Packets that a sequencer dropped because a core had not read enough of the history to make room.
    pub history_full: u64,
    /// Packets that a sequencer dropped because the driver leaves no room for a stamp ahead of them.
    pub unstamped: u64,
    /// Packets that it has forwarded or dropped itself, as their connections are offloaded.
    pub offloaded: u64,
}

/// Additions to the plain program of an interface.
#[derive(Clone, Debug)]
pub(crate) enum Addition {
    /// A sequencer, and the port's number of this interface.
    Sequencer(Arc<Sequencer>, u32),
    /// A table of connections whose packets the program takes.
    Connections(Arc<Connections>),
}

impl ProgramCounts {
    /// Adds another program's.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.redirected += other.redirected;
        self.unclaimed += other.unclaimed;
        self.link_passed += other.link_passed;
        self.management_passed += other.management_passed;
        self.history_full += other.history_full;
        self.unstamped += other.unstamped;
        self.offloaded += other.offloaded;
    }
}

impl Program {
    /// Loads a program for an interface with so many sockets.
    pub(crate) fn load(
        interface: &str,
        sockets: u32,
        filter: &Filter,
        addition: Option<&Addition>,
    ) -> Result<Self, XdpError> {
        let map = |kind, name, len, entries| {
            Map::new(kind, name, len, entries)
                .map_err(|error| XdpError::system(interface, "make a map of the XDP program", error))
        };
        let system = |error| XdpError::system(interface, "make a map of the XDP program", error);
        let cores = sockets.max(1);
        let sockets = map(MapKind::Sockets, "sockets", 4, cores)?;
        let rules = map(MapKind::Array, "filter", ENCODED_LEN, 1)?;
        let counts = map(MapKind::PerCpuArray, "counts", 8, 7)?;
        let mut maps = HashMap::from([
            ("sockets", sockets.as_raw_fd()),
            ("filter", rules.as_raw_fd()),
            ("counts", counts.as_raw_fd()),
        ]);
        let (mut place, mut outlet) = (None, None);
        let (section, name) = match addition {
            None => (BY_QUEUE, "xsk"),
            Some(Addition::Sequencer(sequencer, number)) => {
                let value = sequencer.place(cores, *number);
                let map = map(MapKind::Array, "place", value.len(), 1)?;
                map.set(0, &value).map_err(system)?;
                maps.insert("place", map.as_raw_fd());
                maps.extend(sequencer.maps());
                place = Some(map);
                (SEQUENCER, "sequence")
            }
            Some(Addition::Connections(connections)) => {
                let map = map(MapKind::Interfaces, "outlet", 4, 1)?;
                maps.insert("outlet", map.as_raw_fd());
                maps.extend(connections.maps());
                outlet = Some(map);
                (OFFLOAD, "offload")
            }
        };
        let instructions = linked(OBJECT, section, &maps).map_err(XdpError::Damaged)?;
        let load = |has_frags| bpf::load(&instructions, "MIT", name, has_frags).map(|file| (file, has_frags));
        // Linux 5.18 is the first to know packets of several buffers.
        let loaded = load(true).or_else(|error| match error.0.raw_os_error() {
            Some(libc::EINVAL) => load(false),
            _ => Err(error),
        });
        let (file, has_frags) = loaded.map_err(|(source, log)| match source.raw_os_error() {
            Some(libc::EPERM) => XdpError::system(interface, "load the XDP program", source),
            _ => XdpError::Program { interface: interface.to_owned(), source, log },
        })?;
        let program = Self { file, sockets, filter: rules, counts, _place: place, outlet, has_frags };
        program.set_filter(filter).map_err(|error| XdpError::system(interface, "set the filter", error))?;
        Ok(program)
    }

    pub(crate) const fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(crate) const fn has_frags(&self) -> bool {
        self.has_frags
    }

    /// Sets the interface that the program forwards to, by its number.
    pub(crate) fn set_outlet(&self, index: u32) -> io::Result<()> {
        self.outlet.as_ref().map_or(Ok(()), |outlet| outlet.set(0, &index.to_ne_bytes()))
    }

    /// Changes the filter of the running program. Packets that come meanwhile may meet a part of the old one and a part of the new one.
    pub(crate) fn set_filter(&self, filter: &Filter) -> io::Result<()> {
        self.filter.set(0, &filter.encode())
    }

    /// Sends a queue's packets, or a core's, to a socket.
    pub(crate) fn claim(&self, number: u32, socket: RawFd) -> io::Result<()> {
        self.sockets.set(number, &socket.to_ne_bytes())
    }

    /// What it has counted; what can't be read counts as 0.
    pub(crate) fn counts(&self) -> ProgramCounts {
        let sum = |key| self.counts.sum(key).unwrap_or_default();
        ProgramCounts {
            redirected: sum(0),
            unclaimed: sum(1),
            link_passed: sum(2),
            management_passed: sum(3),
            history_full: sum(4),
            unstamped: sum(5),
            offloaded: sum(6),
        }
    }
}

/// The instructions of the program, with the maps' descriptors where it names the maps.
fn linked(object: &[u8], section: &str, maps: &HashMap<&str, RawFd>) -> Result<Vec<u8>, String> {
    /// The first half of an instruction that loads 64 bits, and the mark that they are a map's descriptor.
    const LOAD_64: u8 = 0x18;
    const MAP_DESCRIPTOR: u8 = 1 << 4;
    let file = ElfFile::<FileHeader64<LittleEndian>>::parse(object).map_err(|error| error.to_string())?;
    let section = file.section_by_name(section).ok_or_else(|| format!("it has no section {section}"))?;
    let mut instructions = section.data().map_err(|error| error.to_string())?.to_vec();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Err("a relocation without a name".into());
        };
        let symbol = file.symbol_by_index(index).map_err(|error| error.to_string())?;
        let name = symbol.name().map_err(|error| error.to_string())?;
        let map = maps.get(name).ok_or_else(|| format!("it uses a map {name}, which nobody makes"))?;
        let place = instructions.get_mut(offset as usize..).and_then(|rest| rest.first_chunk_mut::<16>());
        let Some(place) = place.filter(|place| place[0] == LOAD_64) else {
            return Err(format!("the name {name} at byte {offset} is not in a load"));
        };
        place[1] = (place[1] & 0x0f) | MAP_DESCRIPTOR;
        place[4..8].copy_from_slice(&map.to_ne_bytes());
        place[12..16].fill(0);
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests;
