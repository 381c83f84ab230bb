//! Questions to the kernel by netlink(7): what rtnetlink(7) says of an interface, such as its XDP program and its queues.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// An interface as the kernel describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The number of the attached XDP program; 0 if there is none.
    pub program: u32,
    /// Where that program runs, as `XDP_ATTACHED_*`: 0 nowhere, 1 driver, 2 stack, 3 card, 4 several of them.
    pub place: u8,
    /// How many receive queues it may have.
    pub receive_queues: u32,
    /// The kind of its addresses, as `ARPHRD_*`.
    pub hardware: u16,
    /// How many have asked for packets to other addresses; 0 if none has.
    pub promiscuity: u32,
    /// The number of the interface at the other end of a virtual wire; 0 if it tells none.
    pub peer: u32,
    /// The other end's network namespace, by the number that this one has for it; `None` if it is this one.
    pub peer_namespace: Option<i32>,
}

const XDP: u16 = 43;
/// Inside of `XDP`: where the program runs.
const XDP_ATTACHED: u16 = 2;
/// Inside of `XDP`: the program in whatever mode, in the driver, in the stack, in the card.
const XDP_PROGRAMS: [u16; 4] = [4, 5, 6, 7];
const TYPE_MASK: u16 = 0x3fff;

const HEADER_LEN: usize = 16;
const INFO_LEN: usize = 16;

/// Asks for an interface by its number.
///
/// # Errors
/// There is no such interface, or the kernel refuses to tell.
pub fn link(index: u32) -> io::Result<Link> {
    // `struct ifinfomsg`.
    let mut about = [0_u8; INFO_LEN];
    about[4..8].copy_from_slice(&index.to_ne_bytes());
    parse(&ask(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &about)?)
}

/// Sends a request and returns what the first answer has behind its `struct nlmsghdr`.
///
/// # Errors
/// The kernel refuses, or its answer is malformed.
pub fn ask(protocol: c_int, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    // SAFETY: no memory is involved.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut request = vec![0_u8; HEADER_LEN];
    request[..4].copy_from_slice(&((HEADER_LEN + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend(body);
    // SAFETY: the pointer and the length are those of a live array.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0_u8; 32 << 10];
    // The kernel answers within the call that asks, so there is something to receive.
    // SAFETY: the pointer and the length are those of a live buffer.
    let len = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    unwrapped(&answer[..len as usize]).map(<[u8]>::to_vec)
}

/// Returns the bytes of an answer's first message behind its header, or the error that it tells.
fn unwrapped(answer: &[u8]) -> io::Result<&[u8]> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let len = word(answer, 0).ok_or_else(malformed)? as usize;
    let kind = half(answer, 4).ok_or_else(malformed)?;
    let body = answer.get(HEADER_LEN..len).ok_or_else(malformed)?;
    if kind == libc::NLMSG_ERROR as u16 {
        let code = word(body, 0).ok_or_else(malformed)? as i32;
        return Err(io::Error::from_raw_os_error(-code));
    }
    Ok(body)
}

/// Reads `struct ifinfomsg` and the attributes behind it.
fn parse(message: &[u8]) -> io::Result<Link> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let rest = message.get(INFO_LEN..).ok_or_else(malformed)?;
    let mut link = Link { hardware: half(message, 2).unwrap_or_default(), ..Link::default() };
    for (kind, value) in attributes(rest) {
        let number = word(value, 0).unwrap_or_default();
        match kind {
            libc::IFLA_LINK => link.peer = number,
            libc::IFLA_PROMISCUITY => link.promiscuity = number,
            libc::IFLA_NUM_RX_QUEUES => link.receive_queues = number,
            libc::IFLA_LINK_NETNSID => link.peer_namespace = Some(number as i32),
            XDP => {
                let programs = attributes(value).filter(|(kind, _)| XDP_PROGRAMS.contains(kind));
                link.program = programs.filter_map(|(_, value)| word(value, 0)).max().unwrap_or_default();
                let place = attributes(value).find(|(kind, _)| *kind == XDP_ATTACHED);
                link.place = place.and_then(|(_, value)| value.first().copied()).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(link)
}

/// The attributes of a message: kind and value, each padded to 4 bytes.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(rest, 0)?);
        let kind = half(rest, 2)? & TYPE_MASK;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Two bytes of a message, in the machine's order; `None` beyond its end.
#[must_use]
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Four bytes of a message, in the machine's order; `None` beyond its end.
#[must_use]
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_one_queue_and_no_program() {
        let expected = Link { receive_queues: 1, hardware: libc::ARPHRD_LOOPBACK, ..Link::default() };
        let found = link(1).expect("every namespace has it");
        // Somebody may be listening.
        assert_eq!(Link { promiscuity: 0, ..found }, expected);
        assert!(link(1 << 30).is_err());
    }

    #[test]
    fn a_program_is_found_with_its_place() {
        let mut message = vec![0; INFO_LEN];
        message[2] = 1;
        message.extend([20, 0, 43, 0, 5, 0, 2, 0, 2, 0, 0, 0, 8, 0, 4, 0, 77, 0, 0, 0]);
        message.extend([8, 0, 37, 0, 3, 0, 0, 0]);
        let expected = Link { program: 77, place: 2, hardware: 1, peer_namespace: Some(3), ..Link::default() };
        assert_eq!(parse(&message).expect("it is whole"), expected);
    }

    #[test]
    fn broken_answers_end_the_walk() {
        assert!(unwrapped(&[]).is_err());
        assert!(unwrapped(&[0; 20]).is_err());
        assert!(unwrapped(&[200, 0, 0, 0, 16, 0]).is_err());
        assert!(parse(&[0; 4]).is_err());
        let mut message = vec![0; INFO_LEN];
        message.extend([200, 0, 32, 0, 1, 0, 0, 0]);
        assert_eq!(parse(&message).expect("it has no attributes"), Link::default());
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0);
    }
}
