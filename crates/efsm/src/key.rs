//! Context keys: the values of an extractor's fields, packed into words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;

use ::packet::{Family, FlowKey, Key, hash_words};

use crate::machine::{Extractor, KeyField};
use crate::packet::{Field, Layers, Packet};

/// A context key of either form. Two keys are equal if all their fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKey {
    /// No IPv6 address among the fields.
    Short(ShortKey),
    /// With an IPv6 address, or with more fields than a short key has room for.
    Long(LongKey),
}

/// A key without IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortKey {
    /// Source and destination address, 32 bits each.
    hosts: u64,
    rest: Rest,
    other: u64,
}

/// A key of any fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LongKey {
    src: [u64; 2],
    dst: [u64; 2],
    rest: Rest,
    other: [u64; 2],
}

/// From the top: source port, destination port (16 bits each), input port (16), protocol (8), and which of the fields that engines can
/// steer by the key has (8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Rest(u64);

/// The bits that all fields of a key may have together that have no place of their own.
pub const OTHER_BITS: u32 = 128;

const HAS_SRC: u64 = 1;
const HAS_DST: u64 = 2;
const HAS_PORTS: u64 = 4;
/// Set in the long form of a short key.
const IS_SHORT: u64 = 8;

impl Rest {
    const fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    const fn ports(self) -> [u8; 4] {
        ((self.0 >> 32) as u32).to_be_bytes()
    }
}

::packet::words! {
    ShortKey: [3], key => [key.hosts, key.rest.0, key.other], words => Self {
        hosts: words[0], rest: Rest(words[1]), other: words[2]
    };
    LongKey: [7], key => {
        let (([a, b], [c, d]), [e, f]) = ((key.src, key.dst), key.other);
        [a, b, c, d, key.rest.0, e, f]
    }, words => {
        let [a, b, c, d, rest, e, f] = words;
        Self { src: [a, b], dst: [c, d], rest: Rest(rest), other: [e, f] }
    };
}

impl Key for ShortKey {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words([self.hosts, self.rest.0, self.other], seed)
    }
}

impl Key for LongKey {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let (([a, b], [c, d]), [e, f]) = ((self.src, self.dst), self.other);
        hash_words([a, b, c, d, self.rest.0, e, f], seed)
    }
}

impl FlowKey for ContextKey {
    type V4 = ShortKey;
    type V6 = LongKey;

    #[inline]
    fn family(&self) -> Family<ShortKey, LongKey> {
        match *self {
            Self::Short(key) => Family::V4(key),
            Self::Long(key) => Family::V6(key),
        }
    }

    fn from_v4(key: ShortKey) -> Self {
        Self::Short(key)
    }

    fn from_v6(key: LongKey) -> Self {
        Self::Long(key)
    }

    /// Addresses, and both ports if the key has both addresses and both ports. A key without addresses gives its other fields.
    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        let (rest, is_short) = match self {
            Self::Short(key) => (key.rest, true),
            Self::Long(key) => (key.rest, false),
        };
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            out[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        for (bit, [high, low]) in [(HAS_SRC, self.src()), (HAS_DST, self.dst())] {
            if rest.has(bit) && is_short {
                put(&(low as u32).to_be_bytes());
            } else if rest.has(bit) {
                put(&high.to_be_bytes());
                put(&low.to_be_bytes());
            }
        }
        if rest.has(HAS_SRC) && rest.has(HAS_DST) {
            if rest.has(HAS_PORTS) {
                put(&rest.ports());
            }
        } else if !rest.has(HAS_SRC) && !rest.has(HAS_DST) {
            let folded = match self {
                Self::Short(key) => key.rest.0 ^ key.other,
                Self::Long(key) => key.rest.0 ^ key.other[0] ^ key.other[1],
            };
            put(&folded.to_be_bytes());
        }
        len
    }
}

impl ContextKey {
    /// The key without any fields.
    pub const NONE: Self = Self::Short(ShortKey { hosts: 0, rest: Rest(0), other: 0 });

    /// The addresses of a packet as a key, or [`NONE`](Self::NONE) without an IP layer.
    #[inline(always)]
    #[must_use]
    pub fn of_hosts(packet: &Packet) -> Self {
        if !packet.layers.contains(Layers::IP) {
            return Self::NONE;
        }
        let mut key = Builder::default();
        key.add(KeyField::Header(Field::IpSrc), packet.src);
        key.add(KeyField::Header(Field::IpDst), packet.dst);
        key.key()
    }

    /// The key in the long form. Different keys have different long forms.
    #[inline]
    #[must_use]
    pub const fn long(&self) -> LongKey {
        match *self {
            Self::Long(key) => key,
            Self::Short(ShortKey { rest: Rest(rest), other, .. }) => {
                LongKey { src: self.src(), dst: self.dst(), rest: Rest(rest | IS_SHORT), other: [0, other] }
            }
        }
    }

    /// The key of this long form; `None` if no key has it.
    #[must_use]
    pub fn of_long(long: LongKey) -> Option<Self> {
        let LongKey { src: [src_high, src], dst: [dst_high, dst], rest, other: [other_high, other] } = long;
        if !rest.has(IS_SHORT) {
            return Some(Self::Long(long));
        }
        let fits = src_high | dst_high | other_high == 0 && (src | dst) >> 32 == 0;
        fits.then_some(Self::Short(ShortKey { hosts: src << 32 | dst, rest: Rest(rest.0 & !IS_SHORT), other }))
    }

    const fn src(&self) -> [u64; 2] {
        match self {
            Self::Short(key) => [0, key.hosts >> 32],
            Self::Long(key) => key.src,
        }
    }

    const fn dst(&self) -> [u64; 2] {
        match self {
            Self::Short(key) => [0, key.hosts & 0xffff_ffff],
            Self::Long(key) => key.dst,
        }
    }
}

/// The fields in hexadecimal, behind the addresses and ports that engines can steer by.
impl fmt::Display for ContextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rest, [high, low]) = match self {
            Self::Short(key) => (key.rest, [0, key.other]),
            Self::Long(key) => (key.rest, key.other),
        };
        let mut between = "";
        for (bit, address) in [(HAS_SRC, self.src()), (HAS_DST, self.dst())] {
            if rest.has(bit) {
                let mapped = if matches!(self, Self::Short(_)) { 0xffff << 32 } else { 0 };
                let bits = u128::from(address[0]) << 64 | u128::from(address[1] | mapped);
                write!(f, "{between}{}", Ipv6Addr::from_bits(bits).to_canonical())?;
                between = " ";
            }
        }
        write!(f, "{between}{:014x}", rest.0 >> 8)?;
        if high | low != 0 {
            write!(f, ":{high:x}:{low:016x}")?;
        }
        Ok(())
    }
}

/// The high 96 bits of an IPv4 address.
const MAPPED: u128 = 0xffff_0000_0000;
const MAPPED_MASK: u128 = !0xffff_ffff;

/// Collects the values of a key's fields.
#[derive(Default)]
struct Builder {
    src: u128,
    dst: u128,
    rest: u64,
    has_ports: u8,
    other: u128,
}

impl Builder {
    #[inline(always)]
    fn add(&mut self, place: KeyField, value: u128) {
        match place {
            KeyField::Header(Field::IpSrc) => (self.src, self.rest) = (value, self.rest | HAS_SRC),
            KeyField::Header(Field::IpDst) => (self.dst, self.rest) = (value, self.rest | HAS_DST),
            KeyField::Header(Field::L4Src) => {
                self.rest |= (value as u64) << 48;
                self.has_ports |= 1;
            }
            KeyField::Header(Field::L4Dst) => {
                self.rest |= (value as u64) << 32;
                self.has_ports |= 2;
            }
            KeyField::Header(Field::In) => self.rest |= (value as u64) << 16,
            KeyField::Header(Field::IpProto) => self.rest |= (value as u64) << 8,
            KeyField::Header(field) => self.other = self.other << field.bits() | value,
            KeyField::Meta(_) => self.other = self.other << 64 | value,
        }
    }

    #[inline(always)]
    fn key(self) -> ContextKey {
        let rest = Rest(self.rest | if self.has_ports == 3 { HAS_PORTS } else { 0 });
        let is_short = |has, address: u128| self.rest & has == 0 || address & MAPPED_MASK == MAPPED;
        if is_short(HAS_SRC, self.src) && is_short(HAS_DST, self.dst) && self.other >> 64 == 0 {
            let hosts = u64::from(self.src as u32) << 32 | u64::from(self.dst as u32);
            return ContextKey::Short(ShortKey { hosts, rest, other: self.other as u64 });
        }
        let words = |value: u128| [(value >> 64) as u64, value as u64];
        ContextKey::Long(LongKey { src: words(self.src), dst: words(self.dst), rest, other: words(self.other) })
    }
}

impl Extractor {
    /// The packet's key; `None` if the packet lacks one of the fields.
    #[inline(always)]
    #[must_use]
    pub fn key(&self, packet: &Packet, metadata: &[u64]) -> Option<ContextKey> {
        if !packet.layers.contains(self.layers) {
            return None;
        }
        if self.is_tuple {
            return Some(self.tuple(packet));
        }
        // Copied because the other way needs it in memory; on this one a packet that has just been read stays in registers.
        let packet = *packet;
        Some(self.by_fields(&packet, metadata))
    }

    /// The key of any fields.
    #[inline(never)]
    fn by_fields(&self, packet: &Packet, metadata: &[u64]) -> ContextKey {
        let reverses = self.biflow && self.ends(packet, Field::reversed) < self.ends(packet, |field| field);
        let mut key = Builder::default();
        for (field, place) in self.fields.iter().zip(&self.places) {
            let value = match *field {
                KeyField::Header(header) => if reverses { header.reversed() } else { header }.get(packet),
                KeyField::Meta(number) => metadata[usize::from(number)].into(),
            };
            key.add(*place, value);
        }
        key.key()
    }

    /// The key of addresses, ports and perhaps the protocol.
    #[inline(always)]
    fn tuple(&self, packet: &Packet) -> ContextKey {
        let &Packet { src, dst, src_port, dst_port, proto, .. } = packet;
        let reverses = self.biflow && (dst, dst_port) < (src, src_port);
        let (src, dst, ports) =
            if reverses { (dst, src, (dst_port, src_port)) } else { (src, dst, (src_port, dst_port)) };
        let proto = if self.fields.len() == 5 { proto } else { 0 };
        let ports = u64::from(ports.0) << 48 | u64::from(ports.1) << 32;
        let rest = Rest(ports | u64::from(proto) << 8 | HAS_SRC | HAS_DST | HAS_PORTS);
        if src & MAPPED_MASK == MAPPED && dst & MAPPED_MASK == MAPPED {
            let hosts = u64::from(src as u32) << 32 | u64::from(dst as u32);
            return ContextKey::Short(ShortKey { hosts, rest, other: 0 });
        }
        let words = |value: u128| [(value >> 64) as u64, value as u64];
        ContextKey::Long(LongKey { src: words(src), dst: words(dst), rest, other: [0, 0] })
    }

    /// The packet's sender, or with [`Field::reversed`] its receiver: address, port, Ethernet address, as far as the key has them.
    #[inline]
    fn ends(&self, packet: &Packet, of: impl Fn(Field) -> Field) -> (u128, u128, u128) {
        let get = |field| if self.fields.contains(&KeyField::Header(field)) { of(field).get(packet) } else { 0 };
        (get(Field::IpSrc), get(Field::L4Src), get(Field::EthSrc))
    }

    /// The key with these values of the fields, in the order of the program.
    #[must_use]
    pub fn key_of(&self, values: &[u128]) -> ContextKey {
        let get = |field| {
            let at = self.fields.iter().position(|known| *known == KeyField::Header(field));
            at.map_or(0, |at| values[at])
        };
        let end = |of: fn(Field) -> Field| (get(of(Field::IpSrc)), get(of(Field::L4Src)), get(of(Field::EthSrc)));
        let reverses = self.biflow && end(Field::reversed) < end(|field| field);
        let mut key = Builder::default();
        for ((field, place), value) in self.fields.iter().zip(&self.places).zip(values) {
            key.add(
                *place,
                match field {
                    KeyField::Header(header) if reverses => get(header.reversed()),
                    KeyField::Header(_) | KeyField::Meta(_) => *value,
                },
            );
        }
        key.key()
    }

    /// The values of the fields in a key of this extractor, in the order of the program: what [`key_of`](Self::key_of) takes.
    #[must_use]
    pub fn values(&self, key: &ContextKey) -> Vec<u128> {
        let address = |[high, low]: [u64; 2]| match key {
            ContextKey::Short(_) => MAPPED | u128::from(low),
            ContextKey::Long(_) => u128::from(high) << 64 | u128::from(low),
        };
        let (Rest(rest), [high, low]) = match key {
            ContextKey::Short(key) => (key.rest, [0, key.other]),
            ContextKey::Long(key) => (key.rest, key.other),
        };
        let mut other = u128::from(high) << 64 | u128::from(low);
        let mut take = |bits: u32| {
            let value = other & !(u128::MAX << bits);
            other >>= bits;
            value
        };
        // The last field without a place of its own is the lowest.
        let value = |place: &KeyField| match place {
            KeyField::Header(Field::IpSrc) => address(key.src()),
            KeyField::Header(Field::IpDst) => address(key.dst()),
            KeyField::Header(Field::L4Src) => u128::from(rest >> 48),
            KeyField::Header(Field::L4Dst) => u128::from(rest >> 32 & 0xffff),
            KeyField::Header(Field::In) => u128::from(rest >> 16 & 0xffff),
            KeyField::Header(Field::IpProto) => u128::from(rest >> 8 & 0xff),
            KeyField::Header(field) => take(field.bits()),
            KeyField::Meta(_) => take(64),
        };
        let mut values: Vec<u128> = self.places.iter().rev().map(value).collect();
        values.reverse();
        values
    }

    /// The key for people: each field with its value.
    #[must_use]
    pub fn show(&self, key: &ContextKey, meta: &[(String, u32)]) -> String {
        let show = |(field, value): (&KeyField, u128)| match field {
            KeyField::Header(field @ (Field::IpSrc | Field::IpDst)) => {
                format!("{}={}", field.name(), Ipv6Addr::from_bits(value).to_canonical())
            }
            KeyField::Header(field @ (Field::EthSrc | Field::EthDst)) => {
                let octets = value.to_be_bytes();
                let octets: Vec<String> = octets[10..].iter().map(|octet| format!("{octet:02x}")).collect();
                format!("{}={}", field.name(), octets.join(":"))
            }
            KeyField::Header(field) => format!("{}={value}", field.name()),
            KeyField::Meta(number) => format!("{}={value}", meta[usize::from(*number)].0),
        };
        let shown: Vec<String> = self.fields.iter().zip(self.values(key)).map(show).collect();
        shown.join(" ")
    }

    /// The bits of the fields that have no place of their own. At most [`OTHER_BITS`].
    #[must_use]
    pub(crate) fn other_bits(&self) -> u32 {
        let bits = |field: &KeyField| match field {
            KeyField::Header(
                Field::IpSrc | Field::IpDst | Field::L4Src | Field::L4Dst | Field::In | Field::IpProto,
            ) => 0,
            KeyField::Header(other) => other.bits(),
            KeyField::Meta(_) => 64,
        };
        self.fields.iter().map(bits).sum()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use crate::machine::Machine;

    fn extractor(key: &str) -> (super::Extractor, Vec<(alloc::string::String, u32)>) {
        let text = alloc::format!("meta mark = bits 0..9\nstage s\n  key {key}\n  on * : drop\n");
        let machine = Machine::compile(&text).expect("a program");
        (machine.stages[0].keys.clone().expect("it has a key").lookup, machine.meta)
    }

    #[test]
    fn a_keys_values_come_back() {
        let v4 = |last: u128| super::MAPPED | 0x0a00_0000 | last;
        let cases: [(&str, &[u128], &str); 4] = [
            ("ip.src l4.src ip.proto in", &[v4(1), 53, 17, 2], "ip.src=10.0.0.1 l4.src=53 ip.proto=17 in=2"),
            ("ip.dst ip.src", &[1 << 96, v4(7)], "ip.dst=0:1:: ip.src=10.0.0.7"),
            ("eth.src mark vlan.id", &[0xabcd, 1000, 7], "eth.src=00:00:00:00:ab:cd mark=1000 vlan.id=7"),
            (
                "biflow ip.src ip.dst l4.src l4.dst",
                &[v4(1), v4(2), 9, 8],
                "ip.src=10.0.0.1 ip.dst=10.0.0.2 l4.src=9 l4.dst=8",
            ),
        ];
        for (key, values, shown) in cases {
            let (extractor, meta) = extractor(key);
            assert_eq!(extractor.values(&extractor.key_of(values)), values, "{key}");
            assert_eq!(extractor.show(&extractor.key_of(values), &meta), shown);
        }
    }

    #[test]
    fn both_directions_of_a_preset_have_one_key() {
        let (extractor, _) = extractor("biflow ip.src ip.dst l4.src l4.dst");
        let there = vec![1 << 100, 3, 7, 80];
        let back = vec![3, 1 << 100, 80, 7];
        assert_eq!(extractor.key_of(&there), extractor.key_of(&back));
        assert_eq!(extractor.values(&extractor.key_of(&there)), back);
    }
}
