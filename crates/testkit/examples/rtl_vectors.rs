//! Writes what the sequencer in hardware is held against: `cargo run -p millrace-testkit --example rtl_vectors -- FOLDER`.
//! Says on a line for each file what the hardware must be built for: name, function, rows, bytes of a record, outer header.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use nf::{Meta, NetworkFunction};
use packet::Fragment;
use port::{Packet, Trace};
use testkit::rtl::corpus::{self, Kind};
use testkit::rtl::vectors::{self, Made, Unit};
use testkit::rtl::{Quotes, Unread};

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/rtl"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let mut writer = Writer { folder, seed: 1 };
    // Rings whose history ends with a beat of the bus, and the paper's largest.
    writer.core(16)?;
    writer.core(128)?;
    // As many rows as leave the history in every place of a beat, and no beat to itself.
    writer.function("ddos", 1, 15, true, Quotes::None, &ddos::Ddos::new(&ddos::Config::default()))?;
    let heavy_hitter = heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default());
    writer.function("heavy-hitter", 2, 7, false, Quotes::None, &heavy_hitter)?;
    for (name, number, per) in [
        ("policer", 3, policer::Per::FiveTuple),
        ("policer-source", 7, policer::Per::Source),
        ("policer-destination", 8, policer::Per::Destination),
    ] {
        let config = policer::Config { per, ..policer::Config::default() };
        writer.function(name, number, 3, true, Quotes::None, &policer::Policer::new(&config))?;
    }
    writer.function(
        "port-knock",
        4,
        1,
        false,
        Quotes::None,
        &port_knock::PortKnock::new(&port_knock::Config::default()),
    )?;
    let conntrack = conntrack::Conntrack::new(conntrack::Config::default());
    writer.function("conntrack", 5, 7, true, Quotes::All, &conntrack)?;
    // The same record, so the same hardware.
    writer.function("firewall", 5, 7, true, Quotes::All, &firewall::Firewall::new(firewall::Config::default()))?;
    writer.function("nat", 6, 31, false, Quotes::Translated, &nat::Nat::new(nat::Config::default()))
}

struct Writer {
    folder: PathBuf,
    seed: u64,
}

impl Writer {
    /// Vectors for what no function shapes.
    fn core(&mut self, rows: u16) -> io::Result<()> {
        let unit = Unit { function: 0, rows, record_len: 6, outer: false };
        self.write("core", "", unit, Kind::Any, |packet, _| {
            let fields = [&packet.wire_len.to_be_bytes()[..], &packet.interface.to_be_bytes()].concat();
            if packet.wire_len & 1 == 1 { Made::Record(fields) } else { Made::Nothing }
        })
    }

    /// Vectors for a function: of packets that the hardware reads all by itself, and of all.
    fn function<N: NetworkFunction>(
        &mut self,
        name: &str,
        number: u16,
        rows: u16,
        outer: bool,
        quotes: Quotes,
        function: &N,
    ) -> io::Result<()> {
        let unit = Unit { function: number, rows, record_len: N::Meta::RECORD_BYTES as u16, outer };
        for (kind, suffix) in [(Kind::Plain, "-plain"), (Kind::Any, "")] {
            self.write(name, suffix, unit, kind, |packet, bytes| made(function, quotes, packet, bytes))?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        name: &str,
        suffix: &str,
        unit: Unit,
        kind: Kind,
        make: impl FnMut(&Packet, &[u8]) -> Made,
    ) -> io::Result<()> {
        self.seed += 1;
        let trace: Trace = corpus::packets(kind, self.seed);
        let file = self.folder.join(format!("{name}-{}{suffix}.vec", unit.rows));
        let counts = vectors_of(&file, unit, &trace, make)?;
        assert!(
            kind == Kind::Any || counts.software == 0,
            "{name}: plain packets that the hardware can't read: {counts:?}"
        );
        let mut stdout = io::stdout().lock();
        let Unit { function, rows, record_len, outer } = unit;
        writeln!(stdout, "{name}{suffix} {function} {rows} {record_len} {} {}", u8::from(outer), file.display())
    }
}

fn vectors_of(
    file: &Path,
    unit: Unit,
    trace: &Trace,
    make: impl FnMut(&Packet, &[u8]) -> Made,
) -> io::Result<vectors::Counts> {
    let mut out = BufWriter::new(File::create(file)?);
    let counts = vectors::write(&mut out, unit, trace, make)?;
    out.flush()?;
    Ok(counts)
}

/// What the hardware makes of a packet: what the function does, where it can read it.
fn made<N: NetworkFunction>(function: &N, quotes: Quotes, packet: &Packet, bytes: &[u8]) -> Made {
    if Unread::of(packet.link, bytes, packet.wire_len, quotes).is_some() {
        return Made::Software;
    }
    let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else {
        return Made::Nothing;
    };
    if function.packet_set().has_ports() && headers.fragment == Fragment::Later {
        return Made::Nothing;
    }
    function.meta(&headers).map_or(Made::Nothing, |meta| {
        let mut record = vec![0; N::Meta::RECORD_BYTES];
        meta.write(&mut record);
        Made::Record(record)
    })
}
