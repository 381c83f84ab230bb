//! Netlink messages of the kernel's netfilter: deletes tracked connections, and receives logged packets.

use std::cell::RefCell;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const NETFILTER: u32 = 12;
const REQUEST_ACK: u16 = 1 | 4;
/// `IPCTNL_MSG_CT_DELETE`.
const DELETE: u16 = 1 << 8 | 2;
/// `NFULNL_MSG_PACKET` and `NFULNL_MSG_CONFIG`.
const LOGGED: u16 = 4 << 8;
const CONFIGURE: u16 = 4 << 8 | 1;
/// `NFULA_PAYLOAD`.
const PAYLOAD: u16 = 9;

/// Deletes all tracked connections of the calling thread's namespace: a deletion that names no connection.
///
/// # Errors
/// The kernel's error.
pub fn flush_conntrack() -> io::Result<()> {
    ask(&socket()?, DELETE, 0, &[])
}

/// Packets that a rule of nftables logs to a group: `log group 5 queue-threshold 1`.
#[derive(Debug)]
pub struct PacketLog {
    socket: OwnedFd,
    /// Room for the longest message.
    buffer: RefCell<Vec<u8>>,
}

impl PacketLog {
    /// Listens to the group in the calling thread's namespace. A group has one listener.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(group: u16) -> io::Result<Self> {
        let socket = socket()?;
        // NFULA_CFG_CMD: bind. NFULA_CFG_MODE: copy 65,535 bytes of each packet.
        let mut bind = [5_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat();
        bind.extend([1, 0, 0, 0]);
        bind.extend([10_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat());
        bind.extend([0, 0, 0xff, 0xff, 2, 0, 0, 0]);
        ask(&socket, CONFIGURE, group, &bind)?;
        Ok(Self { socket, buffer: RefCell::new(vec![0; 65_536 + 4_096]) })
    }

    /// Receives the IP packets that have been logged.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take(&self) -> io::Result<Vec<Vec<u8>>> {
        let (mut packets, mut buffer) = (Vec::new(), self.buffer.borrow_mut());
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, len)) => logged(&buffer[..len], &mut packets),
                Err(Errno::AGAIN) => return Ok(packets),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Protocol::from_raw(NonZeroU32::new(NETFILTER).expect("not zero"));
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(protocol))?)
}

/// Sends a request and waits for its acknowledgement, which the kernel sends before `sendto` returns.
fn ask(socket: &OwnedFd, kind: u16, resource: u16, attributes: &[u8]) -> io::Result<()> {
    let mut message = (20 + attributes.len() as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 2]);
    message.extend(resource.to_be_bytes());
    message.extend(attributes);
    rustix::net::sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (_, len) = rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())?;
    match answer.get(16..20).filter(|_| len >= 20) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code.try_into().expect("four bytes")))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Collects the packets of logged messages.
fn logged(mut messages: &[u8], packets: &mut Vec<Vec<u8>>) {
    while let Some(header) = messages.first_chunk::<16>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(mut attributes) = messages.get(20..len) else { return };
        while let Some([low, high, kind_low, kind_high]) = attributes.first_chunk() {
            let (size, kind) = (u16::from_ne_bytes([*low, *high]), u16::from_ne_bytes([*kind_low, *kind_high]));
            let Some(value) = attributes.get(4..usize::from(size)) else { break };
            if kind == PAYLOAD && u16::from_ne_bytes([header[4], header[5]]) == LOGGED {
                packets.push(value.to_vec());
            }
            attributes = attributes.get(usize::from(size).next_multiple_of(4)..).unwrap_or(&[]);
        }
        messages = messages.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
}
