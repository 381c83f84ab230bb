//! Information elements (IANA's registry, RFC 7012) and the templates that are made of them.

use std::net::IpAddr;

use packet::{Nanos, protocol};

use crate::encoder::Statistics;
use crate::meter::key::has_ports;
use crate::record::FlowRecord;

/// The enterprise number of reverse elements, which speak of packets from the destination to the source (RFC 5103).
const REVERSE: u32 = 29_305;

/// The unit of flowStart and flowEnd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Milliseconds, which all collectors read.
    #[default]
    Milliseconds,
    /// Nanoseconds, as NTP time stamps (RFC 7011, section 6.1.10).
    Nanoseconds,
}

/// An element, by its number in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Element {
    OctetDeltaCount = 1,
    PacketDeltaCount = 2,
    ProtocolIdentifier = 4,
    IpClassOfService = 5,
    TcpControlBits = 6,
    SourceTransportPort = 7,
    SourceIpv4Address = 8,
    IngressInterface = 10,
    DestinationTransportPort = 11,
    DestinationIpv4Address = 12,
    SourceIpv6Address = 27,
    DestinationIpv6Address = 28,
    IcmpTypeCodeIpv4 = 32,
    ExportedMessageTotalCount = 41,
    ExportedFlowRecordTotalCount = 42,
    VlanId = 58,
    FlowEndReason = 136,
    IcmpTypeCodeIpv6 = 139,
    ObservationDomainId = 149,
    FlowStartMilliseconds = 152,
    FlowEndMilliseconds = 153,
    FlowStartNanoseconds = 156,
    FlowEndNanoseconds = 157,
    IgnoredPacketTotalCount = 164,
    NotSentFlowTotalCount = 166,
    NotSentPacketTotalCount = 167,
    NotSentOctetTotalCount = 168,
    BiflowDirection = 239,
}

impl Element {
    /// Its length in records, in bytes.
    const fn len(self) -> u16 {
        match self {
            Self::ProtocolIdentifier | Self::IpClassOfService | Self::FlowEndReason | Self::BiflowDirection => 1,
            Self::TcpControlBits
            | Self::SourceTransportPort
            | Self::DestinationTransportPort
            | Self::IcmpTypeCodeIpv4
            | Self::IcmpTypeCodeIpv6
            | Self::VlanId => 2,
            Self::SourceIpv4Address
            | Self::DestinationIpv4Address
            | Self::IngressInterface
            | Self::ObservationDomainId => 4,
            Self::OctetDeltaCount
            | Self::PacketDeltaCount
            | Self::FlowStartMilliseconds
            | Self::FlowEndMilliseconds
            | Self::FlowStartNanoseconds
            | Self::FlowEndNanoseconds
            | Self::ExportedMessageTotalCount
            | Self::ExportedFlowRecordTotalCount
            | Self::IgnoredPacketTotalCount
            | Self::NotSentFlowTotalCount
            | Self::NotSentPacketTotalCount
            | Self::NotSentOctetTotalCount => 8,
            Self::SourceIpv6Address | Self::DestinationIpv6Address => 16,
        }
    }
}

/// A field of a template: an element of packets from the source, or of packets to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    element: Element,
    is_reverse: bool,
}

impl Field {
    /// Appends its field specifier.
    pub(crate) fn specify(self, out: &mut Vec<u8>) {
        let enterprise = if self.is_reverse { 0x8000 } else { 0 };
        out.extend((self.element as u16 | enterprise).to_be_bytes());
        out.extend(self.element.len().to_be_bytes());
        if self.is_reverse {
            out.extend(REVERSE.to_be_bytes());
        }
    }

    pub(crate) const fn len(self) -> usize {
        self.element.len() as usize
    }

    pub(crate) const fn specifier_len(self) -> usize {
        if self.is_reverse { 8 } else { 4 }
    }
}

/// Properties that records of one template have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    is_v6: bool,
    layer: Layer,
    /// There were packets in both directions.
    is_biflow: bool,
}

/// The elements of the transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Ports,
    Icmp,
    None,
}

impl Shape {
    /// All of them, in the order of their templates.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [false, true].into_iter().flat_map(|is_v6| {
            [Layer::Ports, Layer::Icmp, Layer::None]
                .into_iter()
                .flat_map(move |layer| [false, true].into_iter().map(move |is_biflow| Self { is_v6, layer, is_biflow }))
        })
    }

    pub(crate) const fn of(record: &FlowRecord) -> Self {
        let is_v6 = record.source.address.is_ipv6();
        let has_message = record.forward.icmp.is_some();
        let layer = match (record.protocol, is_v6) {
            (number, _) if has_ports(number) => Layer::Ports,
            (protocol::ICMP, false) | (protocol::ICMPV6, true) if has_message => Layer::Icmp,
            _ => Layer::None,
        };
        Self { is_v6, layer, is_biflow: record.reverse.packets > 0 }
    }

    /// Its number in [`all`](Self::all).
    pub(crate) const fn index(self) -> usize {
        let layer = match self.layer {
            Layer::Ports => 0,
            Layer::Icmp => 1,
            Layer::None => 2,
        };
        (self.is_v6 as usize * 3 + layer) * 2 + self.is_biflow as usize
    }

    /// The fields of its template. Reverse ones come first: nfdump 1.7.1 takes those that it doesn't know for the forward ones, and keeps
    /// of two equal elements the last.
    pub(crate) fn fields(self, unit: TimeUnit) -> Vec<Field> {
        let (start, end) = match unit {
            TimeUnit::Milliseconds => (Element::FlowStartMilliseconds, Element::FlowEndMilliseconds),
            TimeUnit::Nanoseconds => (Element::FlowStartNanoseconds, Element::FlowEndNanoseconds),
        };
        let icmp = if self.is_v6 { Element::IcmpTypeCodeIpv6 } else { Element::IcmpTypeCodeIpv4 };
        let mut of_a_side = vec![
            start,
            end,
            Element::OctetDeltaCount,
            Element::PacketDeltaCount,
            Element::IngressInterface,
            Element::IpClassOfService,
        ];
        let mut of_both = match self.is_v6 {
            false => vec![Element::SourceIpv4Address, Element::DestinationIpv4Address],
            true => vec![Element::SourceIpv6Address, Element::DestinationIpv6Address],
        };
        match self.layer {
            Layer::Ports => {
                of_a_side.push(Element::TcpControlBits);
                of_both.extend([Element::SourceTransportPort, Element::DestinationTransportPort]);
            }
            Layer::Icmp => of_a_side.push(icmp),
            Layer::None => {}
        }
        of_both.extend([Element::ProtocolIdentifier, Element::VlanId, Element::FlowEndReason]);
        of_both.push(Element::BiflowDirection);

        let reverse = of_a_side.iter().filter(|_| self.is_biflow);
        let reverse = reverse.map(|element| Field { element: *element, is_reverse: true });
        let forward = of_a_side.iter().chain(&of_both).map(|element| Field { element: *element, is_reverse: false });
        reverse.chain(forward).collect()
    }
}

/// The fields of the options template. The first is its scope.
pub(crate) fn statistics_fields() -> Vec<Field> {
    [
        Element::ObservationDomainId,
        Element::ExportedMessageTotalCount,
        Element::ExportedFlowRecordTotalCount,
        Element::IgnoredPacketTotalCount,
        Element::NotSentFlowTotalCount,
        Element::NotSentPacketTotalCount,
        Element::NotSentOctetTotalCount,
    ]
    .map(|element| Field { element, is_reverse: false })
    .to_vec()
}

/// What a value is taken from beside the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContext<'a> {
    /// Unix time of packet time 0.
    pub(crate) epoch: Nanos,
    /// The interface numbers of the network management, by the port's.
    pub(crate) interfaces: &'a [u32],
}

/// Appends a record's value for a field.
pub(crate) fn put(field: Field, record: &FlowRecord, context: RecordContext<'_>, out: &mut Vec<u8>) {
    let side = if field.is_reverse { &record.reverse } else { &record.forward };
    match field.element {
        Element::OctetDeltaCount => out.extend(side.octets.to_be_bytes()),
        Element::PacketDeltaCount => out.extend(side.packets.to_be_bytes()),
        Element::ProtocolIdentifier => out.push(record.protocol),
        Element::IpClassOfService => out.push(side.class),
        Element::TcpControlBits => out.extend(u16::from(side.tcp_flags).to_be_bytes()),
        Element::SourceTransportPort => out.extend(record.source.port.to_be_bytes()),
        Element::DestinationTransportPort => out.extend(record.destination.port.to_be_bytes()),
        Element::SourceIpv4Address | Element::SourceIpv6Address => put_address(record.source.address, out),
        Element::DestinationIpv4Address | Element::DestinationIpv6Address => {
            put_address(record.destination.address, out);
        }
        Element::IngressInterface => {
            let number = usize::from(side.interface);
            let index = context.interfaces.get(number).copied().unwrap_or(side.interface.into());
            out.extend(index.to_be_bytes());
        }
        Element::IcmpTypeCodeIpv4 | Element::IcmpTypeCodeIpv6 => out.extend(side.icmp.unwrap_or(0).to_be_bytes()),
        Element::VlanId => out.extend(record.vlan.to_be_bytes()),
        Element::FlowEndReason => out.push(record.reason as u8),
        Element::FlowStartMilliseconds => out.extend(millis(context.epoch + side.first)),
        Element::FlowEndMilliseconds => out.extend(millis(context.epoch + side.last)),
        Element::FlowStartNanoseconds => out.extend(ntp(context.epoch + side.first)),
        Element::FlowEndNanoseconds => out.extend(ntp(context.epoch + side.last)),
        Element::BiflowDirection => out.push(record.direction as u8),
        Element::ExportedMessageTotalCount
        | Element::ExportedFlowRecordTotalCount
        | Element::ObservationDomainId
        | Element::IgnoredPacketTotalCount
        | Element::NotSentFlowTotalCount
        | Element::NotSentPacketTotalCount
        | Element::NotSentOctetTotalCount => unreachable!("no template of flows has elements of the exporter"),
    }
}

/// Appends the exporter's value for a field.
pub(crate) fn put_statistic(field: Field, domain: u32, statistics: &Statistics, out: &mut Vec<u8>) {
    let value = match field.element {
        Element::ObservationDomainId => return out.extend(domain.to_be_bytes()),
        Element::ExportedMessageTotalCount => statistics.messages,
        Element::ExportedFlowRecordTotalCount => statistics.exported,
        Element::IgnoredPacketTotalCount => statistics.ignored_packets,
        Element::NotSentFlowTotalCount => statistics.lost.flows,
        Element::NotSentPacketTotalCount => statistics.lost.packets,
        Element::NotSentOctetTotalCount => statistics.lost.octets,
        _ => unreachable!("the options template has no elements of flows"),
    };
    out.extend(value.to_be_bytes());
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

fn millis(time: Nanos) -> [u8; 8] {
    (time.0 / 1_000_000).to_be_bytes()
}

/// An NTP time stamp: seconds since 1900, and the fraction of 2^32.
fn ntp(time: Nanos) -> [u8; 8] {
    const FROM_1900_TO_1970: u64 = 2_208_988_800;
    let (seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    // Seconds wrap in 2036, as NTP's do.
    let seconds = (seconds + FROM_1900_TO_1970) as u32;
    // Rounded up, so that readers that round down have the same nanoseconds.
    let fraction = (nanos << 32).div_ceil(1_000_000_000) as u32;
    (u64::from(seconds) << 32 | u64::from(fraction)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_numbered_in_order() {
        assert!(Shape::all().map(Shape::index).eq(0..12));
    }

    #[test]
    fn time_stamps_count_from_1900() {
        // RFC 5905, figure 4: 1 January 1970 is 2,208,988,800.
        assert_eq!(ntp(Nanos(0)), (2_208_988_800_u64 << 32).to_be_bytes());
        assert_eq!(ntp(Nanos(1_500_000_000)), (2_208_988_801_u64 << 32 | 1 << 31).to_be_bytes());
    }
}
