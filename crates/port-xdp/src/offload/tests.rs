//! The program beside the card in Rust, on frames that a test hands to it: what the program takes, the card would take, with the same windows
//! after it. What the program doesn't take closes the entry.
#![allow(clippy::print_stderr)]

use std::sync::{Arc, Once};

use packet::{Endpoint, FiveTuple, Headers, LinkType, TcpFlags, Transport};
use port::Plain;
use testkit::{Build, Rng};

use super::*;
use crate::bpf::test_run;
use crate::error::XdpError;
use crate::filter::{Filter, LinkPolicy};
use crate::program::{Addition, Program};

const DROP: u32 = 1;
const REDIRECT: u32 = 4;
/// The loopback interface, which every namespace has.
const LOOPBACK: u32 = 1;

/// A table and its program, without a socket; `None` if this process may not load one.
fn loaded(len: u32) -> Option<(Arc<Connections>, Program)> {
    let connections = match Connections::new(len) {
        Ok(connections) => Arc::new(connections),
        Err(_) => return skipped(),
    };
    let filter = Filter { link: LinkPolicy::Kernel, management: Vec::new() };
    match Program::load("none", 1, &filter, Some(&Addition::Connections(Arc::clone(&connections)))) {
        Ok(program) => {
            program.set_outlet(LOOPBACK).expect("it is there");
            Some((connections, program))
        }
        Err(XdpError::Interface(_)) => skipped(),
        Err(error) => panic!("{error}"),
    }
}

fn skipped<T>() -> Option<T> {
    // Once for all tests.
    static TOLD: Once = Once::new();
    TOLD.call_once(|| eprintln!("SKIPPED (needs root): offload by the XDP program on frames"));
    None
}

fn headers(frame: &[u8]) -> Option<Headers> {
    packet::parse(LinkType::Ethernet, frame, frame.len() as u32, 0).ok()
}

const SECOND: u64 = 1_000_000_000;

fn terms(flow: &FiveTuple, tcp: Option<TcpWindows>) -> Terms {
    Terms {
        key: tuple_of(flow),
        id: 1,
        deadline: crate::clock::monotonic() + 100 * SECOND,
        idle: [200 * SECOND, 50 * SECOND],
        bytes_max: u64::MAX,
        forwards: [true, false],
        tcp,
    }
}

/// Puts a connection in, open.
fn put(connections: &Connections, number: u32, terms: &Terms) {
    connections.entry(number).begin(terms);
    connections.name(&terms.key, number).expect("there is room");
    assert!(connections.entry(number).open(0));
}

fn random_windows(rng: &mut Rng) -> TcpWindows {
    let side = |rng: &mut Rng| {
        let end = rng.below(1 << 32) as u32;
        let max_win = 1 + rng.below(1 << 18) as u32;
        TcpSide {
            end,
            max_end: end.wrapping_add(rng.below(1 << 18) as u32),
            max_win,
            max_ack: rng.below(1 << 32) as u32,
            scale: rng.below(15) as u8,
            unacknowledged: rng.chance(0.5),
        }
    };
    let sides = [side(rng), side(rng)];
    TcpWindows { sides, last: LastSegment { seq: 1, end: 1, ack: 1, window: 1, from_first: true } }
}

/// A packet of a connection, plain or not, mostly near its windows.
fn frame(rng: &mut Rng, ends: [Endpoint; 2], windows: Option<&TcpWindows>) -> Vec<u8> {
    let side = rng.below(2) as usize;
    let (from, to) = (ends[side], ends[1 - side]);
    let mut build = match windows {
        None => Build::udp(from, to),
        Some(windows) => {
            let first = FiveTuple::between(from, to, 6).expect("one family").symmetric().1;
            let [sender, receiver] = if first { [0, 1] } else { [1, 0] }.map(|at: usize| windows.sides[at]);
            let near = |rng: &mut Rng, at: u32| match rng.below(8) {
                0 => at.wrapping_add(rng.below(1 << 19) as u32),
                1 => at.wrapping_sub(rng.below(1 << 19) as u32),
                2 => at.wrapping_add(1),
                3 => rng.below(1 << 32) as u32,
                _ => at,
            };
            let flags = match rng.below(12) {
                0 => TcpFlags::ACK.with(TcpFlags::FIN),
                1 => TcpFlags::RST,
                2 => TcpFlags::SYN,
                3 => TcpFlags::PSH,
                4 => TcpFlags::ACK.with(TcpFlags::URG),
                _ => TcpFlags::ACK,
            };
            let mut build = Build::tcp(from, to).flags(flags).seq(near(rng, sender.end)).ack(near(rng, receiver.end));
            build = build.window(if rng.chance(0.05) { 0 } else { rng.below(65_536) as u16 });
            match rng.below(8) {
                0 => build.options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
                1 => build.options(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]),
                2 => build.sack(&[(1, 2)]),
                _ => build,
            }
        }
    };
    build = build.payload(rng.below(1300) as usize);
    match rng.below(30) {
        0 => build = build.fragment(0, true),
        1 => build = build.fragment(80, false),
        2 if ends[0].address.is_ipv4() => build = build.ip_options(&[1, 1, 1, 0]),
        3 => build = build.vlan(5),
        _ => {}
    }
    let mut bytes = build.bytes();
    match rng.below(30) {
        0 => bytes.truncate(14 + rng.below(bytes.len() as u64 - 14) as usize),
        1 => bytes.resize(bytes.len() + rng.below(20) as usize, 0),
        2 => {
            let at = 12 + rng.below(44.min(bytes.len() as u64 - 12)) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    bytes
}

#[test]
fn the_program_takes_what_the_card_in_rust_takes() {
    let Some((connections, program)) = loaded(4) else { return };
    let mut rng = Rng::new(7);
    let (mut taken, mut refused, mut cautious) = (0, 0, 0);
    for round in 0..6000 {
        let ends = if rng.chance(0.3) {
            ["fd00::1", "2001:db8::1"].map(|address| Endpoint::new(address.parse().unwrap(), rng.below(3) as u16 + 1))
        } else {
            ["10.0.0.1", "9.9.9.9"].map(|address| Endpoint::new(address.parse().unwrap(), rng.below(3) as u16 + 4788))
        };
        let is_tcp = rng.chance(0.7);
        let flow = FiveTuple::between(ends[0], ends[1], if is_tcp { 6 } else { 17 }).expect("one family").symmetric().0;
        let mut windows = is_tcp.then(|| random_windows(&mut rng));
        let number = rng.below(4) as u32;
        let terms = terms(&flow, windows);
        put(&connections, number, &terms);
        let entry = connections.entry(number);
        let mut expected = [(0, 0); 2];
        for _ in 0..4 {
            let bytes = frame(&mut rng, ends, windows.as_ref());
            let len = bytes.len() as u64;
            let plain = headers(&bytes).and_then(|headers| Plain::of(&headers)).filter(|plain| plain.flow == flow);
            let before = windows;
            let takes = plain.is_some_and(|plain| match (&mut windows, &plain.segment) {
                (None, None) => true,
                (Some(windows), Some(segment)) => windows.take(segment),
                (Some(_), None) | (None, Some(_)) => false,
            });
            let action = test_run(program.file(), &bytes).expect("it runs");
            let counts = [entry.taken(0), entry.taken(1)];
            let what = format!("round {round}: {bytes:02x?}");
            if counts == expected {
                // Only what the program doesn't look into may differ.
                if takes {
                    windows = before;
                    let headers = headers(&bytes).expect("it is plain");
                    match headers.transport {
                        Transport::Udp { dst_port, .. } => {
                            assert_eq!(dst_port, 4789, "a datagram was not taken, {what}")
                        }
                        _ => assert!(headers.payload_offset - headers.transport_offset > 20, "no options, {what}"),
                    }
                    cautious += 1;
                }
                assert!(action != REDIRECT, "{what}");
                refused += 1;
                if entry.state() == State::Open {
                    // It was of another connection, or can't be told to be of this one.
                    continue;
                }
                break;
            }
            let plain = plain.unwrap_or_else(|| panic!("it is not plain, {what}"));
            assert!(takes, "{what}");
            let side = usize::from(!plain.from_first);
            expected[side] = (expected[side].0 + 1, expected[side].1 + len);
            assert_eq!(counts, expected, "{what}");
            assert_eq!(entry.windows(), windows, "{what}");
            assert_eq!(action, if side == 0 { REDIRECT } else { DROP }, "{what}");
            let is_owed = windows.is_some_and(|windows| windows.are_unacknowledged());
            assert_eq!(entry.deadline(), entry.last() + terms.idle[usize::from(is_owed)], "{what}");
            taken += 1;
        }
        entry.close();
        connections.unname(&terms.key).expect("it is there");
    }
    assert!(taken > 4000 && refused > 1000 && (20..refused).contains(&cautious), "{taken}, {refused}, {cautious}");
    assert_eq!(program.counts().offloaded, taken);
}

fn datagram() -> (FiveTuple, Vec<u8>) {
    let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|address| Endpoint::new(address.parse().unwrap(), 40));
    (FiveTuple::between(one, other, 17).expect("one family"), Build::udp(one, other).payload(58).bytes())
}

#[test]
fn an_entry_waits_opens_and_closes() {
    let Some((connections, program)) = loaded(2) else { return };
    let (flow, bytes) = datagram();
    let (terms, entry) = (terms(&flow, None), connections.entry(1));
    let run = || test_run(program.file(), &bytes).expect("it runs");
    assert_eq!(run(), DROP, "nobody knows it, and there is no socket");
    entry.begin(&terms);
    connections.name(&terms.key, 1).expect("there is room");
    assert_eq!((run(), run()), (DROP, DROP));
    assert_eq!(entry.state(), State::Waiting { passed: 2 });
    assert!(!entry.open(1), "another one has passed");
    assert!(entry.open(2));
    assert_eq!((run(), entry.taken(0), entry.taken(1)), (REDIRECT, (1, 100), (0, 0)));
    assert!(entry.lock());
    assert_eq!((run(), entry.state()), (DROP, State::Closed), "a lock that is never released");
    entry.unlock(true);
    assert_eq!((run(), entry.taken(0)), (DROP, (1, 100)), "it stays closed");
    assert!(!entry.lock());
    entry.close();
    connections.unname(&terms.key).expect("it is there");
    assert_eq!(program.counts().offloaded, 1);
}

#[test]
fn an_entry_ends_at_its_deadline_and_at_its_last_byte() {
    let Some((connections, program)) = loaded(1) else { return };
    let (flow, bytes) = datagram();
    let run = || test_run(program.file(), &bytes).expect("it runs");
    put(&connections, 0, &Terms { deadline: crate::clock::monotonic(), ..terms(&flow, None) });
    assert_eq!((run(), connections.entry(0).state()), (DROP, State::Closed), "the deadline has passed");
    put(&connections, 0, &Terms { bytes_max: 250, ..terms(&flow, None) });
    assert_eq!((run(), run(), run()), (REDIRECT, REDIRECT, DROP));
    assert_eq!((connections.entry(0).taken(0), connections.entry(0).state()), ((2, 200), State::Closed));
}

#[test]
fn an_entry_that_is_another_connections_takes_nothing() {
    let Some((connections, program)) = loaded(1) else { return };
    let (flow, bytes) = datagram();
    let other = flow.reversed().symmetric().0;
    assert_eq!(other, flow);
    let [one, two] = ["10.0.0.7", "10.0.0.8"].map(|address| Endpoint::new(address.parse().unwrap(), 1));
    let stranger = FiveTuple::between(one, two, 17).expect("one family");
    put(&connections, 0, &terms(&stranger, None));
    // As if a program had looked up the number before the entry was given to another connection.
    connections.name(&tuple_of(&flow), 0).expect_err("there is no room for two names");
    connections.unname(&tuple_of(&stranger)).expect("it is there");
    connections.name(&tuple_of(&flow), 0).expect("there is room");
    assert_eq!(test_run(program.file(), &bytes).expect("it runs"), DROP);
    assert_eq!((connections.entry(0).taken(0), connections.entry(0).state()), ((0, 0), State::Open));
}

#[test]
fn programs_and_cores_that_lock_one_entry_lose_no_packet() {
    let Some((connections, program)) = loaded(1) else { return };
    let (flow, bytes) = datagram();
    put(&connections, 0, &terms(&flow, None));
    let entry = connections.entry(0);
    const ROUNDS: u64 = 3000;
    let mut locked = 0_u64;
    thread::scope(|scope| {
        let run = || (0..ROUNDS).filter(|_| test_run(program.file(), &bytes).expect("it runs") == REDIRECT).count();
        let threads = [scope.spawn(run), scope.spawn(run)];
        while entry.lock() && threads.iter().any(|thread| !thread.is_finished()) {
            let (last, deadline) = (entry.last(), entry.deadline());
            entry.touch(last, deadline, 0);
            entry.unlock(true);
            locked += 1;
        }
        entry.unlock(true);
        let taken: usize = threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).sum();
        assert_eq!(entry.taken(0), (taken as u64, 100 * taken as u64));
        // A program that could not lock the entry has closed it, and all after it have found it closed.
        assert!(taken as u64 == 2 * ROUNDS || entry.state() == State::Closed, "{taken} taken");
    });
    assert!(locked > 0);
}
