//! Flow keys: five-tuples, hosts, host pairs, Ethernet addresses. IPv4 keys are small; IPv6 keys have separate types, so that an IPv4
//! flow needs no room for an IPv6 address.

use core::fmt;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::headers::Mac;
use crate::rss::RssFields;

mod words;

pub use words::Words;

/// A key of a flow table.
pub trait Key: Copy + Eq + Ord + fmt::Debug + Send + Sync + 'static {
    /// Hash of the key with a secret `seed`; all 64 bits are equally good.
    fn hash(&self, seed: u64) -> u64;
}

/// A key of either address family, as functions use it.
pub trait FlowKey: Copy + Eq + Ord + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The IPv4 form.
    type V4: Key + Words;
    /// The IPv6 form; [`NoKey`] if the key has one form only.
    type V6: Key + Words;

    /// Which family this key is of.
    fn family(&self) -> Family<Self::V4, Self::V6>;

    /// The key back from its IPv4 form.
    fn from_v4(key: Self::V4) -> Self;

    /// The key back from its IPv6 form.
    fn from_v6(key: Self::V6) -> Self;

    /// True if all keys can be [five-tuples](Self::to_tuple).
    const IS_TUPLE: bool = false;

    /// The key as a five-tuple, with zeros for the fields that it lacks; `None` if it has fields that a five-tuple has not.
    #[inline]
    fn to_tuple(&self) -> Option<FiveTuple> {
        None
    }

    /// Writes the bytes that receive-side scaling hashes, in the order of Microsoft's specification (addresses, then ports, network byte
    /// order). Returns their number: 4, 8, 12, 16, 32 or 36.
    fn rss_input(&self, out: &mut [u8; 36]) -> usize;

    /// The fields of that input, each folded into one word. A key without addresses and ports is folded into the source address.
    #[inline]
    fn rss_fields(&self) -> RssFields {
        let mut input = [0; 36];
        let len = self.rss_input(&mut input);
        let folded = input[..len].as_chunks::<4>().0.iter().fold(0, |folded, word| folded ^ u32::from_be_bytes(*word));
        RssFields { src: folded.to_be_bytes(), ..RssFields::default() }
    }
}

/// Both halves of a word, folded into one.
#[inline(always)]
const fn halves(word: u64) -> u32 {
    (word >> 32) as u32 ^ word as u32
}

/// One of two forms of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family<A, B> {
    /// IPv4 (or the only form).
    V4(A),
    /// IPv6.
    V6(B),
}

/// A key that can't exist: the IPv6 form of keys with one form only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoKey {}

impl Key for NoKey {
    fn hash(&self, _: u64) -> u64 {
        match *self {}
    }
}

const SECRET: [u64; 3] = [0x2d35_8dcc_aa6c_78a5, 0x8bb8_4b93_962e_acc9, 0x4b33_a62e_d433_d4a3];

/// Multiplies to 128 bits and folds the halves: the mixing step of the wyhash family.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Hash of some words with a secret `seed`, for a [`Key`] that is made of them; all 64 bits are equally good.
#[inline]
#[must_use]
pub const fn hash_words<const N: usize>(words: [u64; N], seed: u64) -> u64 {
    let mut state = seed ^ SECRET[0];
    let mut index = 0;
    while index + 1 < N {
        state = fold(words[index] ^ SECRET[1] ^ state, words[index + 1] ^ seed ^ SECRET[2]);
        index += 2;
    }
    if index < N {
        state = fold(words[index] ^ SECRET[1] ^ state, seed ^ SECRET[2]);
    }
    fold(state ^ SECRET[0], seed ^ SECRET[1])
}

/// An address and a port. For ICMP queries the port is the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint of these parts.
    #[must_use]
    pub const fn new(address: IpAddr, port: u16) -> Self {
        Self { address, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// The five fields that name a flow, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FiveTuple {
    /// IPv4.
    V4(FiveTuple4),
    /// IPv6.
    V6(FiveTuple6),
}

/// An IPv4 five-tuple in 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple4 {
    /// Source, destination.
    hosts: u64,
    /// Source port, destination port, protocol, zeros.
    rest: u64,
}

/// An IPv6 five-tuple in 40 bytes. Addresses stand in halves, for a `u128` would align a table's entries to 16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple6 {
    hosts: HostPair6,
    /// Source port, destination port, protocol, zeros.
    rest: u64,
}

/// Source port, destination port, protocol, zeros.
#[inline]
const fn pack(src_port: u16, dst_port: u16, protocol: u8) -> u64 {
    (src_port as u64) << 48 | (dst_port as u64) << 32 | (protocol as u64) << 24
}

/// With the two ports in each other's place.
#[inline]
const fn swap_ports(rest: u64) -> u64 {
    let ports = (rest >> 32) as u32;
    (ports.rotate_left(16) as u64) << 32 | rest & 0xffff_ffff
}

impl FiveTuple4 {
    #[inline]
    const fn new(src: u32, dst: u32, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self { hosts: (src as u64) << 32 | dst as u64, rest: pack(src_port, dst_port, protocol) }
    }

    #[inline]
    const fn src(self) -> u32 {
        (self.hosts >> 32) as u32
    }

    #[inline]
    const fn dst(self) -> u32 {
        self.hosts as u32
    }

    #[inline]
    const fn src_port(self) -> u16 {
        (self.rest >> 48) as u16
    }

    #[inline]
    const fn dst_port(self) -> u16 {
        (self.rest >> 32) as u16
    }

    #[inline]
    const fn protocol(self) -> u8 {
        (self.rest >> 24) as u8
    }

    /// See [`FiveTuple::symmetric`]. Uses a mask instead of a branch, because the order of the endpoints is unpredictable.
    #[inline(always)]
    const fn symmetric(self) -> (Self, bool) {
        let [src, dst] =
            [(self.src() as u64) << 16 | self.src_port() as u64, (self.dst() as u64) << 16 | self.dst_port() as u64];
        let in_order = src <= dst;
        let swapped = Self { hosts: self.hosts.rotate_left(32), rest: swap_ports(self.rest) };
        let mask = (in_order as u64).wrapping_sub(1);
        let hosts = self.hosts ^ (self.hosts ^ swapped.hosts) & mask;
        let rest = self.rest ^ (self.rest ^ swapped.rest) & mask;
        (Self { hosts, rest }, in_order)
    }
}

impl FiveTuple6 {
    #[inline]
    const fn new(src: u128, dst: u128, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self { hosts: HostPair6::new(src, dst), rest: pack(src_port, dst_port, protocol) }
    }

    #[inline]
    const fn src_port(self) -> u16 {
        (self.rest >> 48) as u16
    }

    #[inline]
    const fn dst_port(self) -> u16 {
        (self.rest >> 32) as u16
    }

    #[inline]
    const fn protocol(self) -> u8 {
        (self.rest >> 24) as u8
    }
}

impl Key for FiveTuple4 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words([self.hosts, self.rest], seed)
    }
}

impl Key for FiveTuple6 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let [a, b] = self.hosts.src;
        let [c, d] = self.hosts.dst;
        hash_words([a, b, c, d, self.rest], seed)
    }
}

impl FiveTuple {
    /// An IPv4 five-tuple.
    #[inline]
    #[must_use]
    pub const fn v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self::V4(FiveTuple4::new(src.to_bits(), dst.to_bits(), src_port, dst_port, protocol))
    }

    /// An IPv6 five-tuple.
    #[inline]
    #[must_use]
    pub const fn v6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self::V6(FiveTuple6::new(src.to_bits(), dst.to_bits(), src_port, dst_port, protocol))
    }

    /// The five-tuple of packets that go from `source` to `destination`; `None` when the families differ.
    #[must_use]
    pub const fn between(source: Endpoint, destination: Endpoint, protocol: u8) -> Option<Self> {
        match (source.address, destination.address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::v4(src, dst, source.port, destination.port, protocol)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::v6(src, dst, source.port, destination.port, protocol)),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Who sends.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> Endpoint {
        match self {
            Self::V4(t) => Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(t.src())), t.src_port()),
            Self::V6(t) => Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(join(t.hosts.src))), t.src_port()),
        }
    }

    /// Who is sent to.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Endpoint {
        match self {
            Self::V4(t) => Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(t.dst())), t.dst_port()),
            Self::V6(t) => Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(join(t.hosts.dst))), t.dst_port()),
        }
    }

    /// The protocol number.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::V4(t) => t.protocol(),
            Self::V6(t) => t.protocol(),
        }
    }

    /// The tuple of packets that come back.
    #[inline]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        match self {
            Self::V4(t) => Self::V4(FiveTuple4 { hosts: t.hosts.rotate_left(32), rest: swap_ports(t.rest) }),
            Self::V6(t) => Self::V6(FiveTuple6 { hosts: t.hosts.reversed(), rest: swap_ports(t.rest) }),
        }
    }

    /// The symmetric form, which is the same for both directions: the smaller endpoint (address, then port) comes first. Also returns
    /// true if this tuple is already in that form.
    #[inline]
    #[must_use]
    pub const fn symmetric(&self) -> (Self, bool) {
        match self {
            Self::V4(t) => {
                let (tuple, in_order) = t.symmetric();
                (Self::V4(tuple), in_order)
            }
            Self::V6(t) => {
                let (src, dst) = (join(t.hosts.src), join(t.hosts.dst));
                let in_order = src < dst || (src == dst && t.src_port() <= t.dst_port());
                if in_order { (*self, true) } else { (self.reversed(), false) }
            }
        }
    }
}

impl FlowKey for FiveTuple {
    type V4 = FiveTuple4;
    type V6 = FiveTuple6;
    const IS_TUPLE: bool = true;

    #[inline]
    fn family(&self) -> Family<FiveTuple4, FiveTuple6> {
        match *self {
            Self::V4(key) => Family::V4(key),
            Self::V6(key) => Family::V6(key),
        }
    }

    fn from_v4(key: FiveTuple4) -> Self {
        Self::V4(key)
    }

    fn from_v6(key: FiveTuple6) -> Self {
        Self::V6(key)
    }

    #[inline]
    fn to_tuple(&self) -> Option<FiveTuple> {
        Some(*self)
    }

    #[inline]
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        match self {
            Self::V4(t) => {
                out[..8].copy_from_slice(&t.hosts.to_be_bytes());
                out[8..12].copy_from_slice(&t.rest.to_be_bytes()[..4]);
                12
            }
            Self::V6(t) => {
                t.hosts.write(out);
                out[32..].copy_from_slice(&t.rest.to_be_bytes()[..4]);
                36
            }
        }
    }

    /// Without a way over memory.
    #[inline]
    fn rss_fields(&self) -> RssFields {
        let (src, dst, rest) = match self {
            Self::V4(FiveTuple4 { hosts, rest }) => ((*hosts >> 32) as u32, *hosts as u32, *rest),
            Self::V6(FiveTuple6 { hosts: HostPair6 { src, dst }, rest }) => {
                (halves(src[0] ^ src[1]), halves(dst[0] ^ dst[1]), *rest)
            }
        };
        RssFields { src: src.to_be_bytes(), dst: dst.to_be_bytes(), ports: ((rest >> 32) as u32).to_be_bytes() }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} ", self.source(), self.destination())?;
        match crate::protocol::name(self.protocol()) {
            Some(name) => f.write_str(name),
            None => write!(f, "protocol {}", self.protocol()),
        }
    }
}

impl fmt::Debug for FiveTuple4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&FiveTuple::V4(*self), f)
    }
}

impl fmt::Debug for FiveTuple6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&FiveTuple::V6(*self), f)
    }
}

/// One address of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// IPv4.
    V4(Host4),
    /// IPv6.
    V6(Host6),
}

/// An IPv4 address as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host4(u32);

/// An IPv6 address as a key, in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host6([u64; 2]);

#[inline]
const fn split(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

#[inline]
const fn join([high, low]: [u64; 2]) -> u128 {
    (high as u128) << 64 | low as u128
}

impl Host {
    /// An IPv4 host.
    #[inline]
    #[must_use]
    pub const fn v4(address: Ipv4Addr) -> Self {
        Self::V4(Host4(address.to_bits()))
    }

    /// An IPv6 host.
    #[inline]
    #[must_use]
    pub const fn v6(address: Ipv6Addr) -> Self {
        Self::V6(Host6(split(address.to_bits())))
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        match self {
            Self::V4(host) => IpAddr::V4(Ipv4Addr::from_bits(host.0)),
            Self::V6(host) => IpAddr::V6(Ipv6Addr::from_bits(join(host.0))),
        }
    }
}

impl Host4 {
    /// The IPv6 form of the address (::ffff:a.b.c.d).
    #[inline]
    #[must_use]
    pub const fn mapped(self) -> Host6 {
        Host6([0, 0xffff_0000_0000 | self.0 as u64])
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::v4(address),
            IpAddr::V6(address) => Self::v6(address),
        }
    }
}

impl Key for Host4 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words([u64::from(self.0)], seed)
    }
}

impl Key for Host6 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words(self.0, seed)
    }
}

impl FlowKey for Host {
    type V4 = Host4;
    type V6 = Host6;
    const IS_TUPLE: bool = true;

    #[inline]
    fn family(&self) -> Family<Host4, Host6> {
        match *self {
            Self::V4(key) => Family::V4(key),
            Self::V6(key) => Family::V6(key),
        }
    }

    fn from_v4(key: Host4) -> Self {
        Self::V4(key)
    }

    fn from_v6(key: Host6) -> Self {
        Self::V6(key)
    }

    #[inline]
    fn to_tuple(&self) -> Option<FiveTuple> {
        Some(match *self {
            Self::V4(host) => FiveTuple::V4(FiveTuple4::new(host.0, 0, 0, 0, 0)),
            Self::V6(host) => FiveTuple::V6(FiveTuple6::new(join(host.0), 0, 0, 0, 0)),
        })
    }

    #[inline]
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        match self {
            Self::V4(host) => {
                out[..4].copy_from_slice(&host.0.to_be_bytes());
                4
            }
            Self::V6(host) => {
                out[..16].copy_from_slice(&join(host.0).to_be_bytes());
                16
            }
        }
    }

    /// Without a way over memory.
    #[inline]
    fn rss_fields(&self) -> RssFields {
        let src = match self {
            Self::V4(host) => host.0,
            Self::V6(Host6([high, low])) => halves(high ^ low),
        };
        RssFields { src: src.to_be_bytes(), ..RssFields::default() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// A source and a destination address, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPair {
    /// IPv4.
    V4(HostPair4),
    /// IPv6.
    V6(HostPair6),
}

/// Two IPv4 addresses as a key: source, destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPair4(u64);

/// Two IPv6 addresses as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPair6 {
    src: [u64; 2],
    dst: [u64; 2],
}

impl HostPair {
    /// Two IPv4 hosts.
    #[inline]
    #[must_use]
    pub const fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self::V4(HostPair4((src.to_bits() as u64) << 32 | dst.to_bits() as u64))
    }

    /// Two IPv6 hosts.
    #[inline]
    #[must_use]
    pub const fn v6(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self::V6(HostPair6::new(src.to_bits(), dst.to_bits()))
    }

    /// The source address.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(pair) => IpAddr::V4(Ipv4Addr::from_bits((pair.0 >> 32) as u32)),
            Self::V6(pair) => IpAddr::V6(Ipv6Addr::from_bits(join(pair.src))),
        }
    }

    /// The destination address.
    #[must_use]
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(pair) => IpAddr::V4(Ipv4Addr::from_bits(pair.0 as u32)),
            Self::V6(pair) => IpAddr::V6(Ipv6Addr::from_bits(join(pair.dst))),
        }
    }
}

impl HostPair6 {
    #[inline]
    const fn new(src: u128, dst: u128) -> Self {
        Self { src: split(src), dst: split(dst) }
    }

    #[inline]
    const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }

    #[inline]
    fn write(&self, out: &mut [u8; 36]) {
        out[..16].copy_from_slice(&join(self.src).to_be_bytes());
        out[16..32].copy_from_slice(&join(self.dst).to_be_bytes());
    }
}

impl Key for HostPair4 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words([self.0], seed)
    }
}

impl Key for HostPair6 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let ([a, b], [c, d]) = (self.src, self.dst);
        hash_words([a, b, c, d], seed)
    }
}

impl FlowKey for HostPair {
    type V4 = HostPair4;
    type V6 = HostPair6;
    const IS_TUPLE: bool = true;

    #[inline]
    fn family(&self) -> Family<HostPair4, HostPair6> {
        match *self {
            Self::V4(key) => Family::V4(key),
            Self::V6(key) => Family::V6(key),
        }
    }

    fn from_v4(key: HostPair4) -> Self {
        Self::V4(key)
    }

    fn from_v6(key: HostPair6) -> Self {
        Self::V6(key)
    }

    #[inline]
    fn to_tuple(&self) -> Option<FiveTuple> {
        Some(match *self {
            Self::V4(pair) => FiveTuple::V4(FiveTuple4 { hosts: pair.0, rest: 0 }),
            Self::V6(pair) => FiveTuple::V6(FiveTuple6 { hosts: pair, rest: 0 }),
        })
    }

    #[inline]
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        match self {
            Self::V4(pair) => {
                out[..8].copy_from_slice(&pair.0.to_be_bytes());
                8
            }
            Self::V6(pair) => {
                pair.write(out);
                32
            }
        }
    }

    /// Without a way over memory.
    #[inline]
    fn rss_fields(&self) -> RssFields {
        let (src, dst) = match self {
            Self::V4(pair) => ((pair.0 >> 32) as u32, pair.0 as u32),
            Self::V6(HostPair6 { src, dst }) => (halves(src[0] ^ src[1]), halves(dst[0] ^ dst[1])),
        };
        RssFields { src: src.to_be_bytes(), dst: dst.to_be_bytes(), ..RssFields::default() }
    }
}

impl fmt::Display for HostPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source(), self.destination())
    }
}

impl Key for Mac {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        hash_words([u64::from_be_bytes([0, 0, a, b, c, d, e, f])], seed)
    }
}

impl FlowKey for Mac {
    type V4 = Self;
    type V6 = NoKey;

    #[inline]
    fn family(&self) -> Family<Self, NoKey> {
        Family::V4(*self)
    }

    fn from_v4(key: Self) -> Self {
        key
    }

    fn from_v6(key: NoKey) -> Self {
        match key {}
    }

    #[inline]
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        // Cards hash Ethernet addresses zero-extended to whole words.
        out[..2].fill(0);
        out[2..8].copy_from_slice(&self.0);
        8
    }
}

#[cfg(test)]
mod tests;
