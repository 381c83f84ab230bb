//! An AF_XDP socket: one queue of one interface, with its receive and transmit ring, and for the queue's first socket the two others.
//!
//! For each interface the memory of a core's frames is registered anew, so that sockets of several interfaces share frames and yet stand for
//! themselves: one may be zero-copy and another not, and one can be closed and opened again while the others run. (With
//! `XDP_SHARED_UMEM` all would follow the first socket, and none could be opened once that one's interface is gone.)

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use interface::Area;

use crate::error::XdpError;
use crate::options::{BusyPoll, Copying};
use crate::ring::{Consumer, Descriptor, Layout, Producer};
use crate::umem::{HEADROOM, Umem};

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Socket {
    file: OwnedFd,
    has_busy_poll: bool,
}

/// A socket and its rings.
pub(crate) struct Opened {
    pub(crate) socket: Arc<Socket>,
    pub(crate) received: Consumer<Descriptor>,
    pub(crate) transmit: Producer<Descriptor>,
    pub(crate) binding: Binding,
}

/// The form in which a socket was bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) zero_copy: bool,
    /// Why it isn't zero-copy, if that was tried.
    pub(crate) refused: Option<String>,
    /// True if packets may lie in several frames.
    pub(crate) scattered: bool,
}

/// The wishes with which a socket is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) interface: &'a str,
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) queue: u32,
    pub(crate) ring_len: u32,
    /// Sockets that share the queue.
    pub(crate) sharing: u32,
    pub(crate) copying: Copying,
    pub(crate) need_wakeup: bool,
    pub(crate) busy_poll: Option<BusyPoll>,
    pub(crate) transmit_budget: u32,
    /// How long to try if the queue is still held, as for a moment after another process has ended.
    pub(crate) patience: Duration,
}

impl Wish<'_> {
    /// Entries of the rings that all sockets on the queue have together.
    const fn common_len(&self) -> u32 {
        (self.ring_len * self.sharing).next_power_of_two()
    }
}

/// Bytes of an Ethernet header with two VLAN tags, which the MTU doesn't count.
const LINK_HEADER: u32 = 22;

/// The largest MTU whose packets fit in one frame.
pub(crate) const fn mtu_max(frame_len: u32) -> u32 {
    frame_len - HEADROOM - LINK_HEADER
}

/// `XDP_MAX_TX_SKB_BUDGET`.
const TRANSMIT_BUDGET: c_int = 9;

/// Opens and binds the first socket of a queue. Returns it with the queue's fill and completion ring.
pub(crate) fn open(umem: &Umem, wish: &Wish<'_>) -> Result<(Opened, Producer<u64>, Consumer<u64>), XdpError> {
    let scattered = wish.mtu > mtu_max(umem.frame_len());
    let attempt = |zero_copy, refused| {
        let (opened, rings) = bind(umem, wish, None, Binding { zero_copy, refused, scattered })?;
        let [fill, completed] = rings.expect("the first socket has them");
        Ok((opened, Producer::new(fill.0, fill.1), Consumer::new(completed.0, completed.1)))
    };
    match wish.copying {
        Copying::Copy => attempt(false, None),
        Copying::ZeroCopy => attempt(true, None),
        Copying::Best => match attempt(true, None) {
            Err(XdpError::NoZeroCopy { source, .. }) => attempt(false, Some(source.to_string())),
            opened => opened,
        },
    }
}

/// Opens and binds another socket of the queue: with its memory, and in its mode.
pub(crate) fn open_beside(umem: &Umem, first: &Socket, wish: &Wish<'_>) -> Result<Opened, XdpError> {
    let scattered = wish.mtu > mtu_max(umem.frame_len());
    bind(umem, wish, Some(first), Binding { zero_copy: false, refused: None, scattered }).map(|(opened, _)| opened)
}

/// A ring's mapping, and where its parts lie there.
type Rings<const N: usize> = [(Arc<Area>, Layout); N];

fn bind(
    umem: &Umem,
    wish: &Wish<'_>,
    first: Option<&Socket>,
    binding: Binding,
) -> Result<(Opened, Option<Rings<2>>), XdpError> {
    let end = Instant::now() + wish.patience;
    loop {
        let socket = new_socket(wish)?;
        let common = if first.is_none() { Some(socket.register(umem, wish)?) } else { None };
        let [received, transmit] = socket.rings(wish.ring_len, wish)?;
        let error = match socket.bind(wish, first, &binding) {
            Ok(()) => {
                socket.hasten(wish)?;
                let opened = Opened {
                    socket: Arc::new(socket),
                    received: Consumer::new(received.0, received.1),
                    transmit: Producer::new(transmit.0, transmit.1),
                    binding,
                };
                return Ok((opened, common));
            }
            Err(error) => error,
        };
        let interface = wish.interface.to_owned();
        match error.raw_os_error() {
            Some(libc::EBUSY) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            Some(libc::EBUSY) => return Err(XdpError::QueueHeld { interface, queue: wish.queue }),
            Some(libc::EPERM | libc::EACCES) => {
                return Err(XdpError::system(wish.interface, "bind an AF_XDP socket", error));
            }
            _ if binding.zero_copy => return Err(XdpError::NoZeroCopy { interface, source: error }),
            Some(libc::EINVAL | libc::EOPNOTSUPP) if binding.scattered => {
                let (mtu, frame_len) = (wish.mtu, umem.frame_len());
                return Err(XdpError::Mtu { interface, mtu, frame_len, holds: mtu_max(frame_len), source: error });
            }
            _ => return Err(XdpError::system(wish.interface, "bind an AF_XDP socket", error)),
        }
    }
}

/// Makes a socket without memory or rings.
fn new_socket(wish: &Wish<'_>) -> Result<Socket, XdpError> {
    // SAFETY: no memory is involved.
    let file = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if file < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => XdpError::NoSockets,
            _ => XdpError::system(wish.interface, "make an AF_XDP socket", error),
        });
    }
    // SAFETY: the kernel has just made it for us.
    Ok(Socket { file: unsafe { OwnedFd::from_raw_fd(file) }, has_busy_poll: wish.busy_poll.is_some() })
}

impl Socket {
    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a live value.
        let result = unsafe {
            let value = ptr::from_ref(value).cast::<c_void>();
            libc::setsockopt(self.as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn get<T: Default>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let mut value = T::default();
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of a live value, whose type takes any bytes: callers ask for plain integers.
        let result = unsafe {
            libc::getsockopt(self.as_raw_fd(), level, option, ptr::from_mut(&mut value).cast(), &raw mut len)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
    }

    /// Registers the memory of frames, and makes the rings that go with it: fill and completion.
    fn register(&self, umem: &Umem, wish: &Wish<'_>) -> Result<Rings<2>, XdpError> {
        let memory = umem.memory();
        let register = libc::xdp_umem_reg {
            addr: memory.cast::<u8>().as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: umem.frame_len(),
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &register).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                XdpError::LockedMemory { interface: wish.interface.to_owned(), bytes: umem.len() }
            }
            _ => XdpError::system(wish.interface, "register packet memory", error),
        })?;
        let len = wish.common_len();
        let rings = [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING];
        let pages = [libc::XDP_UMEM_PGOFF_FILL_RING as i64, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64];
        self.make(rings, len, wish)?;
        self.map(|[_, _, fill, completed]| [fill, completed], pages, len, [size_of::<u64>(); 2])
            .map_err(|error| XdpError::system(wish.interface, "map a ring", error))
    }

    /// Makes the socket's own rings: receive and transmit.
    fn rings(&self, len: u32, wish: &Wish<'_>) -> Result<Rings<2>, XdpError> {
        self.make([libc::XDP_RX_RING, libc::XDP_TX_RING], len, wish)?;
        let pages = [libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING];
        self.map(|[received, transmit, ..]| [received, transmit], pages, len, [size_of::<Descriptor>(); 2])
            .map_err(|error| XdpError::system(wish.interface, "map a ring", error))
    }

    fn make(&self, rings: [c_int; 2], len: u32, wish: &Wish<'_>) -> Result<(), XdpError> {
        rings
            .into_iter()
            .try_for_each(|ring| self.set(libc::SOL_XDP, ring, &len))
            .map_err(|error| XdpError::system(wish.interface, "make a ring", error))
    }

    /// Maps two of the four rings, whose places the kernel tells in the order receive, transmit, fill, completion.
    fn map(
        &self,
        choose: impl Fn([[u64; 4]; 4]) -> [[u64; 4]; 2],
        pages: [i64; 2],
        len: u32,
        entry_lens: [usize; 2],
    ) -> io::Result<Rings<2>> {
        // `struct xdp_mmap_offsets`: for each ring where its producer, consumer, entries and flags lie.
        let chosen = choose(self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?);
        let ring = |nth: usize| {
            let [producer, consumer, entries, flags] = chosen[nth].map(|offset| offset as usize);
            let layout = Layout { producer, consumer, flags, entries, len };
            let bytes = entries + len as usize * entry_lens[nth];
            Ok::<_, io::Error>((Arc::new(Area::of_file(self.as_raw_fd(), bytes, pages[nth])?), layout))
        };
        Ok([ring(0)?, ring(1)?])
    }

    /// Binds it to its queue; with `first`, to the same memory in the same mode.
    fn bind(&self, wish: &Wish<'_>, first: Option<&Self>, binding: &Binding) -> io::Result<()> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = if binding.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY }
            | flag(wish.need_wakeup, libc::XDP_USE_NEED_WAKEUP)
            | flag(binding.scattered, libc::XDP_USE_SG);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if first.is_some() { libc::XDP_SHARED_UMEM } else { flags },
            sxdp_ifindex: wish.index,
            sxdp_queue_id: wish.queue,
            sxdp_shared_umem_fd: first.map_or(0, |first| first.as_raw_fd() as u32),
        };
        // SAFETY: the pointer and the length are those of a live address.
        let result = unsafe {
            let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
            libc::bind(self.as_raw_fd(), ptr::from_ref(&address).cast(), len)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sets the options that make it faster.
    fn hasten(&self, wish: &Wish<'_>) -> Result<(), XdpError> {
        // Kernels that don't know this one send fewer packets in a call, and are called again. A budget beyond the ring is refused.
        let _ = self.set(libc::SOL_XDP, TRANSMIT_BUDGET, &wish.transmit_budget.min(wish.ring_len));
        let Some(BusyPoll { time_us, budget }) = wish.busy_poll else { return Ok(()) };
        self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1_u32)
            .and_then(|()| self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &time_us))
            .and_then(|()| self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &budget))
            .map_err(|error| XdpError::system(wish.interface, "turn busy polling on", error))
    }

    pub(crate) const fn has_busy_poll(&self) -> bool {
        self.has_busy_poll
    }

    /// Makes the kernel look at the transmit ring.
    pub(crate) fn wake_to_send(&self) -> io::Result<()> {
        // SAFETY: there are no bytes to read.
        let result = unsafe { libc::sendto(self.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the kernel look at the fill ring, and poll the card if that is on.
    pub(crate) fn wake_to_receive(&self) -> io::Result<()> {
        // SAFETY: there is no room to write to.
        let result = unsafe {
            libc::recvfrom(self.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// True while it is bound. The kernel ends that when the interface goes, also if an interface of the same number comes back.
    pub(crate) fn is_bound(&self) -> bool {
        !matches!(self.wake_to_receive(), Err(error) if error.raw_os_error() == Some(libc::ENXIO))
    }

    /// What the kernel has counted.
    pub(crate) fn statistics(&self) -> Statistics {
        self.get(libc::SOL_XDP, libc::XDP_STATISTICS).unwrap_or_default()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The kernel's counters of a socket: `struct xdp_statistics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Statistics {
    /// Packets dropped for want of a filled frame, or because they were too long.
    pub(crate) dropped: u64,
    pub(crate) invalid_receive: u64,
    pub(crate) invalid_transmit: u64,
    /// Packets dropped because the receive ring was full.
    pub(crate) ring_full: u64,
    /// How often the fill ring was found empty; in copy mode each is a packet that `dropped` counts too.
    pub(crate) fill_empty: u64,
    pub(crate) transmit_empty: u64,
}

impl Statistics {
    /// Packets that arrived for the socket and were lost.
    pub(crate) const fn lost(&self) -> u64 {
        self.dropped + self.ring_full
    }
}
