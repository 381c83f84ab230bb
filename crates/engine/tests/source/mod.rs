//! The source of a packet, as a contribution of its own.

use packet::Host;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Source(pub(crate) Host);

impl nf::Meta for Source {
    type Key = Host;
    const RECORD_BYTES: usize = nf::HOST_BYTES;
    fn key(&self) -> Host {
        self.0
    }
    fn write(&self, record: &mut [u8]) {
        nf::RecordWriter::new(record).host(&self.0).end();
    }
    fn read(record: &[u8]) -> Option<Self> {
        nf::RecordReader::new(record).host().map(Self)
    }
}
