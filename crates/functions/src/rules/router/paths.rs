//! A router's configuration, compiled for the data path: what an address is, and where it is reached.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::ranges::Ranges;
use super::super::view::{InterfaceNumber, NO_INTERFACE};
use super::{Destination, Nowhere, Prefixed, RouteEntry, Router, RouterInterface, address, number};

/// Where a packet goes, by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// To the router itself: one of its addresses, 127.0.0.0/8, ::1, or the anycast address of a network.
    Local,
    /// To all hosts of a link, the router too.
    Broadcast,
    /// To a group.
    Multicast,
    /// Out of an interface.
    Interface(InterfaceNumber),
    /// There is no route: network unreachable.
    None,
    /// Dropped. The destination 0.0.0.0, too.
    Blackhole,
    /// Host unreachable.
    Unreachable,
    /// Communication prohibited.
    Prohibit,
}

/// The kind of an address, as the kernel's `inet_addr_type` and ip6tables' `addrtype` have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// `::`. The kernel counts 0.0.0.0 as broadcast.
    Unspecified,
    /// An address of another host.
    Unicast,
    /// An address of the router.
    Local,
    /// 255.255.255.255, 0.0.0.0, or the last address of a network of the router. IPv4 only.
    Broadcast,
    /// The first address of a network of the router. IPv6 only.
    Anycast,
    /// An address of a group.
    Multicast,
    /// An address without a route, or with one to nowhere. IPv6 only: for IPv4 such an address is [`Self::Unicast`].
    Unreachable,
}

/// The options of `rpfilter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReverseTest {
    /// `--loose`: the way back may lead out of any interface.
    pub is_loose: bool,
    /// `--accept-local`: packets from the router's own addresses pass.
    pub accepts_local: bool,
}

/// What the longest prefix says of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    route: Route,
    /// The interface that the packet leaves by, or that has the local address.
    interface: InterfaceNumber,
    via: Option<u128>,
    source: Option<u128>,
    /// True for the first address of an IPv6 network.
    is_anycast: bool,
}

/// The configuration of a router, compiled. Interfaces have their numbers in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Paths {
    interfaces: Box<[Interface]>,
    /// The interface of each port, up to the highest one.
    ports: Box<[InterfaceNumber]>,
    /// Without a repetition; the first one is for addresses without a route.
    hops: Box<[Hop]>,
    /// For each address, its place in `hops`.
    v4: Ranges<u32, u16>,
    v6: Ranges<u128, u16>,
    /// Networks of IPv6 with their hops, the longest prefix first, for questions about one interface.
    v6_networks: Box<[(u128, u128, Hop)]>,
}

#[derive(Clone, Debug)]
struct Interface {
    name: Box<str>,
    port: u16,
    mtu: u16,
    addresses: Box<[Prefixed]>,
}

const INTERFACES_MAX: usize = NO_INTERFACE as usize;
const NAME_BYTES_MAX: usize = 15;
/// The shortest that IPv4 allows.
const MTU_MIN: u16 = 68;

impl Paths {
    /// Compiles a router's configuration.
    ///
    /// # Errors
    /// What is wrong with it, with the name of the interface or the number of the route.
    pub fn new(router: &Router) -> Result<Self, String> {
        let interfaces = check_interfaces(&router.interfaces)?;
        let mut ports: Vec<InterfaceNumber> = Vec::new();
        for (nth, interface) in interfaces.iter().enumerate() {
            let port = usize::from(interface.port);
            ports.resize(ports.len().max(port + 1), NO_INTERFACE);
            ports[port] = nth as InterfaceNumber;
        }
        check_neighbours(router)?;
        let networks = all_networks(router, &interfaces)?;
        let mut hops = Vec::from([Hop::to(Route::None, NO_INTERFACE)]);
        let mut places = BTreeMap::new();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, hop) in &networks {
            let place = *places.entry(*hop).or_insert_with(|| {
                hops.push(*hop);
                hops.len() - 1
            });
            let place = u16::try_from(place).map_err(|_| "there are more than 65,535 different next hops")?;
            let (first, last) = network.range();
            match network.is_v6() {
                true => v6.push((first, last, place)),
                false => v4.push((first as u32, last as u32, place)),
            }
        }
        let mut v6_networks: Vec<_> = networks
            .iter()
            .filter(|(network, _)| network.is_v6())
            .map(|(network, hop)| (network.range().0, network.range().1, *hop))
            .collect();
        v6_networks.sort_by_key(|(first, last, _)| last - first);
        Ok(Self {
            interfaces: interfaces.into(),
            ports: ports.into(),
            hops: hops.into(),
            v4: Ranges::new(v4, 0),
            v6: Ranges::new(v6, 0),
            v6_networks: v6_networks.into(),
        })
    }

    /// True if the router has no interfaces: no configuration was given.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// The number of interfaces.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.interfaces.len()
    }

    /// The interface of a port; [`NO_INTERFACE`] if it has none.
    #[inline]
    #[must_use]
    pub fn interface_of_port(&self, port: u16) -> InterfaceNumber {
        self.ports.get(usize::from(port)).copied().unwrap_or(NO_INTERFACE)
    }

    /// True if packets can come in by a port: an interface has it, or no router's configuration was given.
    #[inline]
    #[must_use]
    pub fn takes(&self, port: u16) -> bool {
        self.is_empty() || self.interface_of_port(port) != NO_INTERFACE
    }

    /// The ports of all interfaces, in the order of the interfaces.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.interfaces.iter().map(|interface| interface.port).collect()
    }

    /// The port of an interface.
    #[inline]
    #[must_use]
    pub fn port_of(&self, interface: InterfaceNumber) -> Option<u16> {
        self.interface(interface).map(|interface| interface.port)
    }

    /// The name of an interface; empty if there is none.
    #[must_use]
    pub fn name(&self, interface: InterfaceNumber) -> &str {
        self.interface(interface).map_or("", |interface| &interface.name)
    }

    /// The interface of this name.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<InterfaceNumber> {
        let at = self.interfaces.iter().position(|interface| *interface.name == *name)?;
        Some(at as InterfaceNumber)
    }

    /// The set of interfaces that pass `-i` or `-o`, a bit each. Bit 63 is for no interface, whose name is empty.
    #[must_use]
    pub fn mask_of(&self, wanted: &iptables::Interface, negated: bool) -> u64 {
        let names =
            self.interfaces.iter().enumerate().map(|(nth, interface)| (nth as InterfaceNumber, &*interface.name));
        let all = names.chain([(NO_INTERFACE, "")]);
        all.filter(|(_, name)| wanted.matches(name) != negated).fold(0, |mask, (nth, _)| mask | 1 << nth)
    }

    /// The longest packet that an interface sends, in bytes; 65,535 if there is no such interface.
    #[inline]
    #[must_use]
    pub fn mtu(&self, interface: InterfaceNumber) -> u16 {
        self.interface(interface).map_or(u16::MAX, |interface| interface.mtu)
    }

    /// Where a packet to this address goes.
    #[inline]
    #[must_use]
    pub fn route(&self, is_v6: bool, dst: u128) -> Route {
        match special(is_v6, dst) {
            Some(AddressKind::Multicast) => Route::Multicast,
            // The kernel takes 0.0.0.0 for broadcast only if the source is 0.0.0.0 too.
            Some(_) if dst == 0 => Route::Blackhole,
            Some(_) => Route::Broadcast,
            None => self.hop(is_v6, dst).route,
        }
    }

    /// The kind of an address.
    #[inline]
    #[must_use]
    pub fn kind(&self, is_v6: bool, address: u128) -> AddressKind {
        special(is_v6, address).unwrap_or_else(|| self.hop(is_v6, address).kind(is_v6))
    }

    /// The kind of an address as if the router had this interface alone. With [`NO_INTERFACE`] it is that of [`Self::kind`].
    #[must_use]
    pub fn kind_on(&self, interface: InterfaceNumber, is_v6: bool, address: u128) -> AddressKind {
        match special(is_v6, address) {
            Some(kind) => kind,
            None if interface == NO_INTERFACE => self.hop(is_v6, address).kind(is_v6),
            None if is_v6 => self.hop_on(interface, address).kind(true),
            None => match self.hop(false, address) {
                hop if hop.interface == interface => hop.kind(false),
                _ => AddressKind::Unicast,
            },
        }
    }

    /// True if `addrtype` passes an address. `types` has a bit for each kind, in the order of
    /// [`AddressTypes::NAMES`](iptables::matches::AddressTypes::NAMES). Of IPv6, an address can be of several kinds, and all of UNSPEC,
    /// UNICAST and MULTICAST that are named must hold, and one of the others.
    #[must_use]
    pub fn is_of_types(&self, is_v6: bool, address: u128, types: u16, limit: InterfaceNumber) -> bool {
        if !is_v6 {
            return types & bit_of(self.kind_on(limit, false, address)) != 0;
        }
        let wanted = |kind| types & bit_of(kind) != 0;
        // What is mapped to IPv4 has no kind at all for the kernel.
        let is_unicast = address != 0 && address >> 120 != 0xff && address >> 32 != 0xffff;
        let by_route = bit_of(AddressKind::Local) | bit_of(AddressKind::Anycast) | bit_of(AddressKind::Unreachable);
        (!wanted(AddressKind::Multicast) || address >> 120 == 0xff)
            && (!wanted(AddressKind::Unicast) || is_unicast)
            && (!wanted(AddressKind::Unspecified) || address == 0)
            && (types & by_route == 0 || types & by_route & bit_of(self.routed_kind(limit, address)) != 0)
    }

    /// True if `rpfilter` passes a packet: the way back to its source leads out of the interface that it came in by.
    #[must_use]
    pub fn passes_reverse(
        &self,
        is_v6: bool,
        src: u128,
        dst: u128,
        input: InterfaceNumber,
        ReverseTest { is_loose, accepts_local }: ReverseTest,
    ) -> bool {
        if is_v6 {
            if src == 0 {
                return true;
            }
            let is_link_local = src >> 118 == 0xfe80 >> 6;
            let hop = match is_link_local || !is_loose {
                true => self.hop_on_or_any(input, src, is_link_local),
                false => self.hop(true, src),
            };
            return match hop.route {
                Route::Local => accepts_local && !hop.is_anycast,
                Route::Interface(output) => output == input || is_loose,
                _ => false,
            };
        }
        // A host that asks for its address.
        if src == 0 && (dst == 0xffff_ffff || dst >> 8 == 0x00e0_0000) {
            return true;
        }
        let hop = self.hop(false, src);
        match hop.route {
            Route::Interface(output) => output == input || is_loose,
            Route::Local => accepts_local && (hop.interface == input || is_loose),
            _ => false,
        }
    }

    /// The address that the router sends from to reach `dst`: the route's source; else the first address of the outgoing interface in
    /// the network of the next hop; else its first address. For IPv6: the address with the longest prefix in common with `dst`.
    #[must_use]
    pub fn source_toward(&self, is_v6: bool, dst: u128) -> Option<u128> {
        let hop = self.hop(is_v6, dst);
        match hop.route {
            Route::Local => Some(dst),
            Route::Interface(output) => hop.source.or_else(|| self.source_on(output, is_v6, dst)),
            _ => None,
        }
    }

    /// The address that MASQUERADE gives a packet to `dst` that leaves by an interface. Other than [`Self::source_toward`], it does not
    /// read the route's source.
    #[must_use]
    pub fn source_on(&self, output: InterfaceNumber, is_v6: bool, dst: u128) -> Option<u128> {
        let mut addresses = self.addresses(output, is_v6);
        if is_v6 {
            let rank = |own: u128| {
                let fits = is_link_local(own) == is_link_local(dst);
                (fits, !is_link_local(own), (own ^ dst).leading_zeros())
            };
            // Of equal ones the first.
            return addresses
                .map(|own| number(own.address))
                .reduce(|best, own| if rank(own) > rank(best) { own } else { best });
        }
        let hop = self.hop(false, dst);
        let next = hop.via.filter(|_| hop.interface == output).unwrap_or(dst);
        let near = addresses.clone().find(|own| (own.range().0..=own.range().1).contains(&next));
        near.or_else(|| addresses.next()).map(|own| number(own.address))
    }

    /// The first address of an interface: the one that REDIRECT sends packets to. Of IPv6, one of the link itself comes last.
    #[must_use]
    pub fn first_address(&self, interface: InterfaceNumber, is_v6: bool) -> Option<u128> {
        let mut numbers = self.addresses(interface, is_v6).map(|own| number(own.address));
        numbers.clone().find(|own| !is_v6 || !is_link_local(*own)).or_else(|| numbers.next())
    }

    /// The next router on the way to `dst`, if it is not on the link itself.
    #[must_use]
    pub fn next_hop(&self, is_v6: bool, dst: u128) -> Option<u128> {
        self.hop(is_v6, dst).via
    }

    fn addresses(&self, interface: InterfaceNumber, is_v6: bool) -> impl Iterator<Item = &Prefixed> + Clone {
        let all = self.interface(interface).map_or(&[][..], |interface| &interface.addresses);
        all.iter().filter(move |own| own.is_v6() == is_v6)
    }

    fn interface(&self, interface: InterfaceNumber) -> Option<&Interface> {
        self.interfaces.get(usize::from(interface))
    }

    #[inline]
    fn hop(&self, is_v6: bool, dst: u128) -> Hop {
        let place = if is_v6 { self.v6.get(dst) } else { self.v4.get(dst as u32) };
        self.hops[usize::from(place)]
    }

    /// The next hop to an address of IPv6 by the routes over one interface.
    fn hop_on(&self, interface: InterfaceNumber, dst: u128) -> Hop {
        let mut networks = self.v6_networks.iter();
        let found = networks.find(|(first, last, hop)| (*first..=*last).contains(&dst) && hop.interface == interface);
        found.map_or_else(|| Hop::to(Route::None, NO_INTERFACE), |(_, _, hop)| *hop)
    }

    /// The next hop to an address of IPv6 by the longest prefix that has a route over this interface. If none has, a route over another
    /// interface counts, unless `strict`.
    fn hop_on_or_any(&self, interface: InterfaceNumber, dst: u128, strict: bool) -> Hop {
        if strict {
            return self.hop_on(interface, dst);
        }
        let best = self.hop(true, dst);
        if best.interface == interface {
            return best;
        }
        let mut around = self.v6_networks.iter().filter(|(first, last, _)| (*first..=*last).contains(&dst));
        let Some((first, last, _)) = around.clone().next() else { return best };
        let same = around.find(|network| (network.0, network.1) == (*first, *last) && network.2.interface == interface);
        same.map_or(best, |(_, _, hop)| *hop)
    }

    /// The kind of an address of IPv6 by its route alone.
    fn routed_kind(&self, limit: InterfaceNumber, address: u128) -> AddressKind {
        match limit {
            _ if address >> 120 == 0xff => AddressKind::Multicast,
            NO_INTERFACE => self.hop(true, address).kind(true),
            limit => self.hop_on(limit, address).kind(true),
        }
    }
}

impl Hop {
    const fn to(route: Route, interface: InterfaceNumber) -> Self {
        Self { route, interface, via: None, source: None, is_anycast: false }
    }

    const fn kind(&self, is_v6: bool) -> AddressKind {
        match self.route {
            Route::Local if self.is_anycast => AddressKind::Anycast,
            Route::Local => AddressKind::Local,
            Route::Broadcast => AddressKind::Broadcast,
            Route::Multicast => AddressKind::Multicast,
            Route::None | Route::Blackhole | Route::Unreachable | Route::Prohibit if is_v6 => AddressKind::Unreachable,
            Route::Interface(_) | Route::None | Route::Blackhole | Route::Unreachable | Route::Prohibit => {
                AddressKind::Unicast
            }
        }
    }
}

/// The kind of an address that needs no routes.
#[inline(always)]
const fn special(is_v6: bool, address: u128) -> Option<AddressKind> {
    match (is_v6, address) {
        (true, 0) => Some(AddressKind::Unspecified),
        (true, address) if address >> 120 == 0xff => Some(AddressKind::Multicast),
        (false, 0 | 0xffff_ffff) => Some(AddressKind::Broadcast),
        (false, address) if address >> 28 == 0xe => Some(AddressKind::Multicast),
        _ => None,
    }
}

const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// The bit of a kind in a set of `addrtype`.
const fn bit_of(kind: AddressKind) -> u16 {
    match kind {
        AddressKind::Unspecified => 1,
        AddressKind::Unicast => 1 << 1,
        AddressKind::Local => 1 << 2,
        AddressKind::Broadcast => 1 << 3,
        AddressKind::Anycast => 1 << 4,
        AddressKind::Multicast => 1 << 5,
        AddressKind::Unreachable => 1 << 7,
    }
}

fn check_interfaces(given: &[RouterInterface]) -> Result<Vec<Interface>, String> {
    if given.len() > INTERFACES_MAX {
        return Err(format!("there are {} interfaces; at most {INTERFACES_MAX} fit", given.len()));
    }
    for (nth, RouterInterface { name, port, mtu, addresses, .. }) in given.iter().enumerate() {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            return Err(format!("interface {}: `{name}` is not a name of 1 to {NAME_BYTES_MAX} letters", nth + 1));
        }
        if let Some(other) = given[..nth].iter().find(|other| other.name == *name) {
            return Err(format!("there are two interfaces `{}`", other.name));
        }
        if let Some(other) = given[..nth].iter().find(|other| other.port == *port) {
            return Err(format!("the interfaces `{}` and `{name}` both have port {port}", other.name));
        }
        if *mtu < MTU_MIN {
            return Err(format!("interface `{name}`: an mtu of {mtu} is too small; at least {MTU_MIN}"));
        }
        for (at, own) in addresses.iter().enumerate() {
            check_address(own).map_err(|what| format!("interface `{name}`: {what}"))?;
            let here = addresses[..at].iter().any(|other| other.address == own.address);
            // Each link has its own addresses of the link.
            let is_shared = own.is_v6() && is_link_local(number(own.address));
            let has = |other: &&RouterInterface| other.addresses.iter().any(|other| other.address == own.address);
            let there = given[..nth].iter().find(has).filter(|_| !is_shared);
            if here || there.is_some() {
                let other = there.map_or(name, |other| &other.name);
                return Err(format!("interface `{name}`: `{other}` has the address {} already", own.address));
            }
        }
    }
    let compiled = given.iter().map(|interface| Interface {
        name: interface.name.as_str().into(),
        port: interface.port,
        mtu: interface.mtu,
        addresses: interface.addresses.as_slice().into(),
    });
    Ok(compiled.collect())
}

fn check_address(own: &Prefixed) -> Result<(), String> {
    let (first, last) = own.range();
    let address = number(own.address);
    let is_broadcast = !own.is_v6() && own.len < 31 && address == last;
    match special(own.is_v6(), address) {
        Some(_) => Err(format!("{} is not an address of a host", own.address)),
        None if is_broadcast => Err(format!("{own} is the broadcast address of its network")),
        None if own.len == 0 => Err(format!("{own} has a prefix of length 0")),
        None if own.is_v6() && own.len < 127 && address == first => {
            Err(format!("{own} is the anycast address of its network"))
        }
        None => Ok(()),
    }
}

fn check_neighbours(router: &Router) -> Result<(), String> {
    for (nth, neighbour) in router.neighbours.iter().enumerate() {
        let what = format!("neighbour {} ({})", nth + 1, neighbour.address);
        if !router.interfaces.iter().any(|interface| interface.name == neighbour.interface) {
            return Err(format!("{what}: there is no interface `{}`", neighbour.interface));
        }
        let same =
            |other: &super::Neighbour| (other.address, &other.interface) == (neighbour.address, &neighbour.interface);
        if router.neighbours[..nth].iter().any(same) {
            return Err(format!("{what} is there twice"));
        }
    }
    Ok(())
}

/// All networks with their hops. Of two for the same network, the first one counts.
fn all_networks(router: &Router, interfaces: &[Interface]) -> Result<Vec<(Prefixed, Hop)>, String> {
    let host = |is_v6, number| Prefixed { address: address(is_v6, number), len: if is_v6 { 128 } else { 32 } };
    let mut networks = Vec::new();
    let mut connected: Vec<(Prefixed, InterfaceNumber)> = Vec::new();
    let own = interfaces.iter().enumerate();
    let own = own.flat_map(|(nth, interface)| interface.addresses.iter().map(move |own| (nth as InterfaceNumber, own)));
    for (nth, own) in own.clone() {
        networks.push((host(own.is_v6(), number(own.address)), Hop::to(Route::Local, nth)));
    }
    for (nth, own) in own {
        let (first, last) = own.range();
        let (is_v6, bits) = (own.is_v6(), if own.is_v6() { 128 } else { 32 });
        if !is_v6 && own.len < 31 {
            networks.push((host(false, last), Hop::to(Route::Broadcast, nth)));
        }
        if is_v6 && own.len < 127 {
            networks.push((host(true, first), Hop { is_anycast: true, ..Hop::to(Route::Local, nth) }));
        }
        if own.len < bits {
            connected.push((Prefixed { address: address(is_v6, first), len: own.len }, nth));
        }
    }
    let loopback = [(Prefixed::read("127.0.0.0/8")?, Route::Local), (Prefixed::read("::1")?, Route::Local)];
    let loopback_broadcast = (Prefixed::read("127.255.255.255")?, Route::Broadcast);
    networks
        .extend([loopback_broadcast].into_iter().chain(loopback).map(|(to, route)| (to, Hop::to(route, NO_INTERFACE))));
    let mut seen = BTreeMap::new();
    for (nth, entry) in router.routes.iter().enumerate() {
        let (network, hop) =
            read_route(entry, router).map_err(|what| format!("route {} (to {}): {what}", nth + 1, entry.to))?;
        let key = (network.is_v6(), network.len, network.range().0);
        if let Some(before) = seen.insert(key, nth) {
            return Err(format!("route {} (to {}): route {} leads there too", nth + 1, entry.to, before + 1));
        }
        let is_other =
            |(other, interface): &&(Prefixed, InterfaceNumber)| *other == network && *interface != hop.interface;
        let of_link = connected.iter().find(|(other, _)| *other == network);
        if let Some((_, interface)) = of_link.filter(is_other) {
            let name = &interfaces[usize::from(*interface)].name;
            return Err(format!("route {} (to {}): the network is that of `{name}` itself", nth + 1, entry.to));
        }
        networks.push((network, hop));
    }
    networks.extend(connected.into_iter().map(|(network, nth)| (network, Hop::to(Route::Interface(nth), nth))));
    Ok(networks)
}

fn read_route(entry: &RouteEntry, router: &Router) -> Result<(Prefixed, Hop), String> {
    let given = entry.via.or(entry.source);
    let network = match entry.to {
        Destination::Network(network) => network,
        Destination::Default => {
            Prefixed { address: address(given.is_some_and(|address| address.is_ipv6()), 0), len: 0 }
        }
    };
    for other in [entry.via, entry.source].into_iter().flatten() {
        if other.is_ipv6() != network.is_v6() {
            return Err(format!("{other} is of the other family"));
        }
    }
    let is_own =
        |wanted: IpAddr| router.interfaces.iter().any(|one| one.addresses.iter().any(|own| own.address == wanted));
    if let Some(source) = entry.source.filter(|source| !is_own(*source)) {
        return Err(format!("no interface has the source {source}"));
    }
    if let Some(via) = entry.via.filter(|via| is_own(*via)) {
        return Err(format!("{via} is an address of the router itself"));
    }
    let (route, interface) = match (&entry.interface, entry.kind) {
        (Some(name), None) => {
            let at = router.interfaces.iter().position(|interface| interface.name == *name);
            let nth = at.ok_or_else(|| format!("there is no interface `{name}`"))? as InterfaceNumber;
            (Route::Interface(nth), nth)
        }
        (None, Some(kind)) if entry.via.is_none() => {
            let route = match kind {
                Nowhere::Blackhole => Route::Blackhole,
                Nowhere::Unreachable => Route::Unreachable,
                Nowhere::Prohibit => Route::Prohibit,
            };
            (route, NO_INTERFACE)
        }
        (None, Some(_)) => return Err("a route to nowhere can't have `via`".to_string()),
        (Some(_), Some(_)) => return Err("it has both `interface` and `kind`".to_string()),
        (None, None) => return Err("it has no `interface` and no `kind`".to_string()),
    };
    let hop = Hop { via: entry.via.map(number), source: entry.source.map(number), ..Hop::to(route, interface) };
    Ok((network, hop))
}

#[cfg(test)]
mod tests;
