//! Refusals: one sentence, which says what to type.

use millrace_port_xdp::{Copying, Mode, Options, Spread, XdpPort};
use port::{Port, PortError};
use testkit::row::Row;

use crate::bench::{Forwards, across, both};

/// The sentence with which a port of the middle is refused.
fn refusal(row: &Row, options: Options, cores: usize) -> String {
    row.middle.enter(|| {
        let mut port = match XdpPort::new(options) {
            Ok(port) => port,
            Err(error) => return PortError::from(error).to_string(),
        };
        let refused = port.open(cores).err().map(|error| error.to_string());
        refused.unwrap_or_else(|| panic!("it can be opened: {:?}", port.describe()))
    })
}

#[test]
fn a_refusal_says_what_to_type() {
    let Some(row) = Row::new("refusals", 1500) else { return };
    let one = |name: &str| Options { frames: 256, ring_len: 64, ..Options::new([name]) };
    assert_eq!(refusal(&row, one("eth7"), 1), "there is no interface eth7; this network namespace has: lo, a0, a1");
    assert_eq!(
        refusal(&row, both(), 2),
        "a0 has 1 queue, but 2 sockets are wanted: a packet of a queue without a socket would be lost; type `ethtool -L a0 rx 2 tx 2`, \
         or use `--cores 1`"
    );
    row.middle.run("ethtool", &["-L", "a0", "rx", "2", "tx", "2"]).expect("a veth has queues");
    let single = Options { spread: Spread::Stream, ..one("a0") };
    let told = refusal(&row, single, 2);
    assert!(
        told.starts_with("a0 has 2 queues, but 1 socket is wanted") && told.ends_with("type `ethtool -L a0 rx 1 tx 1`"),
        "{told}"
    );
    row.middle.run("ethtool", &["-L", "a0", "rx", "1", "tx", "1"]).expect("a veth has queues");
    let zero = Options { copying: Copying::ZeroCopy, ..one("a0") };
    let told = refusal(&row, zero, 1);
    assert!(told.starts_with("a0: its driver has no zero-copy") && told.ends_with("use copy mode"), "{told}");
    let wrong = Options { frames: 1000, ..one("a0") };
    assert_eq!(refusal(&row, wrong, 1), "1000 frames: take a power of two from 256 to 262144");
}

#[test]
fn an_interface_that_has_a_program_is_refused_with_its_number() {
    let Some(row) = Row::new("occupied", 1500) else { return };
    let forwarder = row.forward(both(), across);
    let told = refusal(&row, both(), 1);
    let link = row.middle.ip(&["-d", "link", "show", "dev", "a0"]).expect("the end is there");
    let number = link.split_whitespace().skip_while(|word| *word != "id").nth(1).expect("it has a program");
    assert!(
        told.starts_with(&format!("a0 already has an XDP program, number {number}; remove it: ip link set")),
        "{told}"
    );
    assert!(forwarder.stop().balance.adds_up());
}

#[test]
fn a_driver_without_xdp_gets_generic_mode_said_aloud_or_is_refused() {
    let Some(row) = Row::new("loopback", 1500) else { return };
    let options = |mode| Options { mode, frames: 256, ring_len: 64, ..Options::new(["lo"]) };
    let told = refusal(&row, options(Mode::Native), 1);
    assert!(told.starts_with("lo: its driver runs no XDP program: ") && told.contains("use generic mode"), "{told}");
    row.middle.enter(|| {
        let mut port = XdpPort::new(options(Mode::Best)).expect("the options are right");
        let monitor = port.monitor();
        let opened = port.open(1).expect("generic mode works everywhere");
        let line = monitor.describe().remove(0);
        assert!(line.starts_with("lo: generic XDP (native was refused: "), "{line}");
        drop(opened);
        assert!(monitor.describe()[0].starts_with("lo: not attached"), "{:?}", monitor.describe());
    });
}

/// Runs `f` on a thread that has given up its capabilities: all of them, or the one with this number.
pub(crate) fn without<T: Send>(capability: Option<u32>, f: impl FnOnce() -> T + Send) -> T {
    let drop_and_run = || {
        /// `struct __user_cap_header_struct`, and twice `struct __user_cap_data_struct`.
        #[repr(C)]
        struct Header {
            version: u32,
            process: i32,
        }
        #[derive(Default)]
        #[repr(C)]
        struct Sets {
            effective: u32,
            permitted: u32,
            inheritable: u32,
        }
        let header = Header { version: 0x2008_0522, process: 0 };
        let mut sets = [Sets::default(), Sets::default()];
        // SAFETY: the kernel reads and writes structures of this layout. The call is about this thread alone.
        let got = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
        assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
        for (half, set) in (0..).zip(&mut sets) {
            let mask = match capability {
                None => 0,
                Some(number) if number / 32 == half => !(1 << (number % 32)),
                Some(_) => u32::MAX,
            };
            set.effective &= mask;
        }
        // SAFETY: as above.
        let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        f()
    };
    std::thread::scope(|scope| scope.spawn(drop_and_run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn missing_rights_are_named() {
    let Some(row) = Row::new("rights", 1500) else { return };
    row.middle.enter(|| {
        let opened = |options: Options| {
            let mut port = XdpPort::new(options).expect("the options are right");
            port.open(1).err().map(|error| error.to_string())
        };
        let told = without(None, || opened(both())).expect("it may not");
        assert!(told.contains("not permitted; run as root, or give the program its capabilities: setcap "), "{told}");
        // Raw sockets.
        let told = without(Some(13), || opened(both())).expect("it may not");
        assert!(told.starts_with("a0: make an AF_XDP socket: not permitted"), "{told}");
        // Locked memory. The limit is the process's, but those of its threads that have the capability don't feel it.
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: the limit lives.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
        let told = without(Some(14), || opened(both())).expect("it may not");
        assert!(told.starts_with("a0: 4194304 bytes of packet memory exceed the limit of locked memory"), "{told}");
        assert_eq!(opened(both()), None, "this thread may");
    });
}
