//! Keys name packet sets: five-tuples, hosts, Ethernet addresses. IPv4 keys stay small; IPv6 keys are types of their
//! own, so that an IPv4 flow never pays for an IPv6 address.

use core::fmt;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::headers::Mac;

/// Something that a flow table can be keyed by.
pub trait Key: Copy + Eq + Ord + fmt::Debug + Send + Sync + 'static {
    /// A hash of the key under a secret `seed`: all 64 bits usable, top bits as good as low ones.
    fn hash(&self, seed: u64) -> u64;
}

/// A key of either address family, as functions name it.
pub trait FlowKey: Copy + Eq + Ord + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The IPv4 form.
    type V4: Key;
    /// The IPv6 form. [`NoKey`] where a key has one form only.
    type V6: Key;

    /// Which family this key is of.
    fn family(&self) -> Family<Self::V4, Self::V6>;

    /// The key back from its IPv4 form.
    fn from_v4(key: Self::V4) -> Self;

    /// The key back from its IPv6 form.
    fn from_v6(key: Self::V6) -> Self;

    /// Writes the bytes that receive-side scaling hashes, in the order of Microsoft's specification (addresses, then
    /// ports, network byte order), and returns how many: 4, 8, 12, 16, 32 or 36.
    fn rss_input(&self, out: &mut [u8; 36]) -> usize;
}

/// One of two forms of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family<A, B> {
    /// IPv4 (or the only form).
    V4(A),
    /// IPv6.
    V6(B),
}

/// The key that does not exist: the IPv6 form of keys that have one form only.
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

#[inline]
const fn hash_words<const N: usize>(words: [u64; N], seed: u64) -> u64 {
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

/// An IPv4 five-tuple in 128 bits: source, destination, source port, destination port, protocol, zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple4(u128);

/// An IPv6 five-tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple6 {
    src: u128,
    dst: u128,
    /// Source port, destination port, protocol, zeros.
    rest: u64,
}

impl FiveTuple4 {
    #[inline]
    const fn new(src: u32, dst: u32, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self(
            (src as u128) << 96
                | (dst as u128) << 64
                | (src_port as u128) << 48
                | (dst_port as u128) << 32
                | (protocol as u128) << 24,
        )
    }

    #[inline]
    const fn src(self) -> u32 {
        (self.0 >> 96) as u32
    }

    #[inline]
    const fn dst(self) -> u32 {
        (self.0 >> 64) as u32
    }

    #[inline]
    const fn src_port(self) -> u16 {
        (self.0 >> 48) as u16
    }

    #[inline]
    const fn dst_port(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline]
    const fn protocol(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

impl FiveTuple6 {
    #[inline]
    const fn new(src: u128, dst: u128, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let rest = (src_port as u64) << 48 | (dst_port as u64) << 32 | (protocol as u64) << 24;
        Self { src, dst, rest }
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
        hash_words([(self.0 >> 64) as u64, self.0 as u64], seed)
    }
}

impl Key for FiveTuple6 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let (src, dst) = (self.src, self.dst);
        hash_words([(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, self.rest], seed)
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
            Self::V6(t) => Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(t.src)), t.src_port()),
        }
    }

    /// Who is sent to.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Endpoint {
        match self {
            Self::V4(t) => Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(t.dst())), t.dst_port()),
            Self::V6(t) => Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(t.dst)), t.dst_port()),
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
            Self::V4(t) => Self::V4(FiveTuple4::new(t.dst(), t.src(), t.dst_port(), t.src_port(), t.protocol())),
            Self::V6(t) => Self::V6(FiveTuple6::new(t.dst, t.src, t.dst_port(), t.src_port(), t.protocol())),
        }
    }

    /// The symmetric form, the same for both directions, and whether this tuple is already it: the smaller endpoint
    /// (address, then port) comes first.
    #[inline]
    #[must_use]
    pub const fn symmetric(&self) -> (Self, bool) {
        let in_order = match self {
            Self::V4(t) => {
                let (src, dst) = (t.src(), t.dst());
                src < dst || (src == dst && t.src_port() <= t.dst_port())
            }
            Self::V6(t) => t.src < t.dst || (t.src == t.dst && t.src_port() <= t.dst_port()),
        };
        if in_order { (*self, true) } else { (self.reversed(), false) }
    }
}

impl FlowKey for FiveTuple {
    type V4 = FiveTuple4;
    type V6 = FiveTuple6;

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
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        match self {
            Self::V4(t) => {
                out[..12].copy_from_slice(&t.0.to_be_bytes()[..12]);
                12
            }
            Self::V6(t) => {
                out[..16].copy_from_slice(&t.src.to_be_bytes());
                out[16..32].copy_from_slice(&t.dst.to_be_bytes());
                out[32..].copy_from_slice(&t.rest.to_be_bytes()[..4]);
                36
            }
        }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} proto {}", self.source(), self.destination(), self.protocol())
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

/// An IPv6 address as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host6(u128);

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
        Self::V6(Host6(address.to_bits()))
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        match self {
            Self::V4(host) => IpAddr::V4(Ipv4Addr::from_bits(host.0)),
            Self::V6(host) => IpAddr::V6(Ipv6Addr::from_bits(host.0)),
        }
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
        hash_words([(self.0 >> 64) as u64, self.0 as u64], seed)
    }
}

impl FlowKey for Host {
    type V4 = Host4;
    type V6 = Host6;

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
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        match self {
            Self::V4(host) => {
                out[..4].copy_from_slice(&host.0.to_be_bytes());
                4
            }
            Self::V6(host) => {
                out[..16].copy_from_slice(&host.0.to_be_bytes());
                16
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
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
