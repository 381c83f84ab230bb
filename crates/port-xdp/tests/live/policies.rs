//! Packets that go across, that pass to the kernel, and that nobody claims.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use millrace_port_xdp::{Filter, LinkPolicy, ManagementPort, Options, Protocol};
use port::Fate;
use testkit::row::{LONG, Row, bound, eventually, numbered};

use crate::bench::{Forwards, across, both, pin, processors};

#[test]
fn hosts_resolve_each_other_and_ping_through_the_port() {
    let Some(row) = Row::new("ping", 9000) else { return };
    if let Some(missing) = testkit::netns::missing(&["ping"]) {
        eprintln!("SKIPPED (needs ping: no {missing}): hosts through an AF_XDP port");
        return;
    }
    row.address();
    let forwarder = row.forward(both(), across);
    for len in ["56", "8800"] {
        let count = ["-c", "5", "-i", "0.05", "-W", "5", "-s", len, "10.9.0.2"];
        let told = row.left.run("ping", &count).expect("the other host answers");
        assert!(told.contains("5 received") || told.contains("5 packets received"), "{told}");
    }
    let counts = forwarder.monitor.counts();
    assert!(counts[1].sent_across >= 1 && counts[0].sent_across >= 1, "a question and an answer: {counts:?}");
    // The same by IPv6 and its neighbour discovery.
    for (host, end, address) in [(&row.left, "h0", "fd09::1/64"), (&row.right, "h1", "fd09::2/64")] {
        let key = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        host.enter(|| std::fs::write(key, "0")).expect("root may");
        host.ip(&["addr", "add", address, "dev", end, "nodad"]).expect("the end is there");
    }
    let before = forwarder.monitor.counts()[1].sent_across;
    let told = row.left.run("ping", &["-6", "-c", "5", "-i", "0.05", "-W", "5", "fd09::2"]).expect("the host answers");
    assert!(told.contains("5 received") || told.contains("5 packets received"), "{told}");
    let counts = forwarder.monitor.counts();
    assert!(counts[1].sent_across > before, "a neighbour solicitation: {counts:?}");
    assert!(counts.iter().all(|count| count.lost_across == 0 && count.program.link_passed == 0), "{counts:?}");
    let outcome = forwarder.stop();
    // Hosts also send multicast listener reports, which are no link traffic.
    let reports = outcome.received.checked_sub(30).expect("the function has seen the echoes");
    assert!(reports <= 20, "{reports} other packets");
    assert_eq!((outcome.sent.sent, outcome.sent.lost), (outcome.received, 0));
    assert!(outcome.balance.adds_up(), "{outcome:?}");
}

#[test]
fn tags_of_a_vlan_come_with_the_packet() {
    let Some(row) = Row::new("vlan", 1500) else { return };
    let (tell, told) = mpsc::channel();
    let forwarder = row.work(both(), move |batch| {
        for index in 0..batch.len() {
            tell.send(batch.bytes(index)[12..18].to_vec()).expect("the test listens");
        }
    });
    let wires = row.wires();
    let tagged = |kind: [u8; 2]| {
        let mut frame = numbered(0, 1, 100);
        frame.splice(12..14, [0x81, 0, 0, 5, kind[0], kind[1]]);
        frame
    };
    wires[0].send(&tagged([8, 6])).expect("the wire takes it");
    wires[0].send(&tagged([8, 0])).expect("the wire takes it");
    assert_eq!(told.recv_timeout(LONG).expect("a packet comes"), [0x81, 0, 0, 5, 8, 0]);
    assert_eq!(forwarder.monitor.counts()[1].sent_across, 1, "ARP goes across behind a tag");
    let outcome = forwarder.stop();
    assert!(outcome.received == 1 && outcome.balance.adds_up(), "{outcome:?}");
}

/// Talks to an echo server in the middle. Returns true if it answered.
fn echoes(row: &Row, port: u16) -> bool {
    let listener = row.middle.enter(|| bound(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))));
    listener.set_nonblocking(true).expect("it is a socket");
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            row.left.enter(|| {
                let to = SocketAddr::from(([10, 9, 0, 9], port));
                let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_millis(1500)) else { return false };
                stream.set_read_timeout(Some(LONG)).expect("it is not 0");
                let mut answer = [0; 5];
                stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut answer)).is_ok() && &answer == b"hello"
            })
        });
        while !client.is_finished() {
            if let Ok((mut stream, _)) = listener.accept() {
                stream.set_nonblocking(false).expect("it is a socket");
                stream.set_read_timeout(Some(LONG)).expect("it is not 0");
                let mut question = [0; 5];
                if stream.read_exact(&mut question).is_ok() {
                    let _ = stream.write_all(&question);
                }
            }
            thread::park_timeout(Duration::from_millis(2));
        }
        client.join().expect("it doesn't panic")
    })
}

#[test]
fn management_ports_reach_the_kernel_and_others_the_function() {
    let Some(row) = Row::new("manage", 1500) else { return };
    row.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
    row.middle.ip(&["addr", "add", "10.9.0.9/24", "dev", "a0"]).expect("the end is there");
    let management = vec![ManagementPort { protocol: Protocol::Tcp, port: 2222 }];
    let filter = Filter { link: LinkPolicy::Kernel, management };
    let options = Options { filter, frames: 1024, ring_len: 512, ..Options::new(["a0"]) };
    let forwarder = row.forward(options, |_, _| Fate::Drop(0));
    assert!(echoes(&row, 2222), "the management port passes");
    let counts = &forwarder.monitor.counts()[0];
    assert!(counts.program.management_passed >= 4 && counts.program.link_passed >= 1, "{counts:?}");
    assert_eq!(counts.program.redirected, 0, "nothing else came: {counts:?}");
    assert!(!echoes(&row, 2223), "another port goes to the function, which drops");
    // A filter that is changed while the port runs.
    let management = vec![ManagementPort { protocol: Protocol::Tcp, port: 2223 }];
    forwarder.monitor.set_filter(&Filter { link: LinkPolicy::Kernel, management }).expect("the map is ours");
    assert!(echoes(&row, 2223), "now it passes");
    let line = &forwarder.monitor.describe()[0];
    assert!(line.contains("go to the kernel; to the kernel go packets to tcp 2223"), "{line}");
    let outcome = forwarder.stop();
    assert!(outcome.received > 0 && outcome.balance.adds_up(), "{outcome:?}");
}

#[test]
fn packets_of_a_queue_without_a_socket_are_dropped_and_counted() {
    let Some(row) = Row::new("unclaimed", 1500) else { return };
    let forwarder = row.forward(both(), across);
    // Two queues after the port was opened for one. The sender's queue decides which one a packet arrives at.
    for (namespace, end) in [(&*row.middle, "a0"), (&row.left, "h0")] {
        namespace.run("ethtool", &["-L", end, "rx", "2", "tx", "2"]).expect("a veth has queues");
    }
    eventually("the port sees it", || {
        forwarder.monitor.describe()[0].contains("now: a0 has 2 queues, but 1 socket is wanted")
    });
    let wires = row.wires();
    let mut sent = 0;
    let counts = || forwarder.monitor.counts()[0].program;
    // Which queue a raw socket sends by depends on the processor that it runs on.
    let cpus = processors();
    for cpu in cpus {
        pin(cpu);
        for number in 0..200 {
            wires[0].send(&numbered(0, number, 100)).expect("the wire takes it");
            sent += 1;
        }
    }
    eventually("all are counted", || counts().unclaimed + counts().redirected == sent);
    let unclaimed = counts().unclaimed;
    assert!(unclaimed > 0, "a sender on another processor uses the other queue: {:?}", counts());
    let outcome = forwarder.stop();
    assert_eq!(outcome.lost.unclaimed, unclaimed);
    assert_eq!(outcome.received + outcome.lost.unclaimed + outcome.lost.ring_full, sent);
}
