//! Counts how a key spreads the packets of a capture over queues.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Fragment, Headers, Network, Transport, protocol};

use crate::field::{Field, Fields, PacketType};
use crate::plan::Member;
use crate::solve::Solution;
use crate::verify::Hash;

/// Maximum number of packet sets that are counted exactly; beyond it the number is a lower bound.
const SETS_MAX: usize = 4 << 20;

/// Counts the packets of each queue, as if all came in at one port.
pub struct Spread<'s> {
    hash: Hash<'s>,
    table: usize,
    members: Vec<&'s Member>,
    queues: Vec<u64>,
    left_out: u64,
    sets: HashMap<(usize, Vec<u8>), u64>,
}

/// Result of counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Packets of each queue.
    pub queues: Vec<u64>,
    /// Packets without a packet set; a card may send them to any queue.
    pub left_out: u64,
    /// How many packet sets there were.
    pub sets: u64,
    /// Packets of the largest packet set. No key gives the busiest queue fewer.
    pub largest_set: u64,
}

impl Balance {
    /// Packets that were counted.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.queues.iter().sum()
    }

    /// Share of the busiest queue relative to an even share: 1.0 is even, the number of queues means that one queue gets all.
    #[must_use]
    pub fn busiest_against_even(&self) -> f64 {
        let most = self.queues.iter().max().copied().unwrap_or(0);
        match self.packets() {
            0 => 0.0,
            packets => most as f64 * self.queues.len() as f64 / packets as f64,
        }
    }
}

impl<'s> Spread<'s> {
    /// Nothing counted yet. The indirection table is assigned to queues in turn, as `ethtool -X ... equal` does.
    ///
    /// # Panics
    /// `queues` is 0.
    #[must_use]
    pub fn new(solution: &'s Solution, port: usize, queues: usize) -> Self {
        assert!(queues > 0, "packets go somewhere");
        let members = solution.members.iter().filter(|member| member.port == port).collect();
        let hash = Hash::new(solution, port);
        Self { hash, table: solution.table, members, queues: vec![0; queues], left_out: 0, sets: HashMap::new() }
    }

    /// Counts a packet, of which `frame` has the bytes.
    pub fn count(&mut self, headers: &Headers, frame: &[u8]) {
        let kind = kind_of(headers);
        let Some(member) = self.members.iter().find(|member| member.kind == kind) else {
            self.left_out += 1;
            return;
        };
        let values = values(headers, frame);
        let entry = self.hash.of(member, &values) as usize & (self.table - 1);
        let queues = self.queues.len();
        self.queues[entry % queues] += 1;
        let set = (member.class, set_of(member, &values));
        if self.sets.len() < SETS_MAX || self.sets.contains_key(&set) {
            *self.sets.entry(set).or_default() += 1;
        }
    }

    /// What was counted.
    #[must_use]
    pub fn finish(self) -> Balance {
        let largest_set = self.sets.values().max().copied().unwrap_or(0);
        Balance { queues: self.queues, left_out: self.left_out, sets: self.sets.len() as u64, largest_set }
    }
}

/// What names a packet's set; the smaller of both directions where they are one.
fn set_of(member: &Member, values: &[[u8; 16]; Field::ALL.len()]) -> Vec<u8> {
    let name = |back: bool| -> Vec<u8> {
        let fields = member.named.iter().map(|field| if back { field.opposite() } else { *field });
        fields.flat_map(|field| values[field as usize]).collect()
    };
    if member.symmetric { name(false).min(name(true)) } else { name(false) }
}

/// The type by which a card hashes a packet. What is inside of a tunnel is not looked at.
fn kind_of(headers: &Headers) -> PacketType {
    let pick = |v4: PacketType, v6: PacketType| match headers.network {
        Network::V4(_) => v4,
        Network::V6(_) => v6,
        Network::None | Network::Unreadable | Network::Arp => PacketType::Ether,
    };
    if headers.fragment != Fragment::Whole {
        return pick(PacketType::Frag4, PacketType::Frag6);
    }
    match (headers.transport, headers.protocol) {
        (Transport::Tcp(_), _) => pick(PacketType::Tcp4, PacketType::Tcp6),
        (Transport::Udp { .. }, protocol::UDP) => pick(PacketType::Udp4, PacketType::Udp6),
        (Transport::Sctp { .. }, _) => pick(PacketType::Sctp4, PacketType::Sctp6),
        (Transport::Udp { .. } | Transport::Icmp(_) | Transport::None, _) => {
            pick(PacketType::Other4, PacketType::Other6)
        }
    }
}

fn values(headers: &Headers, frame: &[u8]) -> [[u8; 16]; Field::ALL.len()] {
    let mut values = [[0; 16]; Field::ALL.len()];
    let mut set = |field: Field, bytes: &[u8]| values[field as usize][..bytes.len()].copy_from_slice(bytes);
    if let Some((src, dst)) = headers.macs {
        set(Field::SrcMac, &src.0);
        set(Field::DstMac, &dst.0);
    }
    if let Some((src, dst)) = headers.addresses() {
        for (field, address) in [(Field::Src, src), (Field::Dst, dst)] {
            match address {
                IpAddr::V4(address) => set(field, &address.octets()),
                IpAddr::V6(address) => set(field, &address.octets()),
            }
        }
    }
    let (src_port, dst_port) = headers.ports();
    set(Field::SrcPort, &src_port.to_be_bytes());
    set(Field::DstPort, &dst_port.to_be_bytes());
    let tag = usize::from(headers.transport_offset) + 4;
    if let (Transport::Sctp { .. }, Some(bytes)) = (headers.transport, frame.get(tag..tag + 4)) {
        set(Field::Tag, bytes);
    }
    debug_assert!(Fields::of(&Field::ALL).len() == values.len(), "a place for each field");
    values
}
