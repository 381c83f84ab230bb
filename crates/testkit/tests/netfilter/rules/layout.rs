//! The router of a case: interfaces named as the rules name them, and routes that spread the rules' addresses over them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iptables::{Family, Hook, RuleSet, TableKind};
use millrace_testkit::netns::{Interface, KernelRouter};

use super::case::Rules;

const INTERFACES_MAX: usize = 6;
const INTERFACES_MIN: usize = 3;
/// The longest name that the kernel takes.
const NAME_LEN_MAX: usize = 15;

/// A router.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) interfaces: Vec<Laid>,
    pub(crate) routes: Vec<Route>,
}

/// An interface of the router.
#[derive(Clone, Debug)]
pub(crate) struct Laid {
    pub(crate) name: String,
    /// With prefix lengths. The first one is IPv4.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) mtu: u16,
}

/// A route by an interface's next hop, which has the last address but one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) to: (IpAddr, u8),
    pub(crate) interface: usize,
}

impl Layout {
    /// The router for a rule set.
    pub(crate) fn of(rules: &Rules, parsed: &RuleSet) -> Self {
        let mut names = named(parsed);
        names.truncate(INTERFACES_MAX);
        while names.len() < INTERFACES_MIN {
            names.push(format!("x{}", names.len()));
        }
        let mut layout = Self::plain(&names, rules.family);
        let text = parsed.to_string() + &rules.sets;
        let nets: BTreeSet<(IpAddr, u8)> =
            networks(&text, rules.family).into_iter().map(|(address, _)| masked(address, spread(address))).collect();
        for (nth, to) in nets.into_iter().filter(|(address, _)| usable(*address)).enumerate() {
            // The networks of the interfaces have their routes.
            if !layout.interfaces.iter().any(|laid| laid.addresses.iter().any(|own| masked(own.0, own.1) == to)) {
                layout.routes.push(Route { to, interface: nth % layout.interfaces.len() });
            }
        }
        layout.add_own(parsed);
        layout
    }

    /// A router with one network at each interface, and a default route by the first.
    pub(crate) fn plain(names: &[String], family: Family) -> Self {
        let laid = |(nth, name): (usize, &String)| {
            let mut addresses = vec![(IpAddr::from([10, 200 + nth as u8, 0, 1]), 24)];
            if family == Family::V6 {
                addresses.push((Ipv6Addr::from([0x2001, 0xdb8, 0xc8 + nth as u16, 0, 0, 0, 0, 1]).into(), 64));
            }
            Laid { name: name.clone(), addresses, mtu: 1500 }
        };
        let all = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let routes = vec![Route { to: (all, 0), interface: 0 }];
        Self { interfaces: names.iter().enumerate().map(laid).collect(), routes }
    }

    /// Gives the router some of the addresses that rules of INPUT and PREROUTING name, one for each interface at most.
    fn add_own(&mut self, parsed: &RuleSet) {
        let chain = |(kind, hook): (TableKind, Hook)| parsed.table(kind)?.chain(hook.name());
        let chains =
            [(TableKind::Filter, Hook::Input), (TableKind::Nat, Hook::Prerouting)].into_iter().filter_map(chain);
        let bits = parsed.family.bits();
        let mut found: Vec<IpAddr> = Vec::new();
        for rule in chains.flat_map(|chain| &chain.rules) {
            let Some(destination) = &rule.destination else { continue };
            let (address, len) = (destination.value.value.address, destination.value.value.prefix_len());
            if !destination.value.negated && len == Some(bits) && usable(address) && !found.contains(&address) {
                found.push(address);
            }
        }
        for (laid, address) in self.interfaces.iter_mut().zip(found) {
            if !laid.addresses.iter().any(|own| own.0 == address) {
                laid.addresses.push((address, bits));
            }
        }
    }

    /// The interface that the route to an address leaves by.
    pub(crate) fn route(&self, address: IpAddr) -> Option<usize> {
        let connected = self.interfaces.iter().enumerate().flat_map(|(interface, laid)| {
            laid.addresses.iter().map(move |own| Route { to: masked(own.0, own.1), interface })
        });
        let all = connected.chain(self.routes.iter().copied());
        let fits =
            |route: &Route| route.to.0.is_ipv4() == address.is_ipv4() && masked(address, route.to.1).0 == route.to.0;
        all.filter(fits).max_by_key(|route| route.to.1).map(|route| route.interface)
    }

    /// The router's own addresses of a family.
    pub(crate) fn own(&self, family: Family) -> Vec<IpAddr> {
        let all = self.interfaces.iter().flat_map(|laid| &laid.addresses);
        all.map(|own| own.0).filter(|address| Family::of(*address) == family).collect()
    }

    /// True for the broadcast address of an interface's network.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let mut all = self.interfaces.iter().flat_map(|laid| &laid.addresses);
        all.any(|own| own.1 < 31 && masked(address, own.1) == masked(own.0, own.1) && last(own.0, own.1) == address)
    }

    /// The interfaces, as the kernel's router takes them.
    pub(crate) fn for_kernel(&self) -> Vec<Interface> {
        let address = |laid: &Laid| match laid.addresses[0].0 {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => unreachable!("the first address is IPv4"),
        };
        self.interfaces
            .iter()
            .map(|laid| Interface { name: laid.name.clone(), address: address(laid), mtu: laid.mtu })
            .collect()
    }

    /// Commands of `ip` for addresses, routes and neighbours. Whole networks are behind the next hop, so that it alone is a neighbour.
    pub(crate) fn ip_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (nth, Laid { name, addresses, .. }) in self.interfaces.iter().enumerate() {
            let far = KernelRouter::far_mac(nth).map(|byte| format!("{byte:02x}")).join(":");
            for (address, len) in addresses {
                let nodad = if address.is_ipv6() { " nodad" } else { "" };
                lines.push(format!("addr add {address}/{len} dev {name} noprefixroute{nodad}"));
                let bits = Family::of(*address).bits();
                if *len == bits {
                    continue;
                }
                let (hop, (net, _)) = (next_hop(*address, *len), masked(*address, *len));
                lines.push(format!("route add {hop}/{bits} dev {name}"));
                lines.push(format!("neigh replace {hop} lladdr {far} dev {name} nud permanent"));
                lines.push(format!("route add {net}/{len} via {hop} dev {name} src {address}"));
            }
        }
        for route in &self.routes {
            let (address, len) = route.to;
            let Some(hop) = self.hop(route) else { continue };
            lines.push(format!("route add {address}/{len} via {hop} dev {}", self.interfaces[route.interface].name));
        }
        lines
    }

    fn hop(&self, route: &Route) -> Option<IpAddr> {
        let mut own = self.interfaces[route.interface].addresses.iter();
        let own = own.find(|own| own.0.is_ipv4() == route.to.0.is_ipv4() && own.1 < Family::of(own.0).bits())?;
        Some(next_hop(own.0, own.1))
    }

    /// The router as our configuration has it: the table `router`.
    pub(crate) fn to_toml(&self) -> toml::Table {
        let text = |text: String| toml::Value::String(text);
        let interface = |(nth, laid): (usize, &Laid)| {
            let addresses = laid.addresses.iter().map(|(address, len)| text(format!("{address}/{len}"))).collect();
            let mac = KernelRouter::mac(nth).map(|byte| format!("{byte:02x}")).join(":");
            toml::Value::Table(toml::Table::from_iter([
                ("name".to_owned(), text(laid.name.clone())),
                ("port".to_owned(), toml::Value::Integer(nth as i64)),
                ("addresses".to_owned(), toml::Value::Array(addresses)),
                ("mac".to_owned(), text(mac)),
                ("mtu".to_owned(), toml::Value::Integer(laid.mtu.into())),
            ]))
        };
        let route = |route: &Route| {
            let via = self.hop(route)?;
            Some(toml::Value::Table(toml::Table::from_iter([
                ("to".to_owned(), text(format!("{}/{}", route.to.0, route.to.1))),
                ("via".to_owned(), text(via.to_string())),
                ("interface".to_owned(), text(self.interfaces[route.interface].name.clone())),
            ])))
        };
        toml::Table::from_iter([
            ("interface".to_owned(), toml::Value::Array(self.interfaces.iter().enumerate().map(interface).collect())),
            ("route".to_owned(), toml::Value::Array(self.routes.iter().filter_map(route).collect())),
        ])
    }
}

/// The interfaces that rules name. `eth+` becomes `eth0`.
fn named(parsed: &RuleSet) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let rules = parsed.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    for interface in rules.flat_map(|rule| [&rule.input, &rule.output]).flatten() {
        let interface = &interface.value.value;
        let name = match interface.prefix() {
            Some("") => continue,
            Some(prefix) if prefix.len() < NAME_LEN_MAX => format!("{prefix}0"),
            Some(prefix) => prefix.to_owned(),
            None => interface.as_str().to_owned(),
        };
        let fits = name.len() <= NAME_LEN_MAX
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if fits && !["lo", "all", "default", ".", ".."].contains(&&*name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The addresses and networks in a text, with prefix lengths.
pub(crate) fn networks(text: &str, family: Family) -> Vec<(IpAddr, u8)> {
    let words = text.split(|letter: char| letter.is_whitespace() || letter == ',').flat_map(|word| word.split('-'));
    words
        .filter_map(|word| {
            let word = word.trim_start_matches('[').split(']').next().unwrap_or(word);
            let (address, len) = word.split_once('/').unwrap_or((word, ""));
            let address = if family == Family::V4 { address.split(':').next().unwrap_or(address) } else { address };
            let address: IpAddr = address.parse().ok().filter(|address| Family::of(*address) == family)?;
            let mask = || len.parse::<Ipv4Addr>().ok().map(|mask| mask.to_bits().leading_ones() as u8);
            let len = if len.is_empty() { Some(family.bits()) } else { len.parse().ok().or_else(mask) };
            Some((address, len.filter(|len| *len <= family.bits())?))
        })
        .collect()
}

/// True for an address that a host may have, and that a router forwards.
pub(crate) fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => {
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && !address.is_unicast_link_local()
                && address.to_ipv4().is_none()
        }
    }
}

/// The network of an address, by the length of its prefix.
pub(crate) fn masked(address: IpAddr, len: u8) -> (IpAddr, u8) {
    let masked = match address {
        IpAddr::V4(address) => {
            IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into())
        }
    };
    (masked, len)
}

/// The last address of a network.
pub(crate) fn last(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() | u32::MAX.checked_shr(len.into()).unwrap_or(0)).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() | u128::MAX.checked_shr(len.into()).unwrap_or(0)).into()),
    }
}

/// The length of the networks that are spread over the interfaces.
const fn spread(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

/// The address of an interface's next hop: 254 of an IPv4 network of 24 bits.
fn next_hop(address: IpAddr, len: u8) -> IpAddr {
    match last(address, len) {
        IpAddr::V4(last) => IpAddr::V4((last.to_bits() - 1).into()),
        IpAddr::V6(last) => IpAddr::V6((last.to_bits() - 1).into()),
    }
}
