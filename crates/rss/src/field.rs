//! Header fields, and the kinds of packets that cards tell apart.

use std::fmt;

/// A header field that a card can hash, in the order in which fields stand in the hash's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Destination Ethernet address.
    DstMac,
    /// Source Ethernet address.
    SrcMac,
    /// Source IP address.
    Src,
    /// Destination IP address.
    Dst,
    /// Source port.
    SrcPort,
    /// Destination port.
    DstPort,
    /// The verification tag of SCTP.
    Tag,
}

impl Field {
    /// Every field, in the order of the hash's input.
    pub const ALL: [Self; 7] =
        [Self::DstMac, Self::SrcMac, Self::Src, Self::Dst, Self::SrcPort, Self::DstPort, Self::Tag];

    /// Fields that can name packet sets: all but the verification tag, because each direction has its own tag.
    pub const NAMED: [Self; 6] = [Self::Src, Self::Dst, Self::SrcPort, Self::DstPort, Self::SrcMac, Self::DstMac];

    /// The field's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DstMac => "dmac",
            Self::SrcMac => "smac",
            Self::Src => "src",
            Self::Dst => "dst",
            Self::SrcPort => "sport",
            Self::DstPort => "dport",
            Self::Tag => "vtag",
        }
    }

    /// The field of this name, if packet sets may be named by it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|field| field.name() == name)
    }

    /// The field that corresponds to this one in packets of the other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::DstMac => Self::SrcMac,
            Self::SrcMac => Self::DstMac,
            Self::Src => Self::Dst,
            Self::Dst => Self::Src,
            Self::SrcPort => Self::DstPort,
            Self::DstPort => Self::SrcPort,
            Self::Tag => Self::Tag,
        }
    }

    /// How many bits the field has in packets of a family.
    #[must_use]
    pub const fn bits(self, family: Family) -> usize {
        match self {
            Self::DstMac | Self::SrcMac => 48,
            Self::Src | Self::Dst => match family {
                Family::V4 => 32,
                Family::V6 => 128,
                Family::Link => 0,
            },
            Self::SrcPort | Self::DstPort => 16,
            Self::Tag => 32,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of fields.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fields(u8);

impl Fields {
    /// No field.
    pub const NONE: Self = Self(0);
    /// Both addresses.
    pub const HOSTS: Self = Self::of(&[Field::Src, Field::Dst]);
    /// Both ports.
    pub const PORTS: Self = Self::of(&[Field::SrcPort, Field::DstPort]);
    /// Addresses and ports.
    pub const FOUR: Self = Self::HOSTS.with(Self::PORTS);
    /// Both Ethernet addresses.
    pub const MACS: Self = Self::of(&[Field::SrcMac, Field::DstMac]);

    /// These fields.
    #[must_use]
    pub const fn of(fields: &[Field]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < fields.len() {
            set |= 1 << fields[index] as u8;
            index += 1;
        }
        Self(set)
    }

    /// The fields of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The fields that `other` has not.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The fields that both have.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if `field` is one of them.
    #[must_use]
    pub const fn contains(self, field: Field) -> bool {
        self.0 & 1 << field as u8 != 0
    }

    /// True if `other` has all of them.
    #[must_use]
    pub const fn is_part_of(self, other: Self) -> bool {
        self.without(other).is_empty()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The fields, in the order of the hash's input.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.contains(*field))
    }

    /// Every part of these fields but the empty one, the smallest first.
    #[must_use]
    pub fn parts(self) -> Vec<Self> {
        let mut parts: Vec<Self> = (1..=self.0).map(Self).filter(|part| part.is_part_of(self)).collect();
        parts.sort_by_key(|part| (part.len(), *part));
        parts
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        fields.into_iter().fold(Self::NONE, |set, field| set.with(Self::of(&[field])))
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let names: Vec<&str> = self.iter().map(Field::name).collect();
        f.write_str(&names.join("+"))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Address family of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Neither.
    Link,
}

/// A kind of packet that a card can be told to hash in its own way. Names are those of `ethtool` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketType {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// SCTP over IPv4.
    Sctp4,
    /// Any other protocol over IPv4.
    Other4,
    /// Fragments of IPv4 datagrams: later ones have no ports, so no card reads ports from any.
    Frag4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
    /// SCTP over IPv6.
    Sctp6,
    /// Any other protocol over IPv6.
    Other6,
    /// Fragments of IPv6 datagrams.
    Frag6,
    /// Packets without IP.
    Ether,
}

impl PacketType {
    /// Every type.
    pub const ALL: [Self; 11] = [
        Self::Tcp4,
        Self::Udp4,
        Self::Sctp4,
        Self::Other4,
        Self::Frag4,
        Self::Tcp6,
        Self::Udp6,
        Self::Sctp6,
        Self::Other6,
        Self::Frag6,
        Self::Ether,
    ];

    /// The type's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Sctp4 => "sctp4",
            Self::Other4 => "other4",
            Self::Frag4 => "frag4",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
            Self::Sctp6 => "sctp6",
            Self::Other6 => "other6",
            Self::Frag6 => "frag6",
            Self::Ether => "ether",
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What its addresses are.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Tcp4 | Self::Udp4 | Self::Sctp4 | Self::Other4 | Self::Frag4 => Family::V4,
            Self::Tcp6 | Self::Udp6 | Self::Sctp6 | Self::Other6 | Self::Frag6 => Family::V6,
            Self::Ether => Family::Link,
        }
    }

    /// The fields that packets of this type have.
    #[must_use]
    pub const fn fields(self) -> Fields {
        match self {
            Self::Tcp4 | Self::Udp4 | Self::Tcp6 | Self::Udp6 => Fields::MACS.with(Fields::FOUR),
            Self::Sctp4 | Self::Sctp6 => Fields::MACS.with(Fields::FOUR).with(Fields::of(&[Field::Tag])),
            Self::Other4 | Self::Frag4 | Self::Other6 | Self::Frag6 => Fields::MACS.with(Fields::HOSTS),
            Self::Ether => Fields::MACS,
        }
    }

    /// First bit of a field in the hash input if a card hashes `selection`: fields follow each other, as in Microsoft's specification for
    /// addresses and ports.
    #[must_use]
    pub fn offset(self, selection: Fields, field: Field) -> Option<usize> {
        let ahead = selection.iter().take_while(|other| *other != field).map(|other| other.bits(self.family()));
        selection.contains(field).then(|| ahead.sum())
    }

    /// Number of bits of the hash input.
    #[must_use]
    pub fn input_bits(self, selection: Fields) -> usize {
        selection.iter().map(|field| field.bits(self.family())).sum()
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_microsofts() {
        let at = |kind: PacketType, field| kind.offset(Fields::FOUR, field);
        assert_eq!(
            [Field::Src, Field::Dst, Field::SrcPort, Field::DstPort].map(|field| at(PacketType::Tcp4, field)),
            [Some(0), Some(32), Some(64), Some(80)]
        );
        assert_eq!(
            [Field::Src, Field::Dst, Field::SrcPort, Field::DstPort].map(|field| at(PacketType::Udp6, field)),
            [Some(0), Some(128), Some(256), Some(272)]
        );
        assert_eq!(at(PacketType::Tcp4, Field::Tag), None);
        assert_eq!(PacketType::Tcp4.offset(Fields::of(&[Field::Dst]), Field::Dst), Some(0));
        assert_eq!((PacketType::Tcp4.input_bits(Fields::FOUR), PacketType::Tcp6.input_bits(Fields::FOUR)), (96, 288));
    }

    #[test]
    fn sets_of_fields() {
        assert_eq!(Fields::FOUR.to_string(), "src+dst+sport+dport");
        assert_eq!(Fields::NONE.to_string(), "nothing");
        assert_eq!(Fields::HOSTS.parts().len(), 3);
        assert_eq!(Fields::FOUR.parts().last(), Some(&Fields::FOUR));
        assert!(Fields::HOSTS.is_part_of(Fields::FOUR) && !Fields::FOUR.is_part_of(Fields::HOSTS));
        for field in Field::ALL {
            assert_eq!(field.opposite().opposite(), field);
            for family in [Family::V4, Family::V6, Family::Link] {
                assert_eq!(field.bits(family), field.opposite().bits(family));
            }
        }
        for kind in PacketType::ALL {
            assert_eq!(PacketType::named(kind.name()), Some(kind));
        }
    }
}
