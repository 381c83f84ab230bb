//! A decoder of IPFIX that shares nothing with the encoder, and help for tests. It knows templates alone, as a collector does.
#![allow(dead_code)]

use std::collections::BTreeMap;

use millrace_ipfix::{FlowRecord, Side};

/// A field: enterprise number (0 for the registry of IANA), element, and the value as bytes.
pub(crate) type Fields = BTreeMap<(u32, u16), Vec<u8>>;

/// The state of a collector of one transport session.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    templates: BTreeMap<u16, Vec<(u32, u16, usize)>>,
    options: BTreeMap<u16, usize>,
    /// Records of flows, in order.
    pub(crate) flows: Vec<Fields>,
    /// Options records, in order.
    pub(crate) statistics: Vec<Fields>,
    pub(crate) messages: usize,
    /// Messages with templates.
    pub(crate) template_messages: usize,
    /// The sequence number that the next message must have.
    next: u32,
    pub(crate) export_secs: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Decoder {
    /// Decodes one message, which must be the whole of `bytes`.
    pub(crate) fn message(&mut self, bytes: &[u8], domain: u32) {
        assert_eq!(u16_at(bytes, 0), 10, "the version");
        assert_eq!(usize::from(u16_at(bytes, 2)), bytes.len(), "the length");
        self.export_secs = u32_at(bytes, 4);
        assert_eq!(u32_at(bytes, 8), self.next, "the sequence number counts data records");
        assert_eq!(u32_at(bytes, 12), domain);
        self.messages += 1;
        let mut at = 16;
        let mut has_templates = false;
        while at < bytes.len() {
            let (id, len) = (u16_at(bytes, at), usize::from(u16_at(bytes, at + 2)));
            assert!(len > 4 && at + len <= bytes.len(), "a set with content, within the message");
            let set = &bytes[at + 4..at + len];
            match id {
                2 => self.templates(set, false),
                3 => self.templates(set, true),
                256.. => self.records(id, set),
                _ => panic!("set {id}"),
            }
            has_templates |= id < 256;
            at += len;
        }
        self.template_messages += usize::from(has_templates);
    }

    /// Decodes messages that follow one another, as in a file or a connection. Returns the bytes of the part of a message at the end.
    pub(crate) fn messages(&mut self, mut bytes: &[u8], domain: u32) -> usize {
        while bytes.len() >= 16 && bytes.len() >= usize::from(u16_at(bytes, 2)) {
            let (message, rest) = bytes.split_at(u16_at(bytes, 2).into());
            self.message(message, domain);
            bytes = rest;
        }
        bytes.len()
    }

    fn templates(&mut self, mut set: &[u8], is_options: bool) {
        while !set.is_empty() {
            let (id, count) = (u16_at(set, 0), u16_at(set, 2));
            let mut at = 4;
            if is_options {
                self.options.insert(id, u16_at(set, 4).into());
                at = 6;
            }
            let mut fields = Vec::new();
            for _ in 0..count {
                let (element, len) = (u16_at(set, at), u16_at(set, at + 2));
                assert!(len < 65_535, "no variable length");
                at += 4;
                let mut enterprise = 0;
                if element & 0x8000 != 0 {
                    enterprise = u32_at(set, at);
                    at += 4;
                }
                fields.push((enterprise, element & 0x7fff, usize::from(len)));
            }
            let before = self.templates.insert(id, fields.clone());
            assert!(before.is_none_or(|before| before == fields), "template {id} never changes");
            set = &set[at..];
        }
    }

    fn records(&mut self, id: u16, mut set: &[u8]) {
        let template = self.templates.get(&id).unwrap_or_else(|| panic!("template {id} comes before its records"));
        let len: usize = template.iter().map(|(.., len)| len).sum();
        while !set.is_empty() {
            assert!(set.len() >= len, "no part of a record");
            let mut fields = Fields::new();
            let mut at = 0;
            for (enterprise, element, len) in template {
                let again = fields.insert((*enterprise, *element), set[at..at + len].to_vec());
                assert!(again.is_none(), "an element comes once");
                at += len;
            }
            self.next = self.next.wrapping_add(1);
            if self.options.contains_key(&id) { &mut self.statistics } else { &mut self.flows }.push(fields);
            set = &set[len..];
        }
    }
}

/// The value of an unsigned field; `None` if the record has none.
pub(crate) fn number(fields: &Fields, enterprise: u32, element: u16) -> Option<u64> {
    fields.get(&(enterprise, element)).map(|bytes| bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// The enterprise number of RFC 5103.
pub(crate) const REVERSE: u32 = 29_305;

/// The fields that the record must have, in milliseconds, by the registry of IANA alone.
pub(crate) fn expected(record: &FlowRecord) -> Fields {
    let mut fields = Fields::new();
    let ends = [(record.source, 8, 27, 7), (record.destination, 12, 28, 11)];
    for (end, v4, v6, port) in ends {
        match end.address {
            std::net::IpAddr::V4(address) => fields.insert((0, v4), address.octets().to_vec()),
            std::net::IpAddr::V6(address) => fields.insert((0, v6), address.octets().to_vec()),
        };
        if [6, 17, 132].contains(&record.protocol) {
            fields.insert((0, port), end.port.to_be_bytes().to_vec());
        }
    }
    fields.insert((0, 4), vec![record.protocol]);
    fields.insert((0, 58), record.vlan.to_be_bytes().to_vec());
    fields.insert((0, 136), vec![record.reason as u8]);
    fields.insert((0, 239), vec![record.direction as u8]);
    let has_message = record.forward.icmp.is_some();
    let mut side = |enterprise, side: &Side| {
        let mut put = |element, bytes: &[u8]| assert!(fields.insert((enterprise, element), bytes.to_vec()).is_none());
        put(152, &(side.first.0 / 1_000_000).to_be_bytes());
        put(153, &(side.last.0 / 1_000_000).to_be_bytes());
        put(1, &side.octets.to_be_bytes());
        put(2, &side.packets.to_be_bytes());
        put(10, &u32::from(side.interface).to_be_bytes());
        put(5, &[side.class]);
        match (record.protocol, record.source.address.is_ipv6()) {
            (6 | 17 | 132, _) => put(6, &[0, side.tcp_flags]),
            (1, false) if has_message => put(32, &side.icmp.unwrap_or(0).to_be_bytes()),
            (58, true) if has_message => put(139, &side.icmp.unwrap_or(0).to_be_bytes()),
            _ => {}
        }
    };
    side(0, &record.forward);
    if record.reverse.packets > 0 {
        side(REVERSE, &record.reverse);
    }
    fields
}
