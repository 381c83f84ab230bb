//! The compiled tests of a rule that need no state: [`Test`].
//!
//! Each answers as the kernel's match does (`net/netfilter/xt_*.c`, `net/ipv4/netfilter/ipt_*.c`, `net/ipv6/netfilter/ip6t_*.c`). A
//! later fragment has no transport header, and no test of one holds, with or without `!`. The kernel also drops a TCP fragment that
//! begins at byte 8 when it meets a `tcp` match; here that does not hold, as for other later fragments.

mod time;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::slice::from_ref;

use iptables::matches::{
    AddrType, AddressTypes, IpRange, LimitInterface, MultiportSide, Physdev, SetTest, StringMatch, TcpFlagsTest,
    TtlTest,
};
use iptables::{Condition, Family, Interval, Match};

use super::bytes::{ByteTest, ByteTests, Text};
use super::router::{Paths, ReverseTest, number};
use super::sets::{SetContents, SetNumber, SideBits};
use super::view::{NO_INTERFACE, View};

pub use time::Times;

/// What tests read besides the packet.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The router's configuration.
    pub paths: Paths,
    /// The sets.
    pub sets: SetContents,
}

/// Why a match can't be compiled to tests without state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// The match has state.
    State,
    /// The match can't be decided on this router; a sentence says why.
    Refused(String),
}

/// A test of a packet. Those of ports are the most frequent ones, and follow no pointer.
#[derive(Clone, Debug)]
pub enum Test {
    /// A test that never holds.
    Never,
    /// Ports and flags of a transport header.
    Ports(PortsTest),
    /// `multiport`.
    Multiport {
        /// Ranges of ports, one of which has the port.
        ports: Box<[(u16, u16)]>,
        /// The ports to compare.
        side: MultiportSide,
        /// True with `!`.
        negated: bool,
    },
    /// `icmp`, `icmp6`.
    Icmp {
        /// The type; `None` is any.
        kind: Option<u8>,
        /// First and last code.
        codes: (u8, u8),
        /// True with `!`.
        negated: bool,
    },
    /// `ttl`, `hl`: first and last value.
    Ttl(Between<u8>),
    /// `length`.
    Length(Between<u16>),
    /// `tcpmss`: of a packet without the option only `!` holds. The kernel reads the option of any segment, and reads the data of a later
    /// fragment as a header; here only that of a SYN counts, and none of a fragment.
    Mss(Between<u16>),
    /// `tos`, `dscp`, `ecn`: it holds if `tos & mask == value`.
    Tos {
        /// The bits that are compared.
        mask: u8,
        /// Their value.
        value: u8,
        /// True with `!`.
        negated: bool,
    },
    /// `mark`: it holds if `mark & mask == value`.
    Mark {
        /// The bits that are compared.
        mask: u32,
        /// Their value.
        value: u32,
        /// True with `!`.
        negated: bool,
    },
    /// A source or a destination of IPv4 between two: `iprange`.
    Range4 {
        /// First and last address.
        range: (u32, u32),
        /// True for the source.
        is_source: bool,
        /// True with `!`.
        negated: bool,
    },
    /// A range of source or destination addresses of IPv6 (`iprange`).
    Range6 {
        /// First and last address.
        range: Box<(u128, u128)>,
        /// True for the source.
        is_source: bool,
        /// True with `!`.
        negated: bool,
    },
    /// The kind of a source or a destination: `addrtype`.
    AddressType {
        /// A bit for each kind, in the order of [`AddressTypes::NAMES`].
        types: u16,
        /// The interface whose addresses alone count.
        limit: Option<LimitInterface>,
        /// True for the source.
        is_source: bool,
        /// True with `!`.
        negated: bool,
    },
    /// `rpfilter`.
    Reverse {
        /// Its options.
        test: ReverseTest,
        /// `--invert`.
        negated: bool,
    },
    /// `time`.
    Time(Times),
    /// `set`, of a set that packets don't change.
    Set {
        /// The set.
        set: SetNumber,
        /// The parts of the packet that are looked up in the set.
        sides: SideBits,
        /// `--return-nomatch`.
        return_nomatch: bool,
        /// The byte test of the Ethernet addresses in the set, if it has any.
        macs: Option<u8>,
        /// True with `!`.
        negated: bool,
    },
    /// A test of bytes in the packet.
    Byte {
        /// Its number in [`ByteTests`].
        number: u8,
        /// True with `!`.
        negated: bool,
    },
}

/// Ports and flags of a transport header. All conditions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortsTest {
    source: (u16, u16),
    destination: (u16, u16),
    flags: TcpFlagsTest,
    source_negated: bool,
    destination_negated: bool,
    flags_negated: bool,
}

/// A range of values, or with `!` all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between<T> {
    first: T,
    last: T,
    negated: bool,
}

/// Ranges of ports that pass; with true, all other ports pass instead.
pub(super) type PassingPorts<'a> = (&'a [(u16, u16)], bool);

impl<T: PartialOrd + Copy> Between<T> {
    fn of(condition: Condition<Interval<T>>) -> Self {
        let Condition { negated, value: Interval { first, last } } = condition;
        Self { first, last, negated }
    }

    #[inline(always)]
    fn holds(&self, value: T) -> bool {
        (self.first <= value && value <= self.last) != self.negated
    }
}

impl PortsTest {
    fn new(
        source: Option<Condition<Interval<u16>>>,
        destination: Option<Condition<Interval<u16>>>,
        flags: Option<Condition<TcpFlagsTest>>,
    ) -> Self {
        let range = |ports: Option<Condition<Interval<u16>>>| match ports {
            Some(Condition { negated, value: Interval { first, last } }) => ((first, last), negated),
            None => ((0, u16::MAX), false),
        };
        let ((source, source_negated), (destination, destination_negated)) = (range(source), range(destination));
        let any = Condition { negated: false, value: TcpFlagsTest { mask: 0, set: 0 } };
        let Condition { negated: flags_negated, value: flags } = flags.unwrap_or(any);
        Self { source, destination, flags, source_negated, destination_negated, flags_negated }
    }

    #[inline(always)]
    fn holds(&self, view: &View) -> bool {
        let within = |(first, last): (u16, u16), port: u16| first <= port && port <= last;
        view.has_transport
            && within(self.destination, view.dst_port) != self.destination_negated
            && within(self.source, view.src_port) != self.source_negated
            && self.flags.matches(view.tcp_flags) != self.flags_negated
    }
}

impl Test {
    /// True if it tests nothing but addresses, ports, interfaces and the packet's mark.
    pub(super) const fn is_steady(&self) -> bool {
        match self {
            Self::Ports(test) => test.flags.mask == 0,
            Self::Set { macs, .. } => macs.is_none(),
            Self::Never
            | Self::Multiport { .. }
            | Self::Mark { .. }
            | Self::Range4 { .. }
            | Self::Range6 { .. }
            | Self::AddressType { .. }
            | Self::Reverse { .. } => true,
            Self::Icmp { .. }
            | Self::Ttl(_)
            | Self::Length(_)
            | Self::Mss(_)
            | Self::Tos { .. }
            | Self::Time(_)
            | Self::Byte { .. } => false,
        }
    }

    /// Compiles a match. The rule's match holds if all of the tests hold; a comment has none. Tests of bytes are added to `bytes`.
    ///
    /// # Errors
    /// The match has state, or can't be decided on this router.
    pub fn of(
        rule: &Match,
        family: Family,
        environment: &Environment,
        bytes: &mut ByteTests,
    ) -> Result<Vec<Self>, NotHere> {
        let mut byte = |test: ByteTest, negated: bool| match bytes.number_of(test) {
            Ok(number) => Ok(Self::Byte { number, negated }),
            Err(what) => Err(NotHere::Refused(what)),
        };
        let ports = |source, destination, flags| Self::Ports(PortsTest::new(source, destination, flags));
        Ok(match rule {
            Match::Tcp(tcp) => {
                let mut tests = Vec::from([ports(tcp.source, tcp.destination, None)]);
                if tcp.flags.is_some() {
                    tests.push(ports(None, None, tcp.flags));
                }
                if let Some(option) = tcp.option {
                    tests.push(byte(ByteTest::TcpOption(option), false)?);
                }
                tests
            }
            Match::Udp(udp) => [ports(udp.source, udp.destination, None)].into(),
            Match::Sctp(sctp) => {
                let mut tests = Vec::from([ports(sctp.source, sctp.destination, None)]);
                if let Some(chunks) = &sctp.chunks {
                    tests.push(byte(ByteTest::Chunks(chunks.clone()), false)?);
                }
                tests
            }
            Match::Dccp(dccp) => [byte(ByteTest::Dccp(dccp.clone()), false)?].into(),
            Match::Multiport(multiport) => {
                let list = multiport.ports.value.iter().map(|range| (range.first, range.last)).collect();
                [Self::Multiport { ports: list, side: multiport.side, negated: multiport.ports.negated }].into()
            }
            Match::Icmp(icmp) => {
                let Condition { negated, value } = icmp.kind;
                let kind = Some(value.kind).filter(|kind| *kind != 255);
                [Self::Icmp { kind, codes: (value.codes.first, value.codes.last), negated }].into()
            }
            Match::Icmp6(icmp) => {
                let Condition { negated, value } = icmp.kind;
                [Self::Icmp { kind: Some(value.kind), codes: (value.codes.first, value.codes.last), negated }].into()
            }
            Match::Ah(ah) => {
                let test = if family == Family::V4 { ByteTest::Ah4(ah.spi) } else { ByteTest::Ah6(ah.clone()) };
                [byte(test, false)?].into()
            }
            Match::Esp(esp) => [byte(ByteTest::Esp(esp.spi), false)?].into(),
            Match::IpComp(ipcomp) => [byte(ByteTest::IpComp(ipcomp.spi), false)?].into(),
            Match::Ttl(ttl) => [ttl_test(ttl.0)].into(),
            Match::Hl(hl) => [ttl_test(hl.0)].into(),
            Match::Length(length) => [Self::Length(Between::of(length.bytes))].into(),
            Match::Dscp(dscp) => {
                [Self::Tos { mask: 0xfc, value: dscp.value.value << 2, negated: dscp.value.negated }].into()
            }
            Match::Tos(tos) => {
                let Condition { negated, value } = tos.tos;
                [Self::Tos { mask: value.mask, value: value.value, negated }].into()
            }
            Match::Ecn(ecn) => {
                let ect = ecn.ect.map(|ect| Self::Tos { mask: 3, value: ect.value, negated: ect.negated });
                let flag = |flag: Option<bool>, bit: u8| {
                    let flags = |negated| Condition { negated, value: TcpFlagsTest { mask: bit, set: bit } };
                    flag.map(|negated| ports(None, None, Some(flags(negated))))
                };
                [ect, flag(ecn.ece, 0x40), flag(ecn.cwr, 0x80)].into_iter().flatten().collect()
            }
            Match::TcpMss(mss) => [Self::Mss(Between::of(mss.bytes))].into(),
            Match::U32(words) => [byte(ByteTest::Words(words.tests.value.clone()), words.tests.negated)?].into(),
            Match::IpRange(ranges) => range_tests(ranges),
            Match::MacSource(mac) => [byte(ByteTest::Mac(mac.address), false)?].into(),
            Match::PktType(kind) => [byte(ByteTest::PacketType(kind.kind), false)?].into(),
            Match::Physdev(physdev) => physdev_tests(physdev),
            Match::Frag(frag) => [byte(ByteTest::Frag(frag.clone()), false)?].into(),
            Match::Hbh(options) => [byte(ByteTest::HopByHop(options.0.clone()), false)?].into(),
            Match::Dst(options) => [byte(ByteTest::Destination(options.0.clone()), false)?].into(),
            Match::Rt(routing) => [byte(ByteTest::Rt(routing.clone()), false)?].into(),
            Match::Mh(mobility) => [byte(ByteTest::Mobility(mobility.kind), false)?].into(),
            Match::Ipv6Header(headers) => [byte(ByteTest::Extensions(headers.clone()), false)?].into(),
            Match::Eui64(_) => [byte(ByteTest::Eui64, false)?].into(),
            Match::Time(time) if time.kernel_tz => {
                return Err(refused(
                    "time: the zone of the kernel (`--kerneltz`) is not known here; write times in UTC",
                ));
            }
            Match::Time(time) => [Self::Time(Times::of(time))].into(),
            Match::StringMatch(StringMatch { from, to, .. }) if from > to => {
                return Err(refused(&format!("string: `--from {from}` is behind `--to {to}`")));
            }
            Match::StringMatch(text) => [byte(ByteTest::Text(Text::of(text)), text.pattern.negated)?].into(),
            Match::SetTest(test) => [set_test(test, environment, byte)?].into(),
            Match::Comment(_) => Vec::new(),
            Match::AddrType(test) => address_tests(test, family, &environment.paths)?,
            Match::MarkTest(test) => {
                let Condition { negated, value } = test.mark;
                [Self::Mark { mask: value.mask, value: value.value, negated }].into()
            }
            Match::RpFilter(_) if environment.paths.is_empty() => {
                return Err(refused("rpfilter: the routes of the router are not known; give them with --router"));
            }
            Match::RpFilter(filter) => {
                let test = ReverseTest { is_loose: filter.loose, accepts_local: filter.accept_local };
                [Self::Reverse { test, negated: filter.invert }].into()
            }
            Match::Conntrack(_)
            | Match::ConnMark(_)
            | Match::ConnBytes(_)
            | Match::ConnLimit(_)
            | Match::Helper(_)
            | Match::Limit(_)
            | Match::HashLimit(_)
            | Match::Recent(_)
            | Match::Statistic(_)
            | Match::Quota(_) => return Err(NotHere::State),
        })
    }

    /// The source and destination ports that may pass; `None` if the test doesn't say.
    pub(super) fn ports(&self) -> [Option<PassingPorts<'_>>; 2] {
        match self {
            Self::Ports(PortsTest { source, destination, source_negated, destination_negated, .. }) => {
                [Some((from_ref(source), *source_negated)), Some((from_ref(destination), *destination_negated))]
            }
            Self::Multiport { ports, side: MultiportSide::Source, negated } => [Some((ports, *negated)), None],
            Self::Multiport { ports, side: MultiportSide::Destination, negated } => [None, Some((ports, *negated))],
            _ => [None, None],
        }
    }

    /// True if the test holds for the packet.
    #[inline]
    #[must_use]
    pub fn holds(&self, view: &View, environment: &Environment) -> bool {
        match self {
            Self::Ports(test) => test.holds(view),
            Self::Icmp { kind, codes: (first, last), negated } => {
                let is_kind =
                    kind.is_none_or(|kind| kind == view.icmp_kind && (*first..=*last).contains(&view.icmp_code));
                view.has_transport && is_kind != *negated
            }
            Self::Byte { number, negated } => (view.bytes >> number & 1 != 0) != *negated,
            Self::Mark { mask, value, negated } => (view.mark & mask == *value) != *negated,
            Self::Multiport { ports, side, negated } => view.has_transport && has_port(ports, *side, view) != *negated,
            Self::Ttl(ttl) => ttl.holds(view.ttl),
            Self::Length(length) => length.holds(view.len),
            Self::Mss(mss) if view.mss == 0 => view.has_transport && mss.negated,
            Self::Mss(mss) => mss.holds(view.mss),
            Self::Tos { mask, value, negated } => (view.tos & mask == *value) != *negated,
            Self::Range4 { range: (first, last), is_source, negated } => {
                let address = if *is_source { view.src } else { view.dst } as u32;
                (first..=last).contains(&&address) != *negated
            }
            Self::Range6 { range, is_source, negated } => {
                let address = if *is_source { view.src } else { view.dst };
                (range.0..=range.1).contains(&address) != *negated
            }
            Self::AddressType { types, limit, is_source, negated } => {
                let address = if *is_source { view.src } else { view.dst };
                let interface = match limit {
                    Some(LimitInterface::In) => view.input,
                    Some(LimitInterface::Out) => view.output,
                    None => NO_INTERFACE,
                };
                environment.paths.is_of_types(view.is_v6, address, *types, interface) != *negated
            }
            Self::Reverse { test, negated } => {
                environment.paths.passes_reverse(view.is_v6, view.src, view.dst, view.input, *test) != *negated
            }
            Self::Time(times) => times.contain(view.time),
            Self::Set { set, sides, return_nomatch, macs, negated } => {
                let has_mac = macs.is_some_and(|number| view.bytes >> number & 1 != 0);
                let found = has_mac || environment.sets.contains(*set, *sides, *return_nomatch, view, None);
                found != *negated
            }
            Self::Never => false,
        }
    }
}

fn refused(what: &str) -> NotHere {
    NotHere::Refused(what.to_string())
}

fn has_port(ports: &[(u16, u16)], side: MultiportSide, view: &View) -> bool {
    let has = |port: u16| ports.iter().any(|(first, last)| *first <= port && port <= *last);
    match side {
        MultiportSide::Source => has(view.src_port),
        MultiportSide::Destination => has(view.dst_port),
        MultiportSide::Either => has(view.src_port) || has(view.dst_port),
    }
}

fn ttl_test(test: TtlTest) -> Test {
    match test {
        TtlTest::Equal(Condition { negated, value }) => Test::Ttl(Between { first: value, last: value, negated }),
        TtlTest::Below(0) | TtlTest::Above(u8::MAX) => Test::Never,
        TtlTest::Below(value) => Test::Ttl(Between { first: 0, last: value - 1, negated: false }),
        TtlTest::Above(value) => Test::Ttl(Between { first: value + 1, last: u8::MAX, negated: false }),
    }
}

fn range_tests(ranges: &IpRange) -> Vec<Test> {
    let test = |given: Option<Condition<Interval<core::net::IpAddr>>>, is_source| {
        given.map(|Condition { negated, value: Interval { first, last } }| {
            let range = (number(first), number(last));
            match first.is_ipv6() {
                true => Test::Range6 { range: Box::new(range), is_source, negated },
                false => Test::Range4 { range: (range.0 as u32, range.1 as u32), is_source, negated },
            }
        })
    };
    [test(ranges.source, true), test(ranges.destination, false)].into_iter().flatten().collect()
}

/// net/netfilter/xt_physdev.c: of a packet that did not come through a bridge, each option holds with `!` alone.
fn physdev_tests(physdev: &Physdev) -> Vec<Test> {
    let flags = [physdev.is_in, physdev.is_out, physdev.is_bridged];
    let names = [&physdev.input, &physdev.output].map(|name| name.as_ref().map(|name| name.negated));
    match flags.into_iter().chain(names).flatten().all(|negated| negated) {
        true => Vec::new(),
        false => Vec::from([Test::Never]),
    }
}

fn address_tests(test: &AddrType, family: Family, paths: &Paths) -> Result<Vec<Test>, NotHere> {
    if paths.is_empty() {
        return Err(refused("addrtype: the addresses of the router are not known; give them with --router"));
    }
    /// The kernel refuses them for IPv6.
    const ONLY_V4: [&str; 6] = ["BROADCAST", "BLACKHOLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"];
    let mut tests = Vec::new();
    for (given, is_source) in [(test.source, true), (test.destination, false)] {
        let Some(Condition { negated, value }) = given else { continue };
        let name = ONLY_V4.iter().find(|name| family == Family::V6 && value.contains(name));
        if let Some(name) = name {
            return Err(NotHere::Refused(format!("addrtype: IPv6 has no addresses of the kind {name}")));
        }
        let names = AddressTypes::NAMES.iter().enumerate().filter(|(_, name)| value.contains(name));
        let types = names.fold(0, |types, (bit, _)| types | 1 << bit);
        tests.push(Test::AddressType { types, limit: test.limit, is_source, negated });
    }
    Ok(tests)
}

fn set_test(
    test: &SetTest,
    environment: &Environment,
    mut byte: impl FnMut(ByteTest, bool) -> Result<Test, NotHere>,
) -> Result<Test, NotHere> {
    let Condition { negated, value: (name, given) } = &test.set;
    let Some(set) = environment.sets.number_of(name) else {
        return Err(NotHere::Refused(format!("set: there is no set `{name}`; give the sets with --sets")));
    };
    if environment.sets.changes(set) {
        return Err(NotHere::State);
    }
    let sides = SideBits::of(given);
    let macs = environment.sets.macs(set);
    let macs = match given.0.first() {
        Some(is_source) if !macs.is_empty() => {
            match byte(ByteTest::MacSet { macs: macs.into(), is_source: *is_source }, false)? {
                Test::Byte { number, .. } => Some(number),
                _ => None,
            }
        }
        Some(_) | None => None,
    };
    Ok(Test::Set { set, sides, return_nomatch: test.return_nomatch, macs, negated: *negated })
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
