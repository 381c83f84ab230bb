//! VLAN tags: packets come as they were on the wire.

use std::sync::{Arc, Mutex};

use millrace_port_packet::{Options, Traffic};
use port::Fate;
use testkit::row::{Row, eventually, numbered};

use crate::bench::{Serves, across, both, received, serve, tap};

/// Frames with one tag and with two, of all priorities.
fn tagged() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..64_u16 {
        let plain = numbered(0, u64::from(number), 100);
        let [high, low] = ((number << 13) | ((number * 61) % 4096)).to_be_bytes();
        let one = [&plain[..12], &[0x81, 0, high, low], &plain[12..]].concat();
        let two = [&plain[..12], &[0x88, 0xa8, high, low], &[0x81, 0, 1, low], &plain[12..]].concat();
        frames.extend([one, two, plain]);
    }
    frames
}

#[test]
fn a_tag_that_the_kernel_has_taken_out_is_put_back() {
    let Some(row) = Row::new("tags", 1500) else { return };
    let came = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&came);
    let options = Options { traffic: Traffic::Arriving, ..tap("a0") };
    let server = row.serve(options, 1, move |_, packet, bytes| {
        assert_eq!(packet.wire_len as usize, bytes.len());
        noted.lock().expect("nobody panics").push(bytes.to_vec());
        Fate::Drop(0)
    });
    let beside = row.middle.enter(|| testkit::netns::Wire::open("a0")).expect("the end is there");
    let (wires, frames) = (row.wires(), tagged());
    frames.iter().for_each(|frame| wires[0].send(frame).expect("the wire takes it"));
    eventually("all are received", || received(&server) == frames.len() as u64);
    server.stop();
    assert_eq!(*came.lock().expect("nobody panics"), frames);
    // Or the test would show nothing: another socket doesn't see the outer tag.
    let first = beside.take().expect("the wire is up").expect("it has come");
    assert_eq!(first, numbered(0, 0, 100), "the kernel takes tags out");
}

#[test]
fn a_tagged_packet_is_forwarded_with_its_tag() {
    let Some(row) = Row::new("trunk", 1500) else { return };
    let came = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&came);
    let server = row.serve(both(), 1, across);
    // The same kind of port at the right host shows what arrives there.
    let arriving = Options { traffic: Traffic::Arriving, ..tap("h1") };
    let shown = serve(&row.right, arriving, 1, move |_, _, bytes| {
        noted.lock().expect("nobody panics").push(bytes.to_vec());
        Fate::Drop(0)
    });
    let (wires, frames) = (row.wires(), tagged());
    frames.iter().for_each(|frame| wires[0].send(frame).expect("the wire takes it"));
    eventually("all arrive", || received(&shown) == frames.len() as u64);
    drop((server, shown));
    assert_eq!(*came.lock().expect("nobody panics"), frames);
}
