//! What can't be opened is refused in one sentence that says what to type.

use millrace_port_packet::{Options, PacketPort};
use port::{Port, PortError};

use crate::bench::{Row, both, tap};

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
    let Some(row) = Row::new("refusals") else { return };
    row.middle.enter(|| {
        assert_eq!(refusal(tap("eth7")), "there is no interface eth7; this network namespace has: lo, a0, a1");
        let long = Options { block_timeout_ms: 5000, ..tap("a0") };
        assert_eq!(refusal(long), "a block timeout of 5000 ms: take 1 to 1000");
    });
    row.middle.ip(&["link", "set", "a0", "down"]).expect("the end is there");
    assert_eq!(row.middle.enter(|| refusal(tap("a0"))), "a0 is down; type `ip link set dev a0 up`");
}

#[test]
fn an_interface_without_ethernet_is_read_as_ip_or_refused() {
    let Some(row) = Row::new("links") else { return };
    row.middle.ip(&["link", "add", "sit7", "type", "sit"]).map_or_else(
        // Not every kernel has such tunnels.
        |error| eprintln!("SKIPPED (no sit tunnel: {error}): an interface that isn't Ethernet"),
        |_| {
            row.middle.ip(&["link", "set", "sit7", "up"]).expect("it is there");
            let told = row.middle.enter(|| refusal(tap("sit7")));
            assert!(
                told.starts_with("sit7: its frames are neither Ethernet nor bare IP packets (hardware type 776)"),
                "{told}"
            );
        },
    );
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
    let Some(row) = Row::new("rights") else { return };
    row.middle.enter(|| {
        let told = without_rights(|| refusal(both()));
        assert_eq!(
            told,
            "a0: make a packet socket: not permitted; run as root, or give the program the capability CAP_NET_RAW: \
             setcap cap_net_raw+ep FILE"
        );
    });
}
