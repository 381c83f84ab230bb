//! Formats a census as text and as JSON.

use std::time::Duration;

use packet::{LinkType, Malformed};
use port::pcap::{Error, Format, Reader};
use serde_json::{Map, Value, json};

use super::census::{Census, Share, Skew, TUNNELS, protocol_name};
use crate::print::number::{bit_rate, bytes, count, counted, iso, percent, rate, span};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// The page on one capture.
pub(super) struct Page<'a> {
    name: &'a str,
    format: Format,
    clock_steps_back: u64,
    stamps_not_believed: u64,
    census: &'a Census,
    failure: Option<&'a Error>,
}

impl<'a> Page<'a> {
    pub(super) fn new(name: &'a str, reader: &Reader, census: &'a Census, failure: Option<&'a Error>) -> Self {
        let (clock_steps_back, stamps_not_believed) = (reader.clock_steps_back(), reader.stamps_not_believed());
        Self { name, format: reader.format(), clock_steps_back, stamps_not_believed, census, failure }
    }

    pub(super) fn text(&self, style: Style) -> String {
        let census = self.census;
        let mut out = format!("{}: {}\n\n", style.bold(self.name), self.container());
        let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left)]);
        let mut line = |name: &str, text: String| sheet.toned([(name, Tone::Dim), (&*text, Tone::Plain)]);
        line("packets", format!("{}, {}", count(census.packets), bytes(census.bytes)));
        let links: Vec<String> =
            census.links.iter().map(|(link, number)| format!("{link} ({})", count(*number))).collect();
        line("link", if links.is_empty() { self.described_links() } else { links.join(", ") });
        let duration = self.duration();
        if let Some(first) = census.first {
            line("time", format!("{} to {}", iso(first), iso(census.last)));
        }
        match census.packets {
            0 | 1 => {}
            _ if duration.is_zero() => {
                line("duration", "none: all packets have the same time stamp, so there is no rate".to_owned())
            }
            _ => {
                let rates = format!("{}, {}", rate(census.packets, duration), bit_rate(census.bytes, duration));
                line("duration", format!("{}, {rates} on average", span(duration)));
            }
        }
        line(
            "network",
            parts(&[
                ("IPv4", census.v4),
                ("IPv6", census.v6),
                ("ARP", census.arp),
                ("other", census.other),
                ("unreadable", census.unreadable),
            ]),
        );
        line("VLAN", parts(&[("one tag", census.vlan), ("two or more", census.qinq)]));
        let tunnels: Vec<(&str, u64)> =
            TUNNELS.iter().zip(census.tunnels).map(|((_, name), number)| (*name, number)).collect();
        line("tunnels", parts(&tunnels));
        line("fragments", parts(&[("first", census.fragments_first), ("later", census.fragments_later)]));
        line("tcp", parts(&[("SYN alone", census.syns), ("RST", census.resets)]));
        let malformed: Vec<(&str, u64)> = Malformed::ALL.iter().map(|kind| kind.name()).zip(census.malformed).collect();
        line("malformed", parts(&malformed));
        line("cut short", parts(&[("captured only in part", census.cut)]));
        let mut clock = match self.clock_steps_back {
            0 => "runs forward".to_owned(),
            steps => format!("stepped back {}", counted(steps, "time", "times")),
        };
        if self.stamps_not_believed > 0 {
            clock += &format!(", {} ignored", counted(self.stamps_not_believed, "time stamp", "time stamps"));
        }
        line("clock", clock);
        out += &sheet.lines(2);
        match census.skew() {
            Some(skew) => out += &self.flows(&skew, style),
            None if census.packets > 0 => out += "\n  no flows: no packet has addresses\n",
            None => {}
        }
        let unread: Vec<&(LinkType, u64)> =
            census.links.iter().filter(|(link, _)| matches!(link, LinkType::Other(_))).collect();
        let packets: u64 = unread.iter().map(|(_, number)| number).sum();
        if packets > 0 {
            let links: Vec<String> = unread.iter().map(|(link, _)| link.to_string()).collect();
            let packets = counted(packets, "packet is", "packets are");
            let note =
                format!("{packets} of an unsupported link type, {}; what they carry is not counted", links.join(", "));
            out += &format!("  {}\n", style.warn(note));
        }
        out
    }

    fn flows(&self, skew: &Skew, style: Style) -> String {
        let columns = [
            ("flows", Align::Left),
            ("", Align::Right),
            ("packets", Align::Right),
            ("", Align::Right),
            ("bytes", Align::Right),
        ];
        let mut sheet = Sheet::new(style, &columns);
        for Share { protocol, flows, packets, bytes: size } in self.census.by_protocol() {
            let share = percent(packets, skew.packets);
            sheet.row([&protocol_name(protocol), &count(flows), &count(packets), &share, &bytes(size)]);
        }
        sheet.toned([("all", Tone::Bold), (&*count(skew.flows), Tone::Bold), (&*count(skew.packets), Tone::Bold)]);
        let mut out = format!("\n{}\n", sheet.lines(2));
        let share = |packets| percent(packets, skew.packets);
        out += &format!("  largest flow  {} of packets: {}\n", style.bold(share(skew.largest_packets)), skew.largest);
        out += &format!(
            "  skew          ten largest {}, largest tenth {}, Gini {:.2} ({})\n",
            share(skew.top10_packets),
            share(skew.tenth_packets),
            skew.gini,
            verdict(skew),
        );
        if self.census.uncounted() > 0 {
            let uncounted = counted(self.census.uncounted(), "packet", "packets");
            out += &format!("  {uncounted} of more flows are not counted by flow, because the counter table is full\n");
        }
        out
    }

    fn container(&self) -> String {
        let Format { container, compression, byte_order, sections, interfaces } = &self.format;
        let mut parts = vec![format!("{container}, {byte_order}")];
        if let Some(interface) = interfaces.first() {
            parts.push(interface.resolution.to_string());
        }
        if interfaces.len() > 1 || *sections > 1 {
            let sections = counted(u64::from(*sections), "section", "sections");
            parts.push(format!("{} in {sections}", counted(interfaces.len() as u64, "interface", "interfaces")));
        }
        if let Some(compression) = compression {
            parts.push(format!("in {compression}"));
        }
        parts.join(", ")
    }

    fn described_links(&self) -> String {
        let mut links: Vec<String> =
            self.format.interfaces.iter().map(|interface| interface.link.to_string()).collect();
        links.dedup();
        if links.is_empty() { "none".to_owned() } else { links.join(", ") }
    }

    fn duration(&self) -> Duration {
        Duration::from_nanos(self.census.first.map_or(0, |first| self.census.last.since(first).0))
    }

    pub(super) fn json(&self) -> Value {
        let census = self.census;
        let Format { container, compression, byte_order, sections, interfaces } = &self.format;
        let interfaces: Vec<Value> = interfaces
            .iter()
            .map(|interface| {
                json!({
                    "name": interface.name, "link": interface.link.to_string(), "link_number": interface.link.number(),
                    "snaplen": interface.snaplen, "resolution": interface.resolution.to_string(),
                    "section": interface.section,
                })
            })
            .collect();
        let links: Vec<Value> = census
            .links
            .iter()
            .map(
                |(link, packets)| json!({ "link": link.to_string(), "link_number": link.number(), "packets": packets }),
            )
            .collect();
        let protocols: Vec<Value> = census
            .by_protocol()
            .iter()
            .map(|share| {
                json!({
                    "protocol": protocol_name(share.protocol), "number": share.protocol, "flows": share.flows,
                    "packets": share.packets, "bytes": share.bytes,
                })
            })
            .collect();
        let skew = census.skew().map(|skew| {
            let share = |packets| packets as f64 / skew.packets as f64;
            json!({
                "flows": skew.flows, "packets": skew.packets,
                "largest": { "flow": skew.largest.to_string(), "packets": skew.largest_packets, "share": share(skew.largest_packets) },
                "top10_share": share(skew.top10_packets), "largest_tenth_share": share(skew.tenth_packets), "gini": skew.gini,
            })
        });
        let named = |pairs: Vec<(&str, u64)>| -> Map<String, Value> {
            pairs
                .into_iter()
                .filter(|(_, number)| *number > 0)
                .map(|(name, number)| (name.to_owned(), number.into()))
                .collect()
        };
        json!({
            "file": self.name,
            "format": {
                "container": container.to_string(), "compression": compression.map(|compression| compression.to_string()),
                "byte_order": byte_order.to_string(), "sections": sections, "interfaces": interfaces,
            },
            "packets": census.packets, "bytes": census.bytes, "cut_short": census.cut,
            "first": census.first.map(iso), "last": census.first.map(|_| iso(census.last)), "duration_s": self.duration().as_secs_f64(),
            "links": links,
            "network": {
                "ipv4": census.v4,
                "ipv6": census.v6,
                "arp": census.arp,
                "other": census.other,
                "unreadable": census.unreadable,
            },
            "vlan": { "one_tag": census.vlan, "two_or_more": census.qinq },
            "tunnels": named(TUNNELS.iter().zip(census.tunnels).map(|((_, name), number)| (*name, number)).collect()),
            "fragments": { "first": census.fragments_first, "later": census.fragments_later },
            "tcp": { "syn": census.syns, "rst": census.resets },
            "malformed": named(Malformed::ALL.iter().map(|kind| kind.name()).zip(census.malformed).collect()),
            "protocols": protocols, "flows": skew, "packets_of_uncounted_flows": census.uncounted(),
            "clock_steps_back": self.clock_steps_back,
            "stamps_not_believed": self.stamps_not_believed,
            "error": self.failure.map(ToString::to_string),
        })
    }
}

/// `IPv4 12, ARP 3`, without zero counts.
fn parts(parts: &[(&str, u64)]) -> String {
    let some: Vec<String> = parts
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(name, number)| format!("{name} {}", count(*number)))
        .collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// What the skew means for running on several cores.
const fn verdict(skew: &Skew) -> &'static str {
    let (largest, all) = (skew.largest_packets, skew.packets);
    if largest * 2 > all {
        "one flow has most of the packets: sharding by flow can't scale, replication can"
    } else if largest * 8 > all {
        "one flow is heavy: sharding by flow scales only to a few cores"
    } else {
        "no flow is heavy: sharding by flow scales"
    }
}
