//! Checks of a function that the compiler can't make: they run when a function is registered.

use std::fmt;

use nf::{ConfigKey, Description, Meta, NetworkFunction, PacketSet};
use packet::toeplitz::SymmetricToeplitz;
use packet::{FlowKey, LinkType, RssFields, TcpFlags};
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use synth::Build;

/// Describes how the keys in a function's description differ from those of its configuration `C`, if they do.
pub(super) fn keys<C: DeserializeOwned>(description: &Description) -> Option<String> {
    let mut fields = None;
    let _ = C::deserialize(Fields(&mut fields));
    let fields = fields?;
    let first = |key: &ConfigKey| key.name.split('.').next().unwrap_or_default();
    let listed = |field: &&str| description.keys.iter().any(|key| first(key) == *field);
    if let Some(field) = fields.iter().find(|field| !listed(field)) {
        return Some(format!("its configuration has the key `{field}`, which DESCRIPTION.keys doesn't list"));
    }
    let key = description.keys.iter().find(|key| !fields.contains(&first(key)))?;
    Some(format!("DESCRIPTION.keys lists `{}`, which its configuration doesn't have", key.name))
}

/// A field of a packet that a packet set may be named by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    SourceAddress,
    DestinationAddress,
    SourcePort,
    DestinationPort,
}

impl Field {
    const ALL: [Self; 4] = [Self::SourceAddress, Self::DestinationAddress, Self::SourcePort, Self::DestinationPort];

    const fn name(self) -> &'static str {
        match self {
            Self::SourceAddress => "source address",
            Self::DestinationAddress => "destination address",
            Self::SourcePort => "source port",
            Self::DestinationPort => "destination port",
        }
    }

    /// The fields that name packet sets of this kind; `None` where no field of a packet alone does.
    fn of(set: PacketSet) -> Option<&'static [Self]> {
        match set {
            PacketSet::FiveTuple | PacketSet::SymmetricFiveTuple => Some(&Self::ALL),
            PacketSet::Source => Some(&[Self::SourceAddress]),
            PacketSet::Destination => Some(&[Self::DestinationAddress]),
            PacketSet::SourceDestination => Some(&[Self::SourceAddress, Self::DestinationAddress]),
            PacketSet::None
            | PacketSet::Initiator
            | PacketSet::SourceMac
            | PacketSet::Tunnel
            | PacketSet::Connection => None,
        }
    }
}

/// Describes how a function's keys differ from the packet set in its description, if they do, with packets that differ in one field.
pub(super) fn packet_set<N: NetworkFunction>(nf: &N) -> Option<String> {
    let set = nf.packet_set();
    let fields = Field::of(set)?;
    let key = |probe: &Probe| {
        let frame = probe.frame();
        let headers = packet::parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).ok()?;
        let key = nf.meta(&headers, &frame)?.key();
        Some((key, RssFields::read(LinkType::Ethernet, &frame)))
    };
    let steered = SymmetricToeplitz::new();
    for probe in Probe::all() {
        let Some((own, read)) = key(&probe) else { continue };
        for field in Field::ALL {
            let Some((other, _)) = key(&probe.with(field)) else { continue };
            let (named, name) = (fields.contains(&field), field.name());
            if named && own == other {
                return Some(format!(
                    "its packet set is {set}, but packets with different {name} have the same key: `Meta::key` must \
                     use all fields of `packet_set`, otherwise several cores get the same flow"
                ));
            }
            if !named && own != other {
                return Some(format!(
                    "its packet set is {set}, but packets that differ only in {name} have different keys: `Meta::key` \
                     must use only fields of `packet_set`"
                ));
            }
        }
        if set == PacketSet::SymmetricFiveTuple && key(&probe.reversed()).is_some_and(|(back, _)| back != own) {
            return Some(format!(
                "its packet set is {set}, but a packet and its answer have different keys: make the key with \
                 `FiveTuple::symmetric`"
            ));
        }
        if let (Some(mask), Some(read)) = (set.rss_mask(), read)
            && steered.hash(read.masked(mask).folded()) != steered.hash(own.rss_fields().folded())
        {
            return Some(format!("its packet set is {set}, but `FlowKey::rss_fields` of its key names other fields"));
        }
    }
    None
}

/// A packet that a function may be interested in.
#[derive(Clone, Copy)]
struct Probe {
    v6: bool,
    /// The last part of each address, then the ports.
    fields: [u16; 4],
    flags: Option<TcpFlags>,
}

impl Probe {
    /// TCP and UDP of both families, with a well-known port on one side or the other.
    fn all() -> impl Iterator<Item = Self> {
        let ports = [(40_000, 80), (40_000, 443), (40_000, 53), (80, 40_000), (53, 40_000), (40_001, 40_002)];
        let kinds = [None, Some(TcpFlags::SYN), Some(TcpFlags(0x12)), Some(TcpFlags::ACK), Some(TcpFlags::RST)];
        let all = ports.into_iter().flat_map(move |ports| kinds.into_iter().map(move |flags| (ports, flags)));
        all.flat_map(|((src, dst), flags)| [false, true].map(|v6| Self { v6, fields: [7, 9, src, dst], flags }))
    }

    const fn with(mut self, field: Field) -> Self {
        self.fields[field as usize] += 1000;
        if matches!(field, Field::SourceAddress | Field::DestinationAddress) {
            self.fields[field as usize] %= 251;
        }
        self
    }

    const fn reversed(mut self) -> Self {
        let [src, dst, src_port, dst_port] = self.fields;
        self.fields = [dst, src, dst_port, src_port];
        self
    }

    fn frame(&self) -> Vec<u8> {
        let [src, dst, src_port, dst_port] = self.fields;
        let end = |part: u16, port: u16| match self.v6 {
            true => format!("[2001:db8::{part:x}]:{port}"),
            false => format!("192.168.1.{part}:{port}"),
        };
        let (from, to) = (end(src, src_port), end(dst, dst_port));
        match self.flags {
            Some(flags) => Build::tcp(from.as_str(), to.as_str()).flags(flags).bytes(),
            None => Build::udp(from.as_str(), to.as_str()).payload(20).bytes(),
        }
    }
}

/// Asks a configuration for the names of its fields, and gives it none.
struct Fields<'a>(&'a mut Option<&'static [&'static str]>);

/// Enough is known.
#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only the names of fields were asked for")
    }
}

impl std::error::Error for Stop {}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Stop> {
        *self.0 = Some(fields);
        Err(Stop)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}
