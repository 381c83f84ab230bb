//! Path-MTU errors: a router behind a function says that a link is too narrow, and the host behind the function must hear it.
//!
//! ```text
//! inside [h0] --- [inside0] wall [outside0] --- [h1] outside [h2] --- MTU 1300 --- [s0] server
//! ```
#![cfg(target_os = "linux")]

use std::fs;
use std::net::UdpSocket;

use testkit::netns::Namespace;
use testkit::row::bound;

use crate::counters::hold_accounts;
use crate::folder::Folder;
use crate::live::{LONG, Row, carry};

/// Maximum transmission unit of the narrow link.
const NARROW: u32 = 1300;
/// The error "message too long", as the kernel reports it at a socket.
const TOO_LONG: i32 = 90;

/// A server, and its addresses.
const SERVERS: [&str; 2] = ["10.10.0.2", "fd10::2"];

#[test]
fn a_firewall_lets_path_mtu_errors_through() {
    let Some((row, server)) = narrow("pmf") else { return };
    let folder = Folder::empty();
    for line in [
        "firewall --set inside=[\"10.9.0.1/32\",\"fd09::1/128\"] --engine rss --cores 2",
        "firewall --set inside=[\"10.9.0.1/32\",\"fd09::1/128\"] --engine scr --cores 2",
        "conntrack --engine rss++ --cores 2",
    ] {
        let run = row.run(&folder, line);
        SERVERS.into_iter().for_each(|address| learn(&row, &server, address, line));
        hold_accounts(&run.stop(), line);
    }
}

/// The packet that an error quotes gets its inside address back: the host knows its socket by it.
#[test]
fn a_translator_translates_path_mtu_errors_back() {
    let Some((row, server)) = narrow("pmn") else { return };
    row.address_for_nat();
    let folder = Folder::empty();
    for engine in ["--engine sequential", "--engine scr --cores 2"] {
        let line = format!("nat --set inside=[\"10.9.0.0/24\"] --set external=[\"192.0.2.100\"] {engine}");
        let run = row.run(&folder, &line);
        SERVERS.into_iter().for_each(|address| learn(&row, &server, address, &line));
        hold_accounts(&run.stop(), &line);
    }
}

/// A row whose outside host routes to a server over a narrow link.
fn narrow(label: &str) -> Option<(Row, Namespace)> {
    let row = Row::new(label)?;
    row.address_v6();
    let server = Namespace::new(&format!("{label}-s")).expect("root may");
    row.outside.enter(|| {
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            fs::write(format!("/proc/sys/net/{setting}"), "1").expect("root may");
        }
    });
    row.outside.lay_wire("h2", &server, "s0", NARROW).expect("the wire is laid");
    let ip = |namespace: &Namespace, line: &str| {
        namespace.ip(&line.split(' ').collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{line}: {error}"));
    };
    ip(&row.outside, "addr add 10.10.0.1/24 dev h2");
    ip(&row.outside, "addr add fd10::1/64 dev h2 nodad");
    // A router asks for its neighbours by a link-local address.
    ip(&row.outside, "addr add fe80::1/64 dev h1 nodad");
    ip(&row.outside, "addr add fe80::1/64 dev h2 nodad");
    ip(&server, "addr add 10.10.0.2/24 dev s0");
    ip(&server, "addr add fd10::2/64 dev s0 nodad");
    // The server announces segments as other links carry them. By its own link's MTU, no host would ever send longer ones.
    ip(&server, "route add default via 10.10.0.1 advmss 1460");
    ip(&server, "-6 route add default via fd10::1 advmss 1440");
    ip(&row.inside, "route add 10.10.0.0/24 via 10.9.0.2");
    ip(&row.inside, "-6 route add fd10::/64 via fd09::2");
    Some((row, server))
}

/// A TCP transfer and a datagram learn the path's MTU, each by an error of its own.
fn learn(row: &Row, server: &Namespace, address: &str, what: &str) {
    let what = format!("{address}: {what}");
    let end = if address.contains(':') { format!("[{address}]:5001") } else { format!("{address}:5001") };
    forget(row, address, &what);
    carry(&row.inside, server, &end, LONG).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(knows(row, address), "{what}: TCP has heard of the narrow link");

    forget(row, address, &what);
    let socket = server.enter(|| bound(|| UdpSocket::bind(&end)));
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let client = row.inside.enter(|| UdpSocket::bind(any)).expect("it has addresses");
    [&socket, &client].into_iter().for_each(|one| one.set_read_timeout(Some(LONG)).expect("it is not 0"));
    client.connect(&end).expect("there is a way");
    // "Don't fragment" is set as long as the path's MTU isn't known to be less.
    client.send(&[1; 1400]).expect("it is sent");
    let mut room = [0; 2000];
    let told = client.recv(&mut room).expect_err("nobody has got it");
    assert_eq!(told.raw_os_error(), Some(TOO_LONG), "{what}: {told}");
    assert!(knows(row, address), "{what}: UDP has heard of the narrow link");
    client.send(&[2; 1200]).expect("it is sent");
    let (len, back) = socket.recv_from(&mut room).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(room[..len] == [2; 1200], "{what}: the short one is the first that comes");
    socket.send_to(&room[..len], back).expect("it is sent");
    assert_eq!(client.recv(&mut room).expect("it comes back"), 1200, "{what}");
}

/// Makes the inside host forget what it has learned of paths.
fn forget(row: &Row, address: &str, what: &str) {
    for family in ["-4", "-6"] {
        row.inside.ip(&[family, "route", "flush", "cache"]).expect("root may");
    }
    assert!(!knows(row, address), "{what}: it has forgotten");
}

/// True if the inside host knows that the way to an address has a narrow link.
fn knows(row: &Row, address: &str) -> bool {
    let told = row.inside.ip(&["route", "get", address]).expect("there is a way");
    told.contains(&format!(" mtu {NARROW}"))
}
