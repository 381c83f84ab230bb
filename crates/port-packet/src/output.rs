//! The transmitting half of a core: a socket for each interface, to which a burst goes in one system call.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use port::{Batch, PortError, Transmit, TransmitCounts};

use crate::device::Device;
use crate::error::PacketError;
use crate::input::count;
use crate::options::{Options, Role};
use crate::socket::{Socket, address};

/// Sends to all interfaces of one core, or to none if the port only observes.
pub(crate) struct Output {
    core: usize,
    devices: Vec<Arc<Device>>,
    /// `None` if nothing is sent.
    outlets: Option<Vec<Outlet>>,
    counts: TransmitCounts,
}

/// A socket to send by to one interface.
pub(crate) struct Outlet {
    device: Arc<Device>,
    socket: Socket,
}

/// Packets of one system call.
const CALL: usize = 64;
/// Bytes that may be under way in the kernel for each socket.
const BUFFER: i32 = 8 << 20;

impl Outlet {
    pub(crate) fn new(device: &Arc<Device>, options: &Options) -> Result<Self, PacketError> {
        let refused = |action| move |error| PacketError::system(&device.name, action, error);
        let socket = Socket::new().map_err(refused("make a packet socket"))?;
        // More than the limit for ordinary users needs another capability.
        if socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER).map_err(refused("set the send buffer"))?;
        }
        if options.bypass_qdisc {
            socket
                .set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
                .map_err(refused("send past the queueing discipline"))?;
        }
        Ok(Self { device: Arc::clone(device), socket })
    }

    /// Sends one packet. False if it is lost.
    pub(crate) fn send(&self, bytes: &[u8]) -> bool {
        let mut burst = Burst::new(self);
        burst.push(bytes);
        burst.send();
        burst.sent == 1
    }
}

impl Output {
    pub(crate) fn new(devices: &[Arc<Device>], options: &Options, core: usize) -> Result<Self, PacketError> {
        let outlets = match options.role {
            Role::Observe => None,
            Role::Forward => {
                let outlet = |device| Outlet::new(device, options);
                Some(devices.iter().map(outlet).collect::<Result<_, PacketError>>()?)
            }
        };
        Ok(Self { core, devices: devices.to_vec(), outlets, counts: TransmitCounts::default() })
    }
}

impl Transmit for Output {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let Some(outlets) = &self.outlets else { return Ok(()) };
        let mut wanted = 0;
        for packet in batch.packets() {
            wanted += packet.fate.ports().count() as u64;
        }
        if wanted == 0 {
            return Ok(());
        }
        let mut sent = 0;
        for (outlet, interface) in outlets.iter().zip(0..) {
            let mut burst = Burst::new(outlet);
            for (packet, bytes) in batch.each(0..batch.len()) {
                // Of a packet that was cut there is nothing to send.
                if packet.wire_len != packet.len {
                    continue;
                }
                for _ in packet.fate.ports().filter(|port| *port == interface) {
                    burst.push(bytes);
                }
            }
            burst.send();
            sent += burst.sent;
        }
        // Whatever was not sent is lost: no such interface, a packet that was cut, a refusal of the kernel.
        self.counts.add(&TransmitCounts { sent, lost: wanted - sent });
        Ok(())
    }

    /// The end of the output is the end of the input, too: what arrives from now on is not the run's.
    fn finish(&mut self) -> Result<(), PortError> {
        self.devices.iter().for_each(|device| device.end(self.core));
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.outlets.as_ref().map(|_| self.counts)
    }
}

/// Packets on their way to one interface.
struct Burst<'a> {
    outlet: &'a Outlet,
    packets: [&'a [u8]; CALL],
    len: usize,
    sent: u64,
}

impl<'a> Burst<'a> {
    fn new(outlet: &'a Outlet) -> Self {
        Self { outlet, packets: [&[]; CALL], len: 0, sent: 0 }
    }

    fn push(&mut self, bytes: &'a [u8]) {
        if self.len == CALL {
            self.send();
        }
        self.packets[self.len] = bytes;
        self.len += 1;
    }

    /// Sends what was pushed. The kernel has copied it when this returns.
    fn send(&mut self) {
        let count_len = mem::take(&mut self.len);
        let index = self.outlet.device.index();
        if count_len == 0 || index == 0 {
            return;
        }
        let mut address = address(index, 0);
        let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; CALL];
        // SAFETY: zeroes are valid messages.
        let mut messages: [libc::mmsghdr; CALL] = unsafe { mem::zeroed() };
        for ((bytes, part), message) in self.packets[..count_len].iter().zip(&mut parts).zip(&mut messages) {
            *part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = ptr::from_mut(&mut address).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        }
        let mut at = 0;
        while at < count_len {
            let left = &mut messages[at..count_len];
            // SAFETY: the messages, their parts and the address live. The kernel reads the parts, and writes only lengths into the messages.
            let taken = unsafe {
                libc::sendmmsg(
                    self.outlet.socket.as_raw_fd(),
                    left.as_mut_ptr(),
                    left.len() as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if taken > 0 {
                self.sent += taken as u64;
                at += taken as usize;
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // The rest would fare no better: no room, or no interface.
                Some(libc::EAGAIN | libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return,
                Some(libc::EMSGSIZE) => {
                    count(&self.outlet.device.noted.too_long, 1);
                    at += 1;
                }
                // This packet was refused, by a full queue of the interface for example.
                _ => at += 1,
            }
        }
    }
}
