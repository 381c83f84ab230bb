//! Every packet that is sent arrives once, whole, in both directions.

use millrace_port_xdp::{BusyPoll, Copying, Mode, Options};
use testkit::netns::{Namespace, Wire};
use testkit::row::{Row, crossing, exchange};

use crate::bench::{Forwards, across, both};

/// Packets of this length in both directions, more than there are frames.
fn unique(label: &str, options: Options, len: usize, total: u64) -> Option<Vec<String>> {
    let row = Row::new(label, 9000)?;
    let forwarder = row.forward(options, across);
    let arrived = exchange(&row.wires(), &[0, 1], len, total, crossing);
    for (side, arrived) in arrived.iter().enumerate() {
        assert!(arrived.keys().map(|(from, number)| (*from, *number)).eq((0..total).map(|number| (1 - side, number))));
        assert!(arrived.values().all(|count| *count == 1), "a packet arrived twice");
    }
    let described = forwarder.monitor.describe();
    let counts = forwarder.monitor.counts();
    assert_eq!(counts.iter().map(|count| count.program.redirected).collect::<Vec<_>>(), [total; 2], "{counts:?}");
    let outcome = forwarder.stop();
    assert_eq!((outcome.received, outcome.sent.sent, outcome.sent.lost), (2 * total, 2 * total, 0));
    assert!(outcome.balance.adds_up(), "{outcome:?}");
    assert_eq!(outcome.balance.free, outcome.balance.frames, "all frames are back: {outcome:?}");
    Some(described)
}

#[test]
fn short_packets() {
    let Some(lines) = unique("short", both(), 60, 5000) else { return };
    assert!(lines[0].starts_with("a0: native XDP, copy (zero-copy was refused"), "{lines:?}");
}

#[test]
fn packets_of_a_kilobyte() {
    unique("kilo", both(), 1000, 3000);
}

#[test]
fn jumbo_packets_in_frames_of_either_length() {
    let Some(lines) = unique("jumbo", both(), 8900, 1500) else { return };
    assert!(lines[0].contains("long packets in several"), "{lines:?}");
    unique("jumbo4k", Options { frame_len: 4096, ..both() }, 8900, 500);
}

#[test]
fn generic_mode() {
    let options = Options { mode: Mode::Generic, copying: Copying::Copy, ..both() };
    let Some(lines) = unique("generic", options.clone(), 200, 2000) else { return };
    unique("genjumbo", options, 8900, 300);
    assert!(lines[1].starts_with("a1: generic XDP, copy, 1 queue,"), "{lines:?}");
}

#[test]
fn tiny_rings_without_wakeup_flags() {
    let options = Options { frames: 256, ring_len: 64, burst: 7, need_wakeup: false, ..both() };
    unique("tiny", options, 300, 2000);
}

#[test]
fn busy_polling() {
    let options = Options { busy_poll: Some(BusyPoll::default()), ..both() };
    let Some(lines) = unique("busy", options, 100, 2000) else { return };
    assert!(lines[0].contains("busy polling for 20 us"), "{lines:?}");
}

#[test]
fn two_pairs_of_interfaces() {
    let Some(row) = Row::new("pairs", 1500) else { return };
    row.middle.lay_wire("a2", &row.left, "h2", 1500).expect("the wire is laid");
    row.middle.lay_wire("a3", &row.right, "h3", 1500).expect("the wire is laid");
    let options = Options { frames: 256, ring_len: 128, burst: 32, ..Options::new(["a0", "a1", "a2", "a3"]) };
    let forwarder = row.forward(options, across);
    let open = |name: &str, host: &Namespace| host.enter(|| Wire::open(name)).expect("the end is there");
    for wires in [row.wires(), [open("h2", &row.left), open("h3", &row.right)]] {
        let arrived = exchange(&wires, &[0, 1], 100, 1000, crossing);
        assert!(arrived.iter().all(|arrived| arrived.len() == 1000 && arrived.values().all(|count| *count == 1)));
    }
    let outcome = forwarder.stop();
    assert_eq!((outcome.received, outcome.sent.sent), (4000, 4000));
    assert!(outcome.balance.adds_up() && outcome.balance.frames == 1024, "{outcome:?}");
}
