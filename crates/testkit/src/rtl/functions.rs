//! The test vectors of every function with a record maker in `rtl/records.v`.

use std::io::{self, Write};
use std::sync::Arc;

use engine::carrier::{Outer, Sequencer};
use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use nf::{Function, Meta};
use packet::Fragment;
use port::Packet;

use super::corpus::{self, Kind};
use super::unread::{Quotes, Unread};
use super::vectors::{self, Counts, Made, Truth, Unit};

/// A set of test vectors for one unit.
#[derive(Clone, Debug)]
pub struct Set {
    /// The function's name, followed by `-plain` if the hardware parses all packets itself.
    pub name: String,
    /// The parameters of the hardware.
    pub unit: Unit,
    /// Number of packets of each kind.
    pub counts: Counts,
}

/// Writes all vectors, each set to the writer that `open` returns for its name and unit.
///
/// # Errors
/// If a vector can't be written.
///
/// # Panics
/// If the layout here and the software sequencer disagree.
pub fn all<W: Write>(open: impl FnMut(&str, Unit) -> io::Result<W>) -> io::Result<Vec<Set>> {
    let mut sets = Sets { open, written: Vec::new() };
    // Rings with a history that ends with a beat of the bus, and the paper's largest.
    sets.core(16)?;
    sets.core(128)?;
    // Numbers of rows that end the history at every position in a beat.
    sets.function("ddos", 1, 15, true, Quotes::None, ddos::Ddos::new(&ddos::Config::default()))?;
    let heavy_hitter = heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default());
    sets.function("heavy-hitter", 2, 7, false, Quotes::None, heavy_hitter)?;
    for (name, number, per) in [
        ("policer", 3, policer::Per::FiveTuple),
        ("policer-source", 7, policer::Per::Source),
        ("policer-destination", 8, policer::Per::Destination),
    ] {
        let config = policer::Config { per, ..policer::Config::default() };
        sets.function(name, number, 3, true, Quotes::None, policer::Policer::new(&config))?;
    }
    let port_knock = port_knock::PortKnock::new(&port_knock::Config::default());
    sets.function("port-knock", 4, 1, false, Quotes::None, port_knock)?;
    let conntrack = conntrack::Conntrack::new(conntrack::Config::default());
    sets.function("conntrack", 5, 7, true, Quotes::All, conntrack)?;
    // The same record, so the same hardware.
    let firewall = firewall::Firewall::new(firewall::Config::default());
    sets.function("firewall", 5, 7, true, Quotes::All, firewall)?;
    sets.function("nat", 6, 31, false, Quotes::Translated, nat::Nat::new(nat::Config::default()))?;
    Ok(sets.written)
}

struct Sets<O> {
    open: O,
    written: Vec<Set>,
}

impl<W: Write, O: FnMut(&str, Unit) -> io::Result<W>> Sets<O> {
    /// Writes vectors without a function: the record is the wire length and the interface, with odd wire lengths.
    fn core(&mut self, rows: u16) -> io::Result<()> {
        let unit = Unit { function: 0, rows, record_len: 6, outer: false };
        self.write("core", unit, Kind::Any, |packet, _| {
            let fields = [&packet.wire_len.to_be_bytes()[..], &packet.interface.to_be_bytes()].concat();
            let made = if packet.wire_len & 1 == 1 { Made::Record(fields) } else { Made::Nothing };
            Truth { made, frame: None }
        })
    }

    /// Writes vectors for a function: one set of packets that the hardware parses itself, one of all packets.
    fn function<N: Function>(
        &mut self,
        name: &str,
        number: u16,
        rows: u16,
        outer: bool,
        quotes: Quotes,
        function: N,
    ) -> io::Result<()> {
        let unit = Unit { function: number, rows, record_len: N::Meta::RECORD_BYTES as u16, outer };
        let function = Arc::new(function);
        for (kind, suffix) in [(Kind::Plain, "-plain"), (Kind::Any, "")] {
            let ahead = if outer { Outer::Ethernet } else { Outer::None };
            let mut sequencer = Sequencer::new(Arc::clone(&function), usize::from(rows) + 1, ahead);
            self.write(&format!("{name}{suffix}"), unit, kind, |packet, bytes| {
                let mut frame = Vec::new();
                sequencer.sequence(packet, bytes, &mut frame).expect("no packet is of the year 2262");
                Truth { made: made(&*function, quotes, packet, bytes), frame: Some(frame) }
            })?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        name: &str,
        unit: Unit,
        kind: Kind,
        truth: impl FnMut(&Packet, &[u8]) -> Truth,
    ) -> io::Result<()> {
        let trace = corpus::packets(kind, self.written.len() as u64);
        let mut out = (self.open)(name, unit)?;
        let counts = vectors::write(&mut out, unit, &trace, truth)?;
        out.flush()?;
        self.written.push(Set { name: name.to_owned(), unit, counts });
        Ok(())
    }
}

/// Returns the hardware's result for a packet: the function's record, if the hardware can parse the packet.
fn made<N: Function>(function: &N, quotes: Quotes, packet: &Packet, bytes: &[u8]) -> Made {
    if Unread::of(packet.link, bytes, packet.wire_len, quotes).is_some() {
        return Made::Software;
    }
    let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else {
        return Made::Nothing;
    };
    if function.drops_fragments() && headers.fragment == Fragment::Later {
        return Made::Nothing;
    }
    function.meta(&headers, bytes).map_or(Made::Nothing, |meta| {
        let mut record = vec![0; N::Meta::RECORD_BYTES];
        meta.write(&mut record);
        Made::Record(record)
    })
}
