//! Messages of IPFIX (RFC 7011, section 3), without input or output.

use packet::Nanos;

use crate::element::{Field, RecordContext, Shape, TimeUnit, put, put_statistic, statistics_fields};
use crate::error::IpfixError;
use crate::record::FlowRecord;

/// Options of an [`Encoder`].
#[derive(Clone, Debug)]
pub struct EncoderOptions {
    /// The observation domain, which tells exporters of one machine apart. The default is 1.
    pub domain: u32,
    /// The longest message in bytes, from 512 to 65,535. The default is 1,400, which fits the path of most networks.
    pub message_len_max: usize,
    /// The unit of the times of flows.
    pub unit: TimeUnit,
    /// Unix time of packet time 0. The default is 0, as in captures.
    pub epoch: Nanos,
    /// Numbers of the interfaces for ingressInterface, in the order of the port's. The default is none: the port's own numbers are used.
    pub interfaces: Vec<u32>,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self { domain: 1, message_len_max: 1400, unit: TimeUnit::Milliseconds, epoch: Nanos(0), interfaces: Vec::new() }
    }
}

/// Makes messages: templates, flow records and the exporter's statistics are added until one doesn't fit, then the message is taken.
#[derive(Debug)]
pub struct Encoder {
    options: EncoderOptions,
    /// The templates of flows, in the order of [`Shape::all`], and the options template.
    templates: Vec<Template>,
    /// The message so far; its header is filled in at the end.
    bytes: Vec<u8>,
    /// The set that the message ends with: its identifier and its offset.
    set: Option<(u16, usize)>,
    content: Content,
    /// Data records of the message, and those of earlier messages of the session.
    data_records: u32,
    sequence: u32,
}

/// Flow records, and what they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Number of flow records.
    pub flows: u64,
    /// Packets of these flows.
    pub packets: u64,
    /// Bytes of these packets.
    pub octets: u64,
}

impl Content {
    /// Adds another's.
    pub const fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        self.packets += other.packets;
        self.octets += other.octets;
    }

    /// Subtracts another's, at most to 0.
    pub const fn subtract(&mut self, other: &Self) {
        self.flows = self.flows.saturating_sub(other.flows);
        self.packets = self.packets.saturating_sub(other.packets);
        self.octets = self.octets.saturating_sub(other.octets);
    }

    /// What one record contains.
    #[must_use]
    pub const fn of(record: &FlowRecord) -> Self {
        Self { flows: 1, packets: record.packets(), octets: record.octets() }
    }
}

/// A complete message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its flow records.
    pub content: Content,
}

/// Totals of an exporter, for the options record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages sent.
    pub messages: u64,
    /// Flow records sent.
    pub exported: u64,
    /// Packets observed that belong to no flow.
    pub ignored_packets: u64,
    /// Flow records that were not sent.
    pub lost: Content,
}

#[derive(Debug)]
struct Template {
    id: u16,
    fields: Vec<Field>,
    /// Fields of the scope. A template of flows has none.
    scope: u16,
    record_len: usize,
}

const VERSION: u16 = 10;
const HEADER_LEN: usize = 16;
const SET_HEADER_LEN: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The first identifier that templates may have.
const FIRST_TEMPLATE: u16 = 256;

impl Template {
    fn new(id: u16, fields: Vec<Field>, scope: u16) -> Self {
        let record_len = fields.iter().map(|field| field.len()).sum();
        Self { id, fields, scope, record_len }
    }

    const fn set(&self) -> u16 {
        if self.scope > 0 { OPTIONS_TEMPLATE_SET } else { TEMPLATE_SET }
    }

    fn len(&self) -> usize {
        let head = if self.scope > 0 { 6 } else { 4 };
        head + self.fields.iter().map(|field| field.specifier_len()).sum::<usize>()
    }
}

impl Encoder {
    /// An encoder at the beginning of a transport session.
    ///
    /// # Errors
    /// If messages are to be too short or too long.
    pub fn new(options: EncoderOptions) -> Result<Self, IpfixError> {
        if !(512..=65_535).contains(&options.message_len_max) {
            return Err(IpfixError::MessageLength(options.message_len_max));
        }
        let of_flows = Shape::all().map(|shape| (shape.fields(options.unit), 0));
        let templates = of_flows.chain([(statistics_fields(), 1)]);
        let templates = (FIRST_TEMPLATE..).zip(templates).map(|(id, (fields, scope))| Template::new(id, fields, scope));
        let mut encoder = Self {
            templates: templates.collect(),
            bytes: Vec::with_capacity(options.message_len_max),
            set: None,
            content: Content::default(),
            data_records: 0,
            sequence: 0,
            options,
        };
        encoder.clear();
        Ok(encoder)
    }

    /// Begins another transport session: sequence numbers count from 0 again. Returns the content of the message that was not taken.
    pub fn begin_session(&mut self) -> Content {
        let content = self.content;
        self.sequence = 0;
        self.clear();
        content
    }

    /// Number of templates.
    #[must_use]
    pub fn templates(&self) -> usize {
        self.templates.len()
    }

    /// Adds the template with this number, from 0. Returns false if it doesn't fit the message: take that first.
    ///
    /// # Panics
    /// If there is no such template.
    #[must_use]
    pub fn add_template(&mut self, number: usize) -> bool {
        let template = &self.templates[number];
        let (id, set, len) = (template.id, template.set(), template.len());
        if !self.open_set(set, len) {
            return false;
        }
        let template = &self.templates[number];
        self.bytes.extend(id.to_be_bytes());
        self.bytes.extend((template.fields.len() as u16).to_be_bytes());
        if template.scope > 0 {
            self.bytes.extend(template.scope.to_be_bytes());
        }
        for field in &template.fields {
            field.specify(&mut self.bytes);
        }
        true
    }

    /// Adds a flow record. Returns false if it doesn't fit the message: take that first.
    #[must_use]
    pub fn add_record(&mut self, record: &FlowRecord) -> bool {
        let number = Shape::of(record).index();
        if !self.open_set(self.templates[number].id, self.templates[number].record_len) {
            return false;
        }
        let Self { options, templates, bytes, .. } = self;
        let context = RecordContext { epoch: options.epoch, interfaces: &options.interfaces };
        for field in &templates[number].fields {
            put(*field, record, context, bytes);
        }
        self.data_records += 1;
        self.content.add(&Content::of(record));
        true
    }

    /// Adds the exporter's statistics. Returns false if they don't fit the message: take that first.
    #[must_use]
    pub fn add_statistics(&mut self, statistics: &Statistics) -> bool {
        let number = self.templates.len() - 1;
        if !self.open_set(self.templates[number].id, self.templates[number].record_len) {
            return false;
        }
        for field in &self.templates[number].fields {
            put_statistic(*field, self.options.domain, statistics, &mut self.bytes);
        }
        self.data_records += 1;
        true
    }

    /// True if nothing was added since the last message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_LEN
    }

    /// The flow records of the message so far.
    #[must_use]
    pub const fn content(&self) -> Content {
        self.content
    }

    /// Calls `send` with the message, as of this time in seconds since 1970, and begins another.
    pub fn take<R>(&mut self, export_secs: u32, send: impl FnOnce(Message<'_>) -> R) -> R {
        self.close_set();
        let len = self.bytes.len() as u16;
        let words = [export_secs, self.sequence, self.options.domain];
        self.bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&len.to_be_bytes());
        for (number, word) in words.into_iter().enumerate() {
            self.bytes[4 + 4 * number..][..4].copy_from_slice(&word.to_be_bytes());
        }
        let sent = send(Message { bytes: &self.bytes, content: self.content });
        self.sequence = self.sequence.wrapping_add(self.data_records);
        self.clear();
        sent
    }

    /// Makes the message end with this set, if there is room for so many bytes in it.
    fn open_set(&mut self, id: u16, len: usize) -> bool {
        let is_open = self.set.is_some_and(|(open, _)| open == id);
        let head = if is_open { 0 } else { SET_HEADER_LEN };
        if self.bytes.len() + head + len > self.options.message_len_max {
            return false;
        }
        if !is_open {
            self.close_set();
            self.set = Some((id, self.bytes.len()));
            self.bytes.extend(id.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        true
    }

    /// Fills in the length of the last set.
    fn close_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            let len = (self.bytes.len() - start) as u16;
            self.bytes[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_LEN, 0);
        self.set = None;
        self.content = Content::default();
        self.data_records = 0;
    }
}
