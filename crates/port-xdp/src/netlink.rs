//! One question to the kernel by rtnetlink(7): which XDP program an interface has, and how many queues it was made with.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// What the kernel says of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// The number of the attached XDP program; 0 if there is none.
    pub(crate) program: u32,
    pub(crate) receive_queues: u32,
}

const RECEIVE_QUEUES: u16 = 32;
const XDP: u16 = 43;
/// Inside of `XDP`: the program in whatever mode, in the driver, in the stack, in the card.
const XDP_PROGRAMS: [u16; 4] = [4, 5, 6, 7];
const TYPE_MASK: u16 = 0x3fff;

const HEADER_LEN: usize = 16;
const INFO_LEN: usize = 16;

/// Asks for an interface.
pub(crate) fn link(index: u32) -> io::Result<Link> {
    // SAFETY: no memory is involved.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // `struct nlmsghdr`, then `struct ifinfomsg`.
    let mut request = [0_u8; HEADER_LEN + INFO_LEN];
    request[..4].copy_from_slice(&((HEADER_LEN + INFO_LEN) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&index.to_ne_bytes());
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
    parse(&answer[..len as usize])
}

fn parse(answer: &[u8]) -> io::Result<Link> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = half(answer, 4).ok_or_else(malformed)?;
    if kind == libc::NLMSG_ERROR as u16 {
        let code = word(answer, HEADER_LEN).ok_or_else(malformed)? as i32;
        return Err(io::Error::from_raw_os_error(-code));
    }
    let mut link = Link::default();
    for (kind, value) in attributes(answer.get(HEADER_LEN + INFO_LEN..).ok_or_else(malformed)?) {
        match kind {
            RECEIVE_QUEUES => link.receive_queues = word(value, 0).unwrap_or_default(),
            XDP => {
                let programs = attributes(value).filter(|(kind, _)| XDP_PROGRAMS.contains(kind));
                link.program = programs.filter_map(|(_, value)| word(value, 0)).max().unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(link)
}

/// The attributes of a message: kind and value, each padded to 4 bytes.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(rest, 0)?);
        let kind = half(rest, 2)? & TYPE_MASK;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_one_queue_and_no_program() {
        assert_eq!(link(1).expect("every namespace has it"), Link { program: 0, receive_queues: 1 });
        assert!(link(1 << 30).is_err());
    }

    #[test]
    fn broken_answers_end_the_walk() {
        assert!(parse(&[]).is_err());
        assert!(parse(&[0; 20]).is_err());
        let mut answer = vec![0; HEADER_LEN + INFO_LEN];
        answer.extend([200, 0, 32, 0, 1, 0, 0, 0]);
        assert_eq!(parse(&answer).expect("it has no attributes"), Link::default());
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0);
    }
}
