//! Sets of ipset for look-ups: what net/netfilter/ipset of the kernel answers for a packet.
//!
//! Entries with timeouts count for ever here. A set that packets change ([`SetKey`], [`initial_entries`]) is kept by whoever runs it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use iptables::matches::Sides;
use iptables::{Entry, EntryPart, Family, Interval, SetKind};
use packet::{Fragment, Mac, protocol};

use super::ranges::{Address, Ranges, networks, ones};
use super::router::{Paths, number};
use super::view::{InterfaceNumber, NO_INTERFACE, View};

/// The number of a set among those of the file.
pub type SetNumber = u16;

/// The sides of a packet that are looked up, one for each dimension of a set: `src`, or else `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SideBits {
    /// Bit N is set if dimension N is of the source.
    sources: u8,
    count: u8,
}

impl SideBits {
    /// The sides of a rule, at most 6.
    #[must_use]
    pub fn of(sides: &Sides) -> Self {
        let sources = sides.0.iter().enumerate().fold(0, |bits, (nth, is_source)| bits | u8::from(*is_source) << nth);
        Self { sources, count: sides.0.len() as u8 }
    }

    /// True if this dimension, from 0, is of the source.
    #[inline]
    #[must_use]
    pub const fn is_source(self, dimension: u8) -> bool {
        self.sources >> dimension & 1 != 0
    }
}

/// The answer of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No entry has it.
    No,
    Yes,
    /// The entry with the longest prefix is one with `nomatch`.
    Except,
}

/// What a packet is in a set with single entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetKey {
    /// The address, cut to the set's netmask; or the Ethernet address; else 0.
    pub first: u128,
    /// The address of the third dimension; else 0.
    pub second: u128,
    /// The port; for ICMP, type times 256 plus code.
    pub port: u16,
    /// The protocol of the port; 0 for `bitmap:port`.
    pub protocol: u8,
}

/// The sets of a file.
#[derive(Clone, Debug, Default)]
pub struct SetContents {
    sets: Box<[Content]>,
    numbers: BTreeMap<Box<str>, SetNumber>,
}

#[derive(Clone, Debug)]
struct Content {
    kind: SetKind,
    /// `None`: of both families.
    family: Option<Family>,
    /// The bits of an address that count.
    mask: u128,
    addresses: Option<(u128, u128)>,
    ports: Option<(u16, u16)>,
    /// True if packets change the set.
    changes: bool,
    entries: Entries,
}

/// The entries of a set, by its type.
#[derive(Clone, Debug)]
enum Entries {
    Addresses(Nets),
    Ports(Box<[(u16, u16)]>),
    PortNets(PortNets),
    /// Sorted.
    Pairs4(Box<[(u32, u32, u32)]>),
    Pairs6(Box<[(u128, u32, u128)]>),
    /// The networks of each interface.
    Interfaces(Box<[(InterfaceNumber, Nets)]>),
    /// Sorted.
    Macs(Box<[u64]>),
    List(Box<[SetNumber]>),
}

#[derive(Clone, Debug)]
enum Nets {
    V4(Ranges<u32, Found>),
    V6(Ranges<u128, Found>),
}

/// Ports of a protocol, the protocol above the port's 16 bits, cut into disjoint ranges; and for each the networks.
#[derive(Clone, Debug)]
struct PortNets {
    /// First and last port of each range, ascending.
    ranges: Box<[(u32, u32)]>,
    nets: Box<[Nets]>,
}

/// Most elements of a set that is not kept as networks: `forceadd` has no limit of its own.
const ELEMENTS_MAX: u64 = 1 << 24;
/// The first and the last address of a network, and its answer.
type Network = (u128, u128, Found);

impl SetContents {
    /// Compiles sets. `changing` names those that packets change: targets `SET` add to them and remove from them.
    ///
    /// # Errors
    /// A set that is too large, or of a type that packets can't change here.
    pub fn new(sets: &iptables::Sets, paths: &Paths, changing: &BTreeSet<&str>) -> Result<Self, String> {
        let numbers: BTreeMap<Box<str>, SetNumber> =
            sets.sets.iter().zip(0..).map(|(set, nth)| (set.name.as_str().into(), nth)).collect();
        if sets.sets.len() > usize::from(SetNumber::MAX) {
            return Err(format!("there are more than {} sets", SetNumber::MAX));
        }
        let compile = |set: &iptables::Set| Content::new(set, paths, &numbers, changing.contains(set.name.as_str()));
        let mut contents = sets.sets.iter().map(compile).collect::<Result<Box<[_]>, String>>()?;
        let changes: Vec<bool> = contents.iter().map(|content| content.changes).collect();
        for content in &mut contents {
            if let Entries::List(members) = &content.entries {
                content.changes = members.iter().any(|member| changes[usize::from(*member)]);
            }
        }
        Ok(Self { sets: contents, numbers })
    }

    /// The number of the set of this name.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<SetNumber> {
        self.numbers.get(name).copied()
    }

    /// True if packets change the set, or a member of the list.
    #[must_use]
    pub fn changes(&self, set: SetNumber) -> bool {
        self.sets[usize::from(set)].changes
    }

    /// The type of a set.
    #[must_use]
    pub fn kind(&self, set: SetNumber) -> SetKind {
        self.sets[usize::from(set)].kind
    }

    /// The members of a `list:set`, in its order; none of other types.
    #[must_use]
    pub fn members(&self, set: SetNumber) -> &[SetNumber] {
        match &self.sets[usize::from(set)].entries {
            Entries::List(members) => members,
            _ => &[],
        }
    }

    /// True if `-m set` matches: the packet is in the set, and not by an entry with `nomatch`. With `return_nomatch` it is such an entry
    /// that matches, and no other of a set that can have them. `macs` are the packet's Ethernet addresses, source first; a set of them
    /// has no packet without.
    #[inline]
    #[must_use]
    pub fn contains(
        &self,
        set: SetNumber,
        sides: SideBits,
        return_nomatch: bool,
        view: &View,
        macs: Option<(Mac, Mac)>,
    ) -> bool {
        let content = &self.sets[usize::from(set)];
        if let Entries::List(members) = &content.entries {
            let fits = sides.count > 0;
            return fits && members.iter().any(|member| self.contains(*member, sides, return_nomatch, view, macs));
        }
        match content.find(sides, view, macs) {
            Found::No => false,
            Found::Yes => !(return_nomatch && content.kind.has_nomatch()),
            Found::Except => return_nomatch,
        }
    }

    /// The key that a packet has in a set, or `None` if it has none: a wrong family, a fragment, outside of the range, or a set of
    /// networks, of interfaces, or of sets.
    #[must_use]
    pub fn key(&self, set: SetNumber, sides: SideBits, view: &View, macs: Option<(Mac, Mac)>) -> Option<SetKey> {
        self.sets[usize::from(set)].key(sides, view, macs)
    }

    /// The Ethernet addresses of a set, and of the members of a list, sorted.
    pub(super) fn macs(&self, set: SetNumber) -> Vec<u64> {
        let mut all = Vec::new();
        for number in core::iter::once(&set).chain(self.members(set)) {
            if let Entries::Macs(macs) = &self.sets[usize::from(*number)].entries {
                all.extend_from_slice(macs);
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

trait Kind {
    fn has_nomatch(self) -> bool;
    fn dimensions(self) -> u8;
    fn has_family(self) -> bool;
}

impl Kind for SetKind {
    fn has_nomatch(self) -> bool {
        matches!(self, Self::HashNet | Self::HashNetPort | Self::HashNetInterface)
    }

    fn dimensions(self) -> u8 {
        match self {
            Self::BitmapIp | Self::BitmapPort | Self::HashIp | Self::HashNet | Self::HashMac | Self::ListSet => 1,
            Self::HashIpPort | Self::HashNetPort | Self::HashNetInterface => 2,
            Self::HashIpPortIp => 3,
        }
    }

    fn has_family(self) -> bool {
        !matches!(self, Self::BitmapPort | Self::HashMac | Self::ListSet)
    }
}

impl Content {
    fn new(
        set: &iptables::Set,
        paths: &Paths,
        numbers: &BTreeMap<Box<str>, SetNumber>,
        changes: bool,
    ) -> Result<Self, String> {
        if changes && (set.kind.has_nomatch() || set.kind == SetKind::ListSet) {
            return Err(format!(
                "the set `{}`: packets can't change a set of the type {} here",
                set.name,
                set.kind.name()
            ));
        }
        let bits = u32::from(set.family.bits());
        Ok(Self {
            kind: set.kind,
            family: set.kind.has_family().then_some(set.family),
            mask: mask_of(set),
            addresses: set.addresses.map(|range| (number(range.first), number(range.last))),
            ports: set.ports.map(|range| (range.first, range.last)),
            changes,
            entries: match set.kind {
                SetKind::BitmapIp | SetKind::HashIp | SetKind::HashNet => {
                    Entries::Addresses(Nets::new(set.entries.iter().flat_map(|entry| nets_of(entry, set)), bits))
                }
                SetKind::BitmapPort => Entries::Ports(ports(&set.entries)),
                SetKind::HashIpPort | SetKind::HashNetPort => Entries::PortNets(PortNets::new(set)?),
                SetKind::HashIpPortIp => pairs(set)?,
                SetKind::HashNetInterface => Entries::Interfaces(interfaces(set, paths)),
                SetKind::HashMac => {
                    let mut macs: Vec<u64> = initial_entries(set).map(|(key, _)| key.first as u64).collect();
                    macs.sort_unstable();
                    Entries::Macs(macs.into())
                }
                SetKind::ListSet => {
                    let member = |part: &EntryPart| match part {
                        EntryPart::Set(name) => numbers.get(name.as_str()).copied(),
                        _ => None,
                    };
                    Entries::List(set.entries.iter().filter_map(|entry| member(&entry.first)).collect())
                }
            },
        })
    }

    /// True if the set can be asked about this packet: enough sides, and its family.
    #[inline]
    fn fits(&self, sides: SideBits, view: &View) -> bool {
        sides.count >= self.kind.dimensions() && self.family.is_none_or(|family| (family == Family::V6) == view.is_v6)
    }

    #[inline]
    fn find(&self, sides: SideBits, view: &View, macs: Option<(Mac, Mac)>) -> Found {
        let yes = |found: bool| if found { Found::Yes } else { Found::No };
        match &self.entries {
            _ if !self.fits(sides, view) => Found::No,
            Entries::Addresses(nets) => {
                let address = side(view, sides, 0) & self.mask;
                match self.kind {
                    // The kernel refuses address 0 for this type.
                    SetKind::HashIp if address == 0 => Found::No,
                    _ => nets.find(address),
                }
            }
            Entries::PortNets(nets) => match port_of(view, sides.is_source(1)) {
                Some((protocol, port)) => nets.find(joined(protocol, port), side(view, sides, 0)),
                None => Found::No,
            },
            Entries::Interfaces(of) => {
                let interface = if sides.is_source(1) { view.input } else { view.output };
                match of.iter().find(|(number, _)| *number == interface && interface != NO_INTERFACE) {
                    Some((_, nets)) => nets.find(side(view, sides, 0)),
                    None => Found::No,
                }
            }
            entries => {
                let Some(key) = self.key(sides, view, macs) else { return Found::No };
                let port = joined(key.protocol, key.port);
                match entries {
                    Entries::Ports(ranges) => {
                        let after = ranges.partition_point(|(first, _)| *first <= key.port);
                        yes(after > 0 && key.port <= ranges[after - 1].1)
                    }
                    Entries::Pairs4(all) => {
                        yes(all.binary_search(&(key.first as u32, port, key.second as u32)).is_ok())
                    }
                    Entries::Pairs6(all) => yes(all.binary_search(&(key.first, port, key.second)).is_ok()),
                    Entries::Macs(all) => yes(all.binary_search(&(key.first as u64)).is_ok()),
                    Entries::Addresses(_) | Entries::PortNets(_) | Entries::Interfaces(_) | Entries::List(_) => {
                        Found::No
                    }
                }
            }
        }
    }

    fn key(&self, sides: SideBits, view: &View, macs: Option<(Mac, Mac)>) -> Option<SetKey> {
        if !self.fits(sides, view) {
            return None;
        }
        let none = SetKey { first: 0, second: 0, port: 0, protocol: 0 };
        let address = side(view, sides, 0);
        match self.kind {
            SetKind::HashIp => Some(SetKey { first: address & self.mask, ..none }).filter(|key| key.first != 0),
            SetKind::BitmapIp => {
                let (first, last) = self.addresses?;
                (first..=last).contains(&address).then_some(SetKey { first: address & self.mask, ..none })
            }
            SetKind::BitmapPort => {
                let (protocol, port) = port_of(view, sides.is_source(0))?;
                let (first, last) = self.ports?;
                let fits = matches!(protocol, protocol::TCP | protocol::UDP) && (first..=last).contains(&port);
                fits.then_some(SetKey { port, ..none })
            }
            SetKind::HashIpPort | SetKind::HashIpPortIp => {
                let (protocol, port) = port_of(view, sides.is_source(1))?;
                let second = if self.kind == SetKind::HashIpPortIp { side(view, sides, 2) } else { 0 };
                Some(SetKey { first: address, second, port, protocol })
            }
            SetKind::HashMac => {
                let (src, dst) = macs?;
                let mac = mac_number(if sides.is_source(0) { src } else { dst }.0);
                (mac != 0).then_some(SetKey { first: mac.into(), ..none })
            }
            SetKind::HashNet | SetKind::HashNetPort | SetKind::HashNetInterface | SetKind::ListSet => None,
        }
    }
}

/// The entries of a set with which it begins, each with the seconds after which it expires; `None` is never. Ranges are taken apart. A
/// set of networks, of interfaces or of sets has none.
pub fn initial_entries(set: &iptables::Set) -> impl Iterator<Item = (SetKey, Option<u32>)> {
    let is_keyed = !set.kind.has_nomatch() && set.kind != SetKind::ListSet;
    let entries = set.entries.iter().filter(move |_| is_keyed);
    let step = !mask_of(set) & ones(u32::from(set.family.bits()));
    entries.flat_map(move |entry| {
        let timeout_s = entry.timeout_s.or(set.timeout_s).filter(|seconds| *seconds > 0);
        let mut parts = entry.parts();
        let (mut first, mut ports, mut second) = ((0, 0), (0, 0, 0), (0, 0));
        for part in &mut parts {
            match part {
                EntryPart::Addresses(range) if first == (0, 0) => first = (number(range.first), number(range.last)),
                EntryPart::Addresses(range) => second = (number(range.first), number(range.last)),
                EntryPart::Ports(protocol, range) => ports = (*protocol, range.first, range.last),
                EntryPart::AnyPorts(range) => ports = (0, range.first, range.last),
                EntryPart::Mac(mac) => first = (mac_number(mac.0).into(), mac_number(mac.0).into()),
                EntryPart::Interface(..) | EntryPart::Set(_) => {}
            }
        }
        let (protocol, first_port, last_port) = ports;
        let firsts = steps(first, step);
        firsts.flat_map(move |first| {
            (first_port..=last_port).flat_map(move |port| {
                steps(second, 0).map(move |second| (SetKey { first, second, port, protocol }, timeout_s))
            })
        })
    })
}

/// The numbers of a range, each time beyond those that differ in the bits of `step` alone.
fn steps((first, last): (u128, u128), step: u128) -> impl Iterator<Item = u128> + Clone {
    let next = move |at: &u128| (at | step).checked_add(1).filter(|next| *next <= last);
    core::iter::successors(Some(first), next)
}

/// The bits that count of an address in a set.
fn mask_of(set: &iptables::Set) -> u128 {
    let bits = u32::from(set.family.bits());
    let host = set.netmask.map_or(0, |len| bits - u32::from(len));
    ones(bits) & !ones(host)
}

/// The address of a dimension.
#[inline(always)]
fn side(view: &View, sides: SideBits, dimension: u8) -> u128 {
    if sides.is_source(dimension) { view.src } else { view.dst }
}

/// The protocol and the port that a packet has in sets: for ICMP its type and code, 0 for protocols without ports. Later fragments have
/// none.
#[inline]
fn port_of(view: &View, is_source: bool) -> Option<(u8, u16)> {
    const UDPLITE: u8 = 136;
    if view.fragment == Fragment::Later || view.protocol == 0 && !view.is_v6 {
        return None;
    }
    let port = match view.protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP | UDPLITE if view.has_transport => {
            if is_source {
                view.src_port
            } else {
                view.dst_port
            }
        }
        protocol::ICMP | protocol::ICMPV6 if view.has_transport => {
            u16::from(view.icmp_kind) << 8 | u16::from(view.icmp_code)
        }
        protocol::TCP | protocol::UDP | protocol::SCTP | UDPLITE | protocol::ICMP | protocol::ICMPV6 => return None,
        _ => 0,
    };
    Some((view.protocol, port))
}

const fn joined(protocol: u8, port: u16) -> u32 {
    (protocol as u32) << 16 | port as u32
}

/// An Ethernet address as a number.
pub(super) const fn mac_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Nets {
    fn new(networks: impl Iterator<Item = Network>, bits: u32) -> Self {
        match bits {
            32 => Self::V4(ranges(networks)),
            _ => Self::V6(ranges(networks)),
        }
    }

    #[inline]
    fn find(&self, address: u128) -> Found {
        match self {
            Self::V4(ranges) => ranges.get(address as u32),
            Self::V6(ranges) => ranges.get(address),
        }
    }
}

fn ranges<A: Address>(networks: impl Iterator<Item = Network>) -> Ranges<A, Found> {
    Ranges::new(networks.map(|(first, last, found)| (A::of(first), A::of(last), found)).collect(), Found::No)
}

/// The networks of an entry's first dimension.
fn nets_of(entry: &Entry, set: &iptables::Set) -> impl Iterator<Item = Network> {
    let bits = u32::from(set.family.bits());
    let found = if entry.no_match { Found::Except } else { Found::Yes };
    let range = match &entry.first {
        EntryPart::Addresses(range) => Some((number(range.first), number(range.last))),
        _ => None,
    };
    range
        .into_iter()
        .flat_map(move |(first, last)| networks(first, last, bits).map(move |(first, last)| (first, last, found)))
}

/// The ports of `bitmap:port` as disjoint ranges.
fn ports(entries: &[Entry]) -> Box<[(u16, u16)]> {
    let range = |entry: &Entry| match &entry.first {
        EntryPart::AnyPorts(range) => Some((range.first, range.last)),
        _ => None,
    };
    let mut all: Vec<(u16, u16)> = entries.iter().filter_map(range).collect();
    all.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in all {
        match joined.last_mut() {
            Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined.into()
}

impl PortNets {
    fn new(set: &iptables::Set) -> Result<Self, String> {
        let bits = u32::from(set.family.bits());
        let port = |entry: &Entry| match entry.rest.first() {
            Some(EntryPart::Ports(protocol, Interval { first, last })) => {
                Some((joined(*protocol, *first), joined(*protocol, *last)))
            }
            _ => None,
        };
        let entries: Vec<((u32, u32), &Entry)> =
            set.entries.iter().filter_map(|entry| Some((port(entry)?, entry))).collect();
        // Every place where the entries that hold may change.
        let mut cuts: Vec<u32> = entries.iter().flat_map(|((first, last), _)| [*first, *last + 1]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut of: Vec<Vec<Network>> = Vec::new();
        of.resize_with(cuts.len(), Vec::new);
        let mut count = 0;
        for ((first, last), entry) in entries {
            let from = cuts.partition_point(|cut| *cut < first);
            for (nets, _) in of[from..].iter_mut().zip(&cuts[from..]).take_while(|(_, cut)| **cut <= last) {
                nets.extend(nets_of(entry, set));
                count += 1;
            }
            if count > ELEMENTS_MAX {
                return Err(too_large(set));
            }
        }
        let ends = cuts.iter().skip(1).map(|end| end - 1).chain([u32::MAX]);
        let filled = cuts.iter().zip(ends).zip(of).filter(|(_, nets)| !nets.is_empty());
        let (ranges, nets): (Vec<_>, Vec<_>) =
            filled.map(|((first, last), nets)| ((*first, last), Nets::new(nets.into_iter(), bits))).unzip();
        Ok(Self { ranges: ranges.into(), nets: nets.into() })
    }

    fn find(&self, port: u32, address: u128) -> Found {
        let after = self.ranges.partition_point(|(first, _)| *first <= port);
        match after.checked_sub(1) {
            Some(at) if port <= self.ranges[at].1 => self.nets[at].find(address),
            Some(_) | None => Found::No,
        }
    }
}

/// The entries of `hash:ip,port,ip`, taken apart.
fn pairs(set: &iptables::Set) -> Result<Entries, String> {
    let size = |part: &EntryPart| match part {
        EntryPart::Addresses(range) => {
            u64::try_from(number(range.last) - number(range.first)).unwrap_or(u64::MAX).saturating_add(1)
        }
        EntryPart::Ports(_, range) => u64::from(range.last - range.first) + 1,
        _ => 1,
    };
    let sizes = set.entries.iter().map(|entry| entry.parts().map(size).fold(1, u64::saturating_mul));
    if sizes.fold(0, u64::saturating_add) > ELEMENTS_MAX {
        return Err(too_large(set));
    }
    let keys = initial_entries(set).map(|(key, _)| (key.first, joined(key.protocol, key.port), key.second));
    Ok(match set.family {
        Family::V4 => {
            let mut all: Vec<_> = keys.map(|(first, port, second)| (first as u32, port, second as u32)).collect();
            all.sort_unstable();
            Entries::Pairs4(all.into())
        }
        Family::V6 => {
            let mut all: Vec<_> = keys.collect();
            all.sort_unstable();
            Entries::Pairs6(all.into())
        }
    })
}

fn too_large(set: &iptables::Set) -> String {
    format!("the set `{}` has more than {ELEMENTS_MAX} elements", set.name)
}

/// The networks of `hash:net,iface` by interface. Ports of bridges, and interfaces that the router hasn't, are left out: no packet has them.
fn interfaces(set: &iptables::Set, paths: &Paths) -> Box<[(InterfaceNumber, Nets)]> {
    let mut of: BTreeMap<InterfaceNumber, Vec<Network>> = BTreeMap::new();
    for entry in &set.entries {
        if let Some(EntryPart::Interface(interface, false)) = entry.rest.first()
            && let Some(number) = paths.number_of(interface.as_str())
        {
            of.entry(number).or_default().extend(nets_of(entry, set));
        }
    }
    let bits = u32::from(set.family.bits());
    of.into_iter().map(|(number, nets)| (number, Nets::new(nets.into_iter(), bits))).collect()
}

#[cfg(test)]
mod tests;
