//! Real hosts talk TCP through the port.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use millrace_port_xdp::{Mode, Options};
use testkit::row::{LONG, Row};

use crate::bench::{Forwards, across, both};

/// Bytes that each connection carries in each direction.
const LEN: u32 = 4_000_000;

/// The bytes that a connection carries: other bytes for each.
fn content(connection: u32) -> Vec<u8> {
    (0..LEN).map(|at| ((at ^ connection << 20).wrapping_mul(0x9e37_79b1) >> 13) as u8).collect()
}

/// Four connections at once carry their content there, and the server sends back what it got.
fn transfer(label: &str, mtu: u32, options: Options) {
    let Some(row) = Row::new(label, mtu) else { return };
    row.address();
    let forwarder = row.forward(options, across);
    let listener = row.right.enter(|| TcpListener::bind("10.9.0.2:5001")).expect("the address is there");
    thread::scope(|scope| {
        for connection in 0..4 {
            let (listener, left) = (&listener, &row.left);
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client connects");
                stream.set_read_timeout(Some(LONG)).expect("it is not 0");
                let mut got = Vec::new();
                stream.read_to_end(&mut got).expect("the client sends all");
                stream.write_all(&got).expect("the client reads");
            });
            scope.spawn(move || {
                let sent = content(connection);
                let mut stream = left.enter(|| TcpStream::connect("10.9.0.2:5001")).expect("the server listens");
                stream.set_read_timeout(Some(LONG)).expect("it is not 0");
                stream.write_all(&sent).and_then(|()| stream.shutdown(Shutdown::Write)).expect("the server reads");
                let mut got = Vec::new();
                stream.read_to_end(&mut got).expect("the server answers");
                assert!(got == sent, "the content is the same at both ends");
            });
        }
    });
    let outcome = forwarder.stop();
    assert_eq!(outcome.received, outcome.sent.sent + outcome.sent.lost);
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn content_is_the_same_at_both_ends() {
    transfer("tcp", 1500, both());
}

#[test]
fn content_is_the_same_at_both_ends_in_generic_mode() {
    transfer("tcpgen", 1500, Options { mode: Mode::Generic, ..both() });
}

#[test]
fn content_is_the_same_at_both_ends_with_jumbo_packets() {
    transfer("tcpjumbo", 9000, both());
}
