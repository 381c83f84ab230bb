//! The wire form of metadata: fields in network byte order, without gaps.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::{Endpoint, FiveTuple, Host};

/// Length of an address of either family, in bytes.
pub const ADDRESS_BYTES: usize = 16;
/// Length of a host in bytes: a family byte and an address.
pub const HOST_BYTES: usize = 1 + ADDRESS_BYTES;
/// Length of a five-tuple without its family byte.
pub const ENDS_BYTES: usize = 2 * ADDRESS_BYTES + 5;
/// Length of a five-tuple in bytes: a family byte and the fields.
pub const TUPLE_BYTES: usize = 1 + ENDS_BYTES;

/// The bit of the family byte that is set for IPv6. A record with a flags byte may keep the bit there.
pub const IPV6: u8 = 1;

/// Writes a record field by field.
///
/// ```
/// # use millrace_nf::{RecordReader, RecordWriter};
/// let mut record = [0xff; 6];
/// RecordWriter::new(&mut record).u16(443).u32(1500).end();
/// let mut fields = RecordReader::new(&record);
/// assert_eq!((fields.u16(), fields.u32(), fields.end()), (Some(443), Some(1500), Some(())));
/// ```
#[must_use = "a record is whole once `end` was called"]
pub struct RecordWriter<'a>(&'a mut [u8]);

impl<'a> RecordWriter<'a> {
    /// Starts at the record's first byte.
    #[inline]
    pub const fn new(record: &'a mut [u8]) -> Self {
        Self(record)
    }

    /// Writes bytes unchanged.
    ///
    /// # Panics
    /// If the record has too few bytes left.
    #[inline]
    pub fn bytes<const N: usize>(self, bytes: [u8; N]) -> Self {
        let Some((field, rest)) = self.0.split_first_chunk_mut::<N>() else {
            panic!("a record is as long as its type says")
        };
        *field = bytes;
        Self(rest)
    }

    /// Writes one byte.
    #[inline]
    pub fn u8(self, number: u8) -> Self {
        self.bytes([number])
    }

    /// Writes a 16-bit number.
    #[inline]
    pub fn u16(self, number: u16) -> Self {
        self.bytes(number.to_be_bytes())
    }

    /// Writes a 32-bit number.
    #[inline]
    pub fn u32(self, number: u32) -> Self {
        self.bytes(number.to_be_bytes())
    }

    /// Writes a 64-bit number.
    #[inline]
    pub fn u64(self, number: u64) -> Self {
        self.bytes(number.to_be_bytes())
    }

    /// Writes an address without its family. Zeros follow an IPv4 address.
    #[inline]
    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.bytes(address.octets()).bytes([0; 12]),
            IpAddr::V6(address) => self.bytes(address.octets()),
        }
    }

    /// Writes a five-tuple without its family: addresses, ports, protocol.
    #[inline]
    pub fn ends(self, tuple: &FiveTuple) -> Self {
        let (source, destination) = (tuple.source(), tuple.destination());
        let addresses = self.address(source.address).address(destination.address);
        addresses.u16(source.port).u16(destination.port).u8(tuple.protocol())
    }

    /// Writes a host: family byte, address.
    #[inline]
    pub fn host(self, host: &Host) -> Self {
        self.u8(family_of(host.address())).address(host.address())
    }

    /// Writes a five-tuple: family byte, addresses, ports, protocol.
    #[inline]
    pub fn tuple(self, tuple: &FiveTuple) -> Self {
        self.u8(family_of(tuple.source().address)).ends(tuple)
    }

    /// Writes `N` zeros in place of an absent field.
    #[inline]
    pub fn none<const N: usize>(self) -> Self {
        self.bytes([0; N])
    }

    /// Ends the record. Debug builds check that it is full.
    #[inline]
    pub fn end(self) {
        debug_assert!(self.0.is_empty(), "a record is as long as its type says");
    }
}

/// Reads a record field by field. Missing bytes, and bytes that no writer makes, are `None`.
#[derive(Debug)]
pub struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    /// Starts at the record's first byte.
    #[inline]
    #[must_use]
    pub const fn new(record: &'a [u8]) -> Self {
        Self(record)
    }

    /// Reads bytes unchanged.
    #[inline]
    pub fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[number]| number)
    }

    /// Reads a 16-bit number.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    /// Reads a 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    /// Reads a 64-bit number.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    /// Reads an address of the given family.
    #[inline]
    pub fn address(&mut self, is_v6: bool) -> Option<IpAddr> {
        if is_v6 {
            return Some(Ipv6Addr::from(self.bytes::<16>()?).into());
        }
        let address = Ipv4Addr::from(self.bytes::<4>()?);
        self.none::<12>()?;
        Some(address.into())
    }

    /// Reads a five-tuple of the given family.
    #[inline]
    pub fn ends(&mut self, is_v6: bool) -> Option<FiveTuple> {
        let (source, destination) = (self.address(is_v6)?, self.address(is_v6)?);
        let (source, destination) = (Endpoint::new(source, self.u16()?), Endpoint::new(destination, self.u16()?));
        FiveTuple::between(source, destination, self.u8()?)
    }

    /// Reads a host.
    #[inline]
    pub fn host(&mut self) -> Option<Host> {
        let is_v6 = self.family()?;
        self.address(is_v6).map(Host::from)
    }

    /// Reads a five-tuple.
    #[inline]
    pub fn tuple(&mut self) -> Option<FiveTuple> {
        let is_v6 = self.family()?;
        self.ends(is_v6)
    }

    /// Reads the `N` zeros of an absent field.
    #[inline]
    pub fn none<const N: usize>(&mut self) -> Option<()> {
        (self.bytes::<N>()? == [0; N]).then_some(())
    }

    /// Returns `Some` if no bytes are left.
    #[inline]
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn family(&mut self) -> Option<bool> {
        let family = self.u8()?;
        (family & !IPV6 == 0).then_some(family == IPV6)
    }
}

/// The family byte of an address: [`IPV6`] or 0.
#[inline]
#[must_use]
pub const fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => IPV6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

    #[test]
    fn fields_come_back() {
        for (a, b) in [(V4, V4), (V6, V6)] {
            let tuple = FiveTuple::between(Endpoint::new(a, 1), Endpoint::new(b, 65_535), 17).expect("one family");
            let mut record = [0xaa; HOST_BYTES + TUPLE_BYTES + 8 + 3];
            RecordWriter::new(&mut record).host(&Host::from(a)).tuple(&tuple).u64(u64::MAX - 1).none::<3>().end();
            let mut fields = RecordReader::new(&record);
            assert_eq!((fields.host(), fields.tuple()), (Some(Host::from(a)), Some(tuple)));
            assert_eq!(fields.end(), None, "there is more");
            assert_eq!((fields.u64(), fields.none::<3>(), fields.end()), (Some(u64::MAX - 1), Some(()), Some(())));
            assert_eq!(fields.u8(), None);
        }
    }

    #[test]
    fn an_ipv4_address_that_ipv6_maps_is_not_the_address() {
        let IpAddr::V4(v4) = V4 else { unreachable!() };
        let mut records = [[0; HOST_BYTES]; 2];
        RecordWriter::new(&mut records[0]).host(&Host::v4(v4)).end();
        RecordWriter::new(&mut records[1]).host(&Host::v6(v4.to_ipv6_mapped())).end();
        assert_ne!(records[0], records[1]);
        assert_eq!(RecordReader::new(&records[1]).host(), Some(Host::v6(v4.to_ipv6_mapped())));
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let mut record = [0; HOST_BYTES];
        RecordWriter::new(&mut record).host(&Host::from(V4)).end();
        for (at, byte) in [(0, 2), (0, 0xff), (5, 1), (16, 0x80)] {
            let mut wrong = record;
            wrong[at] = byte;
            assert_eq!(RecordReader::new(&wrong).host(), None, "byte {at} is {byte}");
        }
        assert_eq!(RecordReader::new(&record[..16]).host(), None);
    }

    #[test]
    #[should_panic(expected = "as long as its type says")]
    fn a_record_too_short_is_our_own_bug() {
        RecordWriter::new(&mut [0; 3]).u32(1).end();
    }
}
