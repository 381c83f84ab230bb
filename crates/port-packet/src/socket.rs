//! A packet socket: its options, and what is asked of it (`packet(7)`).

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// A packet socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Which packets a socket takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// None.
    Nothing,
    /// Those that arrive, up to this many bytes of each.
    Arriving(u32),
    /// All, up to this many bytes of each.
    All(u32),
}

/// Packets that the kernel has counted for a socket since the last question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    /// Packets for the socket, also those that it lost.
    pub(crate) offered: u32,
    /// Packets that found no room.
    pub(crate) lost: u32,
}

/// Plain data of the kernel's that any bytes are valid for.
///
/// # Safety
/// Any bytes are a valid value.
unsafe trait Plain {}
// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: three integers.
unsafe impl Plain for libc::tpacket_stats_v3 {}

impl Socket {
    /// A socket that receives nothing until it is bound.
    pub(crate) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Sets an option. `T` is what the option takes.
    pub(crate) fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a live value.
        let result = unsafe {
            let value = ptr::from_ref(value).cast::<c_void>();
            libc::setsockopt(self.as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn get<T: Plain>(&self, level: c_int, option: c_int) -> io::Result<T> {
        // SAFETY: zeroes are a valid value of plain data.
        let mut value: T = unsafe { mem::zeroed() };
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of a live value, for which any bytes are valid.
        let result = unsafe {
            libc::getsockopt(self.as_raw_fd(), level, option, ptr::from_mut(&mut value).cast(), &raw mut len)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
    }

    /// Receives all protocols of the interface with this number.
    pub(crate) fn bind(&self, index: u32) -> io::Result<()> {
        let address = address(index, libc::ETH_P_ALL as u16);
        // SAFETY: the pointer and the length are those of a live address.
        let result = unsafe {
            let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(self.as_raw_fd(), ptr::from_ref(&address).cast(), len)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// True if it is bound to the interface with this number. The kernel ends that when the interface goes, also if it comes back later.
    pub(crate) fn is_bound(&self, index: u32) -> bool {
        let (mut bound, mut len) = (address(0, 0), size_of::<libc::sockaddr_ll>() as libc::socklen_t);
        // SAFETY: the pointer and the length are those of a live address, for which any bytes are valid.
        let result = unsafe { libc::getsockname(self.as_raw_fd(), ptr::from_mut(&mut bound).cast(), &raw mut len) };
        result == 0 && bound.sll_ifindex == index as c_int
    }

    /// Sets which packets it takes, between two packets.
    pub(crate) fn filter(&self, filter: Filter) -> io::Result<()> {
        let code = |code: u32| code as u16;
        let load = libc::sock_filter {
            code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
            jt: 0,
            jf: 0,
            k: (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32,
        };
        let unless_outgoing = libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt: 0,
            jf: 1,
            k: u32::from(libc::PACKET_OUTGOING),
        };
        let take = |bytes| libc::sock_filter { code: code(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k: bytes };
        let mut program = match filter {
            Filter::Nothing => vec![take(0)],
            Filter::All(bytes) => vec![take(bytes)],
            Filter::Arriving(bytes) => vec![load, unless_outgoing, take(0), take(bytes)],
        };
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Joins the sockets of the same interface: each packet goes to one of them, chosen by the symmetric hash of its flow, in the order in
    /// which they have joined. Returns the number of their group.
    pub(crate) fn join(&self, group: Option<u16>, defragment: bool, arriving: bool) -> io::Result<u16> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let unique = flag(group.is_none(), libc::PACKET_FANOUT_FLAG_UNIQUEID);
        let kind = libc::PACKET_FANOUT_HASH | flag(defragment, libc::PACKET_FANOUT_FLAG_DEFRAG) | unique;
        let join = |kind| {
            self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &(kind << 16 | u32::from(group.unwrap_or_default())))
        };
        // The filter refuses what this machine sends. The flag saves the kernel the copy; before Linux 5.18 there is none.
        match join(kind | flag(arriving, libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING)) {
            Err(error) if arriving && error.raw_os_error() == Some(libc::EINVAL) => join(kind)?,
            joined => joined?,
        }
        Ok(self.get::<c_int>(libc::SOL_PACKET, libc::PACKET_FANOUT)? as u16)
    }

    /// Lets the card take frames for other hosts too, as long as the socket is open.
    pub(crate) fn be_promiscuous(&self, index: u32) -> io::Result<()> {
        let wish = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wish)
    }

    /// What the kernel has counted since the last call.
    pub(crate) fn statistics(&self) -> Statistics {
        // The question can't fail on a socket with a ring.
        self.get::<libc::tpacket_stats_v3>(libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map(|counted| Statistics { offered: counted.tp_packets, lost: counted.tp_drops })
            .unwrap_or_default()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The address of an interface.
pub(crate) fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Takes the error that a socket has, so that a poll waits again.
pub(crate) fn clear_error(fd: RawFd) {
    let (mut error, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the pointer and the length are those of a live integer.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, ptr::from_mut(&mut error).cast(), &raw mut len) };
}
