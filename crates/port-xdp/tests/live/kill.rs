//! A process that is killed leaves no program behind, and its queues can be bound again.

use std::io::{BufRead, BufReader};
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
