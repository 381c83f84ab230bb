//! Refusals: one sentence, which says what to type.

use std::fs::File;
use std::os::fd::AsRawFd;

use millrace_port_packet::{Options, PacketPort};
use port::{Port, PortError};
use testkit::row::Row;

use crate::bench::{both, tap};

/// The sentence with which a port is refused.
fn refusal(options: Options) -> String {
    let mut port = match PacketPort::new(options) {
        Ok(port) => port,
        Err(error) => return PortError::from(error).to_string(),
    };
    let refused = port.open(1).err().map(|error| error.to_string());
    refused.unwrap_or_else(|| panic!("it can be opened: {:?}", port.describe()))
}

#[test]
fn a_refusal_says_what_to_type() {
    let Some(row) = Row::new("refusals", 1500) else { return };
    row.middle.enter(|| {
        assert_eq!(refusal(tap("eth7")), "there is no interface eth7; this network namespace has: lo, a0, a1");
        let long = Options { block_timeout_ms: 5000, ..tap("a0") };
        assert_eq!(refusal(long), "a block timeout of 5000 ms: take 1 to 1000");
    });
    row.middle.ip(&["link", "set", "a0", "down"]).expect("the end is there");
    assert_eq!(row.middle.enter(|| refusal(tap("a0"))), "a0 is down; type `ip link set dev a0 up`");
}

/// A tunnel of this hardware type, in the namespace of the calling thread. It is gone with the file.
fn tunnel(name: &str, hardware: libc::c_int) -> File {
    /// `struct ifreq` with flags.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: i16,
        rest: [u8; 22],
    }
    /// `TUNSETIFF` and `TUNSETLINK`.
    const SET_INTERFACE: libc::Ioctl = 0x4004_54ca;
    const SET_LINK: libc::Ioctl = 0x4004_54cd;
    /// Bare IP packets, without a header of the tunnel's own.
    const TUN_WITHOUT_HEADER: i16 = 0x1001;
    let file = File::options().read(true).write(true).open("/dev/net/tun").expect("the kernel has tunnels");
    let mut request = Request { name: [0; 16], flags: TUN_WITHOUT_HEADER, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the kernel reads and writes a structure of this layout, which outlives the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), SET_INTERFACE, &raw mut request) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the argument is a number.
    let set = unsafe { libc::ioctl(file.as_raw_fd(), SET_LINK, hardware) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    file
}

#[test]
fn an_interface_without_ethernet_is_read_as_ip_or_refused() {
    let Some(row) = Row::new("links", 1500) else { return };
    const NONE: libc::c_int = 65_534;
    const SIT: libc::c_int = 776;
    let _tunnels = row.middle.enter(|| [tunnel("ip7", NONE), tunnel("sit7", SIT)]);
    for name in ["ip7", "sit7"] {
        row.middle.ip(&["link", "set", name, "up"]).expect("it is there");
    }
    let told = row.middle.enter(|| refusal(tap("sit7")));
    assert!(
        told.starts_with("sit7: its frames are neither Ethernet nor bare IP packets (hardware type 776)"),
        "{told}"
    );
    row.middle.enter(|| {
        let mut port = PacketPort::new(tap("ip7")).expect("the options are right");
        assert!(port.open(1).is_ok(), "bare IP packets can be read");
    });
}

/// Runs `f` on a thread that has given up its capabilities.
fn without_rights<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let drop_and_run = || {
        /// `struct __user_cap_header_struct`.
        #[repr(C)]
        struct Header {
            version: u32,
            process: i32,
        }
        let header = Header { version: 0x2008_0522, process: 0 };
        // Twice `struct __user_cap_data_struct`: what is effective, permitted and inheritable.
        let none = [0_u32; 6];
        // SAFETY: the kernel reads structures of this layout. The call is about this thread alone.
        let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        f()
    };
    std::thread::scope(|scope| scope.spawn(drop_and_run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn a_missing_right_is_named() {
    let Some(row) = Row::new("rights", 1500) else { return };
    row.middle.enter(|| {
        let told = without_rights(|| refusal(both()));
        assert_eq!(
            told,
            "a0: make a packet socket: not permitted; run as root, or give the program its capabilities: \
             setcap cap_net_raw+ep FILE"
        );
    });
}
