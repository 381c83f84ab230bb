//! Verifies solutions by hashing random packets, and gives probe packets for tests on the card.

use std::fmt;

use packet::toeplitz::{INPUT_LEN_MAX, Toeplitz};

use crate::field::{Family, Field, PacketType};
use crate::plan::Member;
use crate::rng::Rng;
use crate::solve::Solution;

/// Two packets of one set with different hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Each packet's port, type and hash.
    pub packets: [(String, PacketType, u32); 2],
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(a, kind_a, hash_a), (b, kind_b, hash_b)] = &self.packets;
        write!(
            f,
            "two packets of one set have different hashes: {kind_a} at {a} has {hash_a:08x}, {kind_b} at {b} has \
             {hash_b:08x}"
        )
    }
}

impl std::error::Error for Mismatch {}

/// Hashes random packets that agree only in the fields that name their set, `packets` of each class.
///
/// # Errors
/// The first two packets of a set with different hashes.
pub fn verify(solution: &Solution, packets: usize, seed: u64) -> Result<(), Mismatch> {
    let mut rng = Rng::new(seed);
    let hashes: Vec<Hash<'_>> = (0..solution.keys.len()).map(|port| Hash::new(solution, port)).collect();
    let classes = solution.members.iter().map(|member| member.class).max().map_or(0, |last| last + 1);
    for class in 0..classes {
        let of_class: Vec<&Member> = solution.members.iter().filter(|member| member.class == class).collect();
        for _ in 0..packets.div_ceil(of_class.len().max(1)) {
            let mut set = [[0; 16]; Field::ALL.len()];
            set.iter_mut().for_each(|value| rng.fill(value));
            let mut first: Option<(String, PacketType, u32)> = None;
            for member in &of_class {
                for back in [false, true].into_iter().take(1 + usize::from(member.symmetric)) {
                    let hash = hashes[member.port].of(member, &values(member, &set, back, &mut rng));
                    let this = (solution.ports[member.port].clone(), member.kind, hash);
                    match &first {
                        None => first = Some(this),
                        Some(other) if other.2 != hash => return Err(Mismatch { packets: [other.clone(), this] }),
                        Some(_) => {}
                    }
                }
            }
        }
    }
    Ok(())
}

/// The hash of one port.
pub(crate) struct Hash<'s> {
    solution: &'s Solution,
    port: usize,
    tables: Toeplitz,
}

impl<'s> Hash<'s> {
    pub(crate) fn new(solution: &'s Solution, port: usize) -> Self {
        Self { solution, port, tables: solution.keys[port].toeplitz() }
    }

    /// The hash of a packet with these fields.
    pub(crate) fn of(&self, member: &Member, values: &[[u8; 16]; Field::ALL.len()]) -> u32 {
        let mut input = Vec::with_capacity(INPUT_LEN_MAX);
        for field in member.selection.iter() {
            input.extend_from_slice(&values[field as usize][..field.bits(member.kind.family()) / 8]);
        }
        if input.len() > INPUT_LEN_MAX {
            return self.solution.keys[self.port].hash_by_bits(&input);
        }
        self.tables.hash(&input)
    }
}

/// The fields of a packet of this set: what the set doesn't name is anything.
fn values(
    member: &Member,
    set: &[[u8; 16]; Field::ALL.len()],
    back: bool,
    rng: &mut Rng,
) -> [[u8; 16]; Field::ALL.len()] {
    let mut values = [[0; 16]; Field::ALL.len()];
    values.iter_mut().for_each(|value| rng.fill(value));
    for (place, field) in member.named.iter().enumerate() {
        let field = if back { field.opposite() } else { *field };
        values[field as usize] = set[place];
    }
    values
}

/// The hash that a card must report for a test packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The port that it comes in at.
    pub port: usize,
    /// Its type.
    pub kind: PacketType,
    /// The hash that the card must report.
    pub hash: u32,
    /// The entry of the indirection table that it must take.
    pub entry: usize,
}

impl Probe {
    /// The packet of a family that is to be sent.
    #[must_use]
    pub const fn packet(family: Family) -> &'static str {
        match family {
            Family::V4 => "192.0.2.1 > 198.51.100.2",
            Family::V6 => "2001:db8::1 > 2001:db8:1::2",
            Family::Link => "02:00:00:00:00:01 > 02:00:00:00:00:02",
        }
    }

    /// The source and the destination port of such a packet, where it has ports.
    pub const PORTS: (u16, u16) = (1000, 2000);
}

/// For each type of packets at each port, the hash of one that can be sent by hand.
#[must_use]
pub fn probe(solution: &Solution) -> Vec<Probe> {
    let hashes: Vec<Hash<'_>> = (0..solution.keys.len()).map(|port| Hash::new(solution, port)).collect();
    let of = |member: &Member| {
        let hash = hashes[member.port].of(member, &probe_values(member.kind.family()));
        let entry = hash as usize & (solution.table - 1);
        Probe { port: member.port, kind: member.kind, hash, entry }
    };
    solution.members.iter().map(of).collect()
}

fn probe_values(family: Family) -> [[u8; 16]; Field::ALL.len()] {
    let mut values = [[0; 16]; Field::ALL.len()];
    let mut set = |field: Field, bytes: &[u8]| values[field as usize][..bytes.len()].copy_from_slice(bytes);
    set(Field::SrcMac, &[2, 0, 0, 0, 0, 1]);
    set(Field::DstMac, &[2, 0, 0, 0, 0, 2]);
    match family {
        Family::V4 => {
            set(Field::Src, &[192, 0, 2, 1]);
            set(Field::Dst, &[198, 51, 100, 2]);
        }
        Family::V6 => {
            set(Field::Src, &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            set(Field::Dst, &[0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        }
        Family::Link => {}
    }
    let (src_port, dst_port) = Probe::PORTS;
    set(Field::SrcPort, &src_port.to_be_bytes());
    set(Field::DstPort, &dst_port.to_be_bytes());
    values
}
