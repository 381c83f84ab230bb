//! Check of the piggyback carrier: any bytes are parsed or refused; a sequencer's packets parse back; and replicas that get changed
//! packets report an error or produce the same outcome, or continue after a gap.

use std::sync::Arc;

use engine::carrier::{Outer, Shape, TRAILER_BYTES, parse};
use engine::{EngineError, Link, Options};
use functions::{conntrack, ddos, nat};
use nf::Function;
use packet::LinkType;
use port::{PortError, Trace};

use super::functions::decode;
use crate::carrier::{plain, replicas, sequenced};

/// Reads the input as a sequenced packet, and then as packets to sequence (in the form of [`functions`](super::functions())) after five
/// bytes: number of cores, outer header or not, and a byte to change in the sequenced packets.
pub fn carrier(bytes: &[u8]) {
    anything(bytes);
    let Some((&[cores, number, low, high, change], packets)) = bytes.split_first_chunk::<5>() else { return };
    let change = Change { number: usize::from(number), at: usize::from(u16::from_le_bytes([low, high])), bits: change };
    let (outer, cores) = (if cores & 0x80 == 0 { Outer::Ethernet } else { Outer::None }, 2 + usize::from(cores & 3));
    let trace = decode(packets);
    through(&Arc::new(ddos::Ddos::new(&ddos::Config::default())), &trace, cores, outer, &change);
    through(&Arc::new(conntrack::Conntrack::new(conntrack::Config::default())), &trace, cores, outer, &change);
    let pools = toml::from_str("ports = \"1024-1055\"\nmappings = 8\nsessions = 12\n").expect("a configuration");
    through(&Arc::new(nat::Nat::new(pools)), &trace, cores, outer, &change);
}

/// A change in a sequenced packet.
struct Change {
    number: usize,
    at: usize,
    bits: u8,
}

/// Valid shapes of every kind.
const SHAPES: [(u16, u16); 6] = [(1, 8), (1, 25), (3, 25), (6, 68), (7, 33), (u16::MAX, u16::MAX)];

fn anything(bytes: &[u8]) {
    let found = Shape::find(bytes);
    let shapes = SHAPES.iter().filter_map(|(rows, row_bytes)| Shape::new(*rows, *row_bytes)).chain(found);
    for shape in shapes {
        for link in [LinkType::Ethernet, engine::carrier::LINK, LinkType::RawIp] {
            match parse(link, bytes, shape) {
                Ok(carried) => {
                    let overhead = shape.overhead(Outer::of(link).expect("it was taken apart"));
                    assert!(carried.bytes.len() <= bytes.len() - overhead && carried.core() < shape.cores());
                    assert!(carried.bytes.len() <= carried.wire_len as usize);
                    assert_eq!(carried.history().count() as u64, carried.depth());
                    assert!(carried.history().all(|(seq, row)| seq < carried.seq && row == carried.row(seq)));
                    let _ = carried.check_rows();
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    if let Some(shape) = found {
        assert!(shape.rows_bytes() + TRAILER_BYTES <= bytes.len());
    }
}

fn through<N: Function>(nf: &Arc<N>, trace: &Trace, cores: usize, outer: Outer, change: &Change) {
    let options = Options { flows_max: Some(12), pin: false, ..Options::default() };
    let Ok(frames) = sequenced(nf, trace, cores, outer) else { return };
    let shape = Shape::of::<N>(cores);
    for ((frame, bytes), (packet, original)) in frames.iter().zip(trace.iter()) {
        let carried = parse(frame.link, bytes, shape).expect("a sequencer wrote it");
        assert_eq!(carried.check_rows(), Ok(()));
        assert!(carried.bytes == original && carried.packet().seq == packet.seq && carried.time == packet.time);
    }
    let (got, failure) = replicas(nf, &frames, cores, &options);
    assert!(failure.is_none(), "{failure:?}");
    assert!(got == plain(nf, trace, &options), "{} on {cores} cores differs", N::DESCRIPTION.name);
    if frames.is_empty() || change.bits == 0 {
        return;
    }
    let mut changed = Trace::new();
    for (number, (frame, bytes)) in frames.iter().enumerate() {
        let mut bytes = bytes.to_vec();
        if number == change.number % frames.len() {
            let at = change.at % bytes.len();
            bytes[at] ^= change.bits;
        }
        changed.push(*frame, &bytes);
    }
    // If packets may be missing, another sequence number means a gap.
    let lenient = Options { link: Some(Link::default()), ..options };
    for options in [options, lenient] {
        let (got, failure) = replicas(nf, &changed, cores, &options);
        assert!(
            got.counters.add_up() && matches!(failure, None | Some(EngineError::Port(PortError::Unfit(_)))),
            "{failure:?}"
        );
    }
    // Lost packets.
    let (first, count) = (change.number % frames.len(), usize::from(change.bits) % 12);
    let delivered = frames.iter().enumerate().filter(|(number, _)| !(first..first + count).contains(number));
    let delivered: Trace = delivered.map(|(_, frame)| frame).collect();
    let (got, failure) = replicas(nf, &delivered, cores, &lenient);
    assert!(failure.is_none() && got.counters.add_up(), "{failure:?}");
    assert_eq!(got.counters.received, delivered.len() as u64);
}
