//! Asks the kernel whether an XDP program in a driver can send packets out of an interface: the generic netlink family `netdev`, from
//! Linux 6.3 on (`Documentation/netlink/specs/netdev.yaml`).

use std::io;
use std::sync::OnceLock;

use interface::netlink::{ask, attributes, half};

/// `struct genlmsghdr`.
const HEADER_LEN: usize = 4;
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const DEV_GET: u8 = 1;
const DEV_INDEX: u16 = 1;
const DEV_FEATURES: u16 = 3;
/// Features of an interface, as its XDP programs and those of others find them: it sends what they redirect to it.
const SENDS_REDIRECTED: u64 = 1 << 2;

/// True if programs in a driver can send packets out of the interface with this number.
///
/// # Errors
/// The kernel doesn't tell.
pub(crate) fn takes_redirects(index: u32) -> io::Result<bool> {
    static FAMILY: OnceLock<u16> = OnceLock::new();
    let family = match FAMILY.get() {
        Some(family) => *family,
        None => {
            let found = family()?;
            *FAMILY.get_or_init(|| found)
        }
    };
    let answer = ask(libc::NETLINK_GENERIC, family, &request(DEV_GET, DEV_INDEX, &index.to_ne_bytes()))?;
    Ok(features(&answer).ok_or(io::ErrorKind::InvalidData)? & SENDS_REDIRECTED != 0)
}

/// The number of the family `netdev`.
fn family() -> io::Result<u16> {
    let answer = ask(libc::NETLINK_GENERIC, CONTROL, &request(GET_FAMILY, FAMILY_NAME, b"netdev\0"))?;
    let rest = answer.get(HEADER_LEN..).unwrap_or_default();
    let id = attributes(rest).find(|(kind, _)| *kind == FAMILY_ID).and_then(|(_, value)| half(value, 0));
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A request with one attribute.
fn request(command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut request = vec![command, 1, 0, 0];
    request.extend(((4 + value.len()) as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(request.len().next_multiple_of(4), 0);
    request
}

/// The features in an answer about an interface.
fn features(answer: &[u8]) -> Option<u64> {
    let value = attributes(answer.get(HEADER_LEN..)?).find(|(kind, _)| *kind == DEV_FEATURES)?.1;
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_sends_nothing_that_is_redirected() {
        match takes_redirects(1) {
            Ok(takes) => assert!(!takes, "it has no such call"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "a kernel before 6.3: {error}"),
        }
    }

    #[test]
    fn a_broken_answer_has_no_features() {
        assert_eq!(features(&[]), None);
        assert_eq!(features(&[0, 0, 0, 0, 8, 0, 3, 0, 4, 0, 0, 0]), None);
        assert_eq!(
            features(&[0, 0, 0, 0, 12, 0, 3, 0, 4, 0, 0, 0, 1, 0, 0, 0]),
            Some(u64::from_ne_bytes([4, 0, 0, 0, 1, 0, 0, 0]))
        );
    }
}
