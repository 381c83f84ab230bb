//! Reads the addresses of a DNS response (RFC 1035, section 4; RFC 3596 for AAAA).
//!
//! Compressed names are skipped and never followed, so parsing is at most as long as the message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses read from a response. Clients rarely use a later one.
pub(super) const ADDRESSES_MAX: usize = 8;
/// Maximum number of records read. A message has no room for many more useful ones.
const RECORDS_MAX: u16 = 256;

/// Length of the header.
pub(super) const HEADER: usize = 12;
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const CUT: u8 = 0x02;
const RCODE: u8 = 0x0f;
const POINTER: u8 = 0xc0;
const LABEL_MAX: u8 = 63;
const NAME_MAX: usize = 255;
const INTERNET: u16 = 1;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

const A: u16 = 1;
const NS: u16 = 2;
const SOA: u16 = 6;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const DS: u16 = 43;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
const DNSKEY: u16 = 48;
const NSEC3: u16 = 50;
const NSEC3PARAM: u16 = 51;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;

/// The answer of a response. `name` is a 32-bit hash of the question's name, case-insensitive; 0 if there is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The first `count` addresses.
    Addresses { name: u32, addresses: [IpAddr; ADDRESSES_MAX], count: usize },
    /// Records without an address: text, a mail server, an alias without a target. `name` is 0 unless A or AAAA was asked for.
    Nowhere { name: u32 },
}

/// The message is invalid or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// What is wrong with a message.
enum Fault {
    /// It ends here.
    Short,
    Invalid,
}

impl From<Fault> for Unreadable {
    fn from(_: Fault) -> Self {
        Self
    }
}

/// True if these bytes may be the beginning of a response: one question at most.
pub(super) fn begins_response(message: &[u8]) -> bool {
    let header: Option<&[u8; HEADER]> = message.first_chunk();
    header.is_some_and(|header| header[2] & RESPONSE != 0 && header[4] == 0 && header[5] <= 1)
}

/// Reads a message from a server. Returns `None` if there is nothing that a client could use: no response to a query, an error, a
/// truncated response (which clients repeat by TCP), no record, or only records about names and zones.
///
/// # Errors
/// [`Unreadable`] if the message is invalid or incomplete.
pub(super) fn read(message: &[u8]) -> Result<Option<Answer>, Unreadable> {
    answer(message, true)
}

/// Reads the beginning of a message, as if the records behind it had no address.
///
/// # Errors
/// [`Unreadable`] if it is invalid, or the question isn't in it.
pub(super) fn read_beginning(message: &[u8]) -> Result<Option<Answer>, Unreadable> {
    answer(message, false)
}

fn answer(message: &[u8], is_whole: bool) -> Result<Option<Answer>, Unreadable> {
    let header: &[u8; HEADER] = message.first_chunk().ok_or(Unreadable)?;
    let [_, _, high, low, ..] = *header;
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if high & RESPONSE == 0 || high & (OPCODE | CUT) != 0 || low & RCODE != 0 {
        return Ok(None);
    }
    let (questions, answers) = (count(4), count(6));
    let mut walk = Walk { message, at: HEADER };
    let (mut asked, mut name) = (A, 0);
    for _ in 0..questions.min(RECORDS_MAX) {
        name = walk.name()?;
        asked = walk.u16()?;
        walk.u16()?;
    }
    let (mut addresses, mut found) = ([IpAddr::V4(Ipv4Addr::UNSPECIFIED); ADDRESSES_MAX], 0);
    for _ in 0..answers.min(RECORDS_MAX) {
        match walk.record() {
            Ok(Some(address)) if found < ADDRESSES_MAX => {
                addresses[found] = address;
                found += 1;
            }
            Ok(_) => {}
            Err(Fault::Short) if !is_whole => break,
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(match (found, answers) {
        (1.., _) => Some(Answer::Addresses { name, addresses, count: found }),
        (0, 0) => None,
        (0, _) if is_about_names(asked) => None,
        (0, _) => Some(Answer::Nowhere { name: if matches!(asked, A | AAAA) { name } else { 0 } }),
    })
}

/// Returns true for query types without a use for an address. Browsers ask for HTTPS beside A, loggers for PTR, resolvers for the rest.
const fn is_about_names(kind: u16) -> bool {
    matches!(kind, NS | SOA | PTR | DS | RRSIG | NSEC | DNSKEY | NSEC3 | NSEC3PARAM | SVCB | HTTPS)
}

/// A position in a message.
struct Walk<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let bytes = self.message.get(self.at..self.at + count).ok_or(Fault::Short)?;
        self.at += count;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Fault> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        self.bytes(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Skips a name: labels, then a zero or a pointer to an earlier place. Returns its hash (FNV-1a), or 0 for the root and for a name with
    /// a pointer.
    fn name(&mut self) -> Result<u32, Fault> {
        let start = self.at;
        let mut hash = FNV_OFFSET;
        let mut take = |byte: u8| hash = (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(FNV_PRIME);
        let mut is_whole = false;
        loop {
            let here = self.at;
            match self.u8()? {
                0 => {
                    is_whole = here > start;
                    break;
                }
                length @ 1..=LABEL_MAX => {
                    take(length);
                    self.bytes(length.into())?.iter().copied().for_each(&mut take);
                }
                high if high & POINTER == POINTER => {
                    let target = usize::from(high & !POINTER) << 8 | usize::from(self.u8()?);
                    if !(HEADER..here).contains(&target) {
                        return Err(Fault::Invalid);
                    }
                    break;
                }
                _ => return Err(Fault::Invalid),
            }
        }
        match self.at - start {
            ..=NAME_MAX if is_whole => Ok(((hash ^ hash >> 32) as u32).max(1)),
            ..=NAME_MAX => Ok(0),
            _ => Err(Fault::Invalid),
        }
    }

    /// Skips a record, and returns its address if it has one.
    fn record(&mut self) -> Result<Option<IpAddr>, Fault> {
        self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        self.bytes(4)?;
        let length = self.u16()?;
        let data = self.bytes(length.into())?;
        match (kind, class) {
            (A, INTERNET) => {
                let octets: [u8; 4] = data.try_into().map_err(|_| Fault::Invalid)?;
                Ok(Some(IpAddr::V4(Ipv4Addr::from(octets))))
            }
            (AAAA, INTERNET) => {
                let octets: [u8; 16] = data.try_into().map_err(|_| Fault::Invalid)?;
                Ok(Some(IpAddr::V6(Ipv6Addr::from(octets))))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;
    use simple_dns::rdata::{A as V4, AAAA as V6, CNAME, RData, TXT};
    use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, ResourceRecord, TYPE};

    use super::*;

    #[derive(Clone, Debug)]
    enum Record {
        Address(IpAddr),
        Alias,
        Text,
    }

    fn records() -> impl Strategy<Value = Vec<(u8, Record)>> {
        let record = prop_oneof![
            3 => any::<u32>().prop_map(|bits| Record::Address(Ipv4Addr::from(bits).into())),
            2 => any::<u128>().prop_map(|bits| Record::Address(Ipv6Addr::from(bits).into())),
            2 => Just(Record::Alias),
            1 => Just(Record::Text),
        ];
        proptest::collection::vec((0..4_u8, record), 0..14)
    }

    const NAMES: [&str; 4] = ["example.net", "www.example.net", "a.long.name.in.www.example.net", "cdn.example.org"];

    /// Builds a response to a query for `asked` with another library.
    fn response(asked: TYPE, records: &[(u8, Record)], compressed: bool) -> Vec<u8> {
        let mut packet = Packet::new_reply(7);
        packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
        let name = |at: u8| Name::new_unchecked(NAMES[usize::from(at)]);
        packet.questions.push(Question::new(name(1), QTYPE::TYPE(asked), QCLASS::CLASS(CLASS::IN), false));
        for (at, record) in records {
            let data = match record {
                Record::Address(IpAddr::V4(address)) => RData::A(V4 { address: address.to_bits() }),
                Record::Address(IpAddr::V6(address)) => RData::AAAA(V6 { address: address.to_bits() }),
                Record::Alias => RData::CNAME(CNAME(name((at + 1) % 4))),
                Record::Text => RData::TXT(TXT::new().with_string("v=spf1 -all").expect("it is short")),
            };
            packet.answers.push(ResourceRecord::new(name(*at), CLASS::IN, 300, data));
        }
        let written = if compressed { packet.build_bytes_vec_compressed() } else { packet.build_bytes_vec() };
        written.expect("it is a message")
    }

    fn addresses(records: &[(u8, Record)]) -> Vec<IpAddr> {
        let of = |(_, record): &(u8, Record)| match record {
            Record::Address(address) => Some(*address),
            Record::Alias | Record::Text => None,
        };
        records.iter().filter_map(of).take(ADDRESSES_MAX).collect()
    }

    fn told(answer: Option<Answer>) -> Option<Vec<IpAddr>> {
        answer.map(|answer| match answer {
            Answer::Addresses { addresses, count, .. } => addresses[..count].to_vec(),
            Answer::Nowhere { .. } => vec![],
        })
    }

    proptest! {
        #[test]
        fn reads_what_another_library_writes(records in records(), compressed in any::<bool>()) {
            let message = response(TYPE::A, &records, compressed);
            let expected = (!records.is_empty()).then(|| addresses(&records));
            prop_assert_eq!(read(&message).map(told), Ok(expected));
        }

        /// Whatever another library can read, this reads alike; what is cut short neither does.
        #[test]
        fn reads_spoilt_messages_as_another_library_does(
            records in records(),
            compressed in any::<bool>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in 0..40_usize,
        ) {
            let mut message = response(TYPE::TXT, &records, compressed);
            for (at, byte) in changes {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let own = read(&message);
            if let Ok(packet) = Packet::parse(&message)
                && let Ok(own) = own
            {
                let of = |record: &ResourceRecord| match &record.rdata {
                    // That library reads the highest bit of a class as multicast DNS has it, and its class without; here it is another
                    // class.
                    _ if record.class != CLASS::IN || record.cache_flush => None,
                    RData::A(V4 { address }) => Some(IpAddr::V4(Ipv4Addr::from(*address))),
                    RData::AAAA(V6 { address }) => Some(IpAddr::V6(Ipv6Addr::from(*address))),
                    _ => None,
                };
                let expected: Vec<_> = packet.answers.iter().filter_map(of).take(ADDRESSES_MAX).collect();
                prop_assert!(own.is_none() || told(own) == Some(expected));
            }
            message.truncate(message.len().saturating_sub(cut));
            let _ = read(&message);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    /// The beginning of a message tells the addresses that are in it.
    #[test]
    fn the_beginning_of_a_message_has_the_addresses_that_are_there() {
        let records: Vec<_> = (1..=6).map(|last| (1, Record::Address(Ipv4Addr::new(10, 0, 0, last).into()))).collect();
        let message = response(TYPE::A, &records, true);
        let record = 16;
        let behind = message.len() - 6 * record;
        for len in 0..=message.len() {
            let read = read_beginning(&message[..len]).map(told);
            let expected = match len {
                _ if len < behind => Err(Unreadable),
                // There are records, and nobody knows of what.
                _ if len < behind + record => Ok(Some(vec![])),
                _ => Ok(Some(addresses(&records[..(len - behind) / record]))),
            };
            assert_eq!(read, expected, "{len} of {} bytes", message.len());
        }
        let mut invalid = message;
        invalid[behind + record] = 0x80;
        assert_eq!(read_beginning(&invalid), Err(Unreadable));
    }

    /// Every prefix of a message is unreadable: what is missing is noticed.
    #[test]
    fn what_is_cut_short_is_unreadable() {
        let records = [(1, Record::Alias), (2, Record::Address(Ipv4Addr::LOCALHOST.into())), (1, Record::Text)];
        for compressed in [false, true] {
            let message = response(TYPE::A, &records, compressed);
            assert!(read(&message).is_ok());
            for len in 0..message.len() {
                assert_eq!(read(&message[..len]), Err(Unreadable), "{len} of {} bytes", message.len());
            }
        }
    }

    #[test]
    fn answers_without_an_address_count_by_what_was_asked() {
        let text = [(1, Record::Text)];
        for (asked, expected) in [
            (TYPE::TXT, Some(Answer::Nowhere { name: 0 })),
            (TYPE::NULL, Some(Answer::Nowhere { name: 0 })),
            (TYPE::CNAME, Some(Answer::Nowhere { name: 0 })),
            (TYPE::MX, Some(Answer::Nowhere { name: 0 })),
            (TYPE::PTR, None),
            (TYPE::HTTPS, None),
            (TYPE::DNSKEY, None),
        ] {
            assert_eq!(read(&response(asked, &text, true)), Ok(expected), "{asked:?}");
        }
    }

    #[test]
    fn both_families_answer_one_name_however_it_is_written() {
        let of = |asked, record, spelling: fn(&mut [u8])| {
            let mut message = response(asked, &[(1, record)], true);
            spelling(&mut message[HEADER..HEADER + 17]);
            match read(&message) {
                Ok(Some(Answer::Addresses { name, .. } | Answer::Nowhere { name })) => name,
                other => panic!("{other:?}"),
            }
        };
        let v4 = of(TYPE::A, Record::Address(Ipv4Addr::LOCALHOST.into()), |_| ());
        let v6 = of(TYPE::AAAA, Record::Address(Ipv6Addr::LOCALHOST.into()), <[u8]>::make_ascii_uppercase);
        let alias = of(TYPE::AAAA, Record::Alias, |_| ());
        let another = of(TYPE::A, Record::Address(Ipv4Addr::LOCALHOST.into()), |name| name[1] = b'x');
        assert!(v4 != 0 && v4 == v6 && v4 == alias && v4 != another, "{v4} {v6} {alias} {another}");
    }

    #[test]
    fn errors_queries_and_messages_to_be_asked_for_again_answer_nothing() {
        let message = response(TYPE::A, &[(1, Record::Address(Ipv4Addr::LOCALHOST.into()))], true);
        for (at, bits) in [(2, RESPONSE), (2, CUT), (2, 0x20), (3, 3)] {
            let mut other = message.clone();
            other[at] ^= bits;
            assert_eq!(read(&other), Ok(None), "byte {at} with {bits:#x}");
        }
        assert_eq!(read(&response(TYPE::A, &[], true)), Ok(None));
    }

    #[test]
    fn pointers_lead_back_or_the_message_is_unreadable() {
        let mut message = response(TYPE::A, &[(1, Record::Address(Ipv4Addr::LOCALHOST.into()))], true);
        let at = message.windows(2).position(|pair| pair == [0xc0, 0x0c]).expect("the answer's name is compressed");
        for target in [at, at + 1, 0x3fff, 11, 0] {
            message[at..at + 2].copy_from_slice(&(0xc000 | target as u16).to_be_bytes());
            assert_eq!(read(&message), Err(Unreadable), "a pointer to {target}");
        }
    }
}
