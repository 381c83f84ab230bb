//! A process that is killed leaves no program behind, and its queues can be bound again.

use std::io::{BufRead, BufReader};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use millrace_port_xdp::XdpPort;
use port::Port;
use testkit::row::{LONG, Row, crossing, eventually, exchange};

use crate::bench::{Forwards, across, both};

const CHILD: &str = "MILLRACE_XDP_CHILD";

/// Not a test by itself: the process that is killed, started by the test below.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut port = XdpPort::new(both()).expect("the options are right");
    let _opened = port.open(1).expect("the port can be opened");
    println!("\nOPEN");
    // Bounded, should nobody kill it.
    std::thread::sleep(LONG);
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let Some(row) = Row::new("kill", 1500) else { return };
    for _ in 0..3 {
        let program = std::env::current_exe().expect("this test is a program");
        // The child is the one that holds the sockets, so it enters the namespace itself and is not started by `ip`.
        let mut child = row.middle.enter(|| {
            let mut command = Command::new(program);
            command.args(["--exact", "kill::child", "--nocapture"]).env(CHILD, "1");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().expect("it can be started")
        });
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let opened = output.lines().map_while(Result::ok).any(|line| line.contains("OPEN"));
        assert!(opened, "the child opens its port");
        let shown = |row: &Row| row.middle.ip(&["-d", "link", "show", "dev", "a0"]).expect("the end is there");
        assert!(shown(&row).contains("prog/xdp id"), "{}", shown(&row));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        eventually("the program goes with its process", || !shown(&row).contains("prog/xdp"));
        let forwarder = row.forward(both(), across);
        exchange(&row.wires(), &[0, 1], 100, 200, crossing);
        assert!(forwarder.stop().balance.adds_up());
        assert!(!shown(&row).contains("prog/xdp"), "a port that ends takes its program off");
    }
}

/// Copies of this process's attachments, as a process has them that is forked and doesn't run another program yet.
fn attachments() -> Vec<OwnedFd> {
    let files = std::fs::read_dir("/proc/self/fd").expect("a process may see its files");
    let links = files
        .filter_map(Result::ok)
        .filter(|file| std::fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:bpf_link"));
    let numbers = links.filter_map(|file| file.file_name().to_str()?.parse::<RawFd>().ok());
    // SAFETY: borrowed for the copying alone. Another test may close the file before, and then there is no copy.
    numbers.filter_map(|number| unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()).collect()
}

#[test]
fn a_program_goes_with_its_port_though_its_attachment_is_still_open_elsewhere() {
    let Some(row) = Row::new("fork", 1500) else { return };
    let shown = || row.middle.ip(&["-d", "link", "show", "dev", "a0"]).expect("the end is there");
    let forwarder = row.forward(both(), across);
    let copies = attachments();
    assert!(copies.len() >= 2 && shown().contains("prog/xdp id"), "{}", shown());
    assert!(forwarder.stop().balance.adds_up());
    assert!(!shown().contains("prog/xdp"), "{}", shown());
}
