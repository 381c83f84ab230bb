//! The metadata of a packet: all fields that a program can name, and the key of the flow that holds its contexts.

use efsm::{ContextKey, Layers, LongKey, Packet};
use nf::{Meta, RecordReader, RecordWriter};
use packet::Words;

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EfsmMeta {
    pub(super) packet: Packet,
    pub(super) key: ContextKey,
}

/// Words of a key in records.
const KEY_WORDS: usize = 7;

impl Meta for EfsmMeta {
    type Key = ContextKey;

    const RECORD_BYTES: usize = 2 * 16 + 2 * 8 + 3 * 4 + 7 * 2 + 7 + 8 * KEY_WORDS;

    #[inline]
    fn key(&self) -> ContextKey {
        self.key
    }

    fn write(&self, record: &mut [u8]) {
        let Packet { src, dst, macs, len, seq, ack, .. } = self.packet;
        let mut fields = RecordWriter::new(record).bytes(src.to_be_bytes()).bytes(dst.to_be_bytes());
        fields = fields.u64(macs[0]).u64(macs[1]).u32(len).u32(seq).u32(ack);
        let Packet { src_port, dst_port, window, ethertype, vlan, port, ip_len, .. } = self.packet;
        for number in [src_port, dst_port, window, ethertype, vlan, port, ip_len] {
            fields = fields.u16(number);
        }
        let Packet { proto, ttl, tos, flags, icmp, layers, .. } = self.packet;
        for number in [proto, ttl, tos, flags, icmp[0], icmp[1], layers.0] {
            fields = fields.u8(number);
        }
        for word in self.key.long().to_words() {
            fields = fields.u64(word);
        }
        fields.end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let mut packet = Packet {
            src: u128::from_be_bytes(fields.bytes()?),
            dst: u128::from_be_bytes(fields.bytes()?),
            macs: [fields.u64()?, fields.u64()?],
            len: fields.u32()?,
            seq: fields.u32()?,
            ack: fields.u32()?,
            ..Packet::default()
        };
        let Packet { src_port, dst_port, window, ethertype, vlan, port, ip_len, .. } = &mut packet;
        for number in [src_port, dst_port, window, ethertype, vlan, port, ip_len] {
            *number = fields.u16()?;
        }
        let mut layers = 0;
        let Packet { proto, ttl, tos, flags, icmp: [kind, code], .. } = &mut packet;
        for number in [proto, ttl, tos, flags, kind, code, &mut layers] {
            *number = fields.u8()?;
        }
        packet.layers = Some(Layers(layers)).filter(|layers| Layers::ALL.contains(*layers))?;
        let mut words = [0; KEY_WORDS];
        for word in &mut words {
            *word = fields.u64()?;
        }
        let key = ContextKey::of_long(LongKey::from_words(words))?;
        fields.end().map(|()| Self { packet, key })
    }
}
