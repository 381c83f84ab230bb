use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packet::Checksum;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::store::StoreServer;

const LINK: LinkType = LinkType::Ethernet;

fn options(slots: u32, rounds: u8, shorten: bool) -> Options {
    Options { keep: KEEP_MIN, slots, rounds, shorten, secret: Secret(9) }
}

fn local(slots: u32, rounds: u8, shorten: bool) -> Park {
    Park::new(options(slots, rounds, shorten), Store::local(slots))
}

/// A UDP datagram with so many bytes of payload, all of them this one, with a right header checksum.
fn datagram(payload: usize, byte: u8, v6: bool) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let udp_len = (8 + payload) as u16;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(udp_len.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([5; 32]);
    } else {
        let mut header = [0x45, 0, 0, 0, 0, byte, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
        let mut sum = Checksum::default();
        sum.add(&header);
        header[10..12].copy_from_slice(&sum.value().to_be_bytes());
        frame.extend([8, 0]);
        frame.extend(header);
    }
    frame.extend([0, 9, 0, 7]);
    frame.extend(udp_len.to_be_bytes());
    frame.extend([1, 2]);
    frame.resize(frame.len() + payload, byte);
    frame
}

/// Splits a frame; returns the bytes that go to the function.
fn to_function(park: &mut Park, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    match park.split(LINK, frame.len() as u32, &mut frame) {
        Split::Whole => frame,
        Split::Head { len, tag } => [&frame[..len], &tag].concat(),
    }
}

/// Joins a frame; returns the bytes that go out, or `None`.
fn back(park: &mut Park, frame: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    park.ask(frame);
    match park.join(LINK, frame, &mut whole) {
        Joined::Plain => Some(frame.to_vec()),
        Joined::Whole => Some(whole),
        Joined::Gone => None,
    }
}

#[test]
fn shortened_lengths_are_those_of_a_whole_packet() {
    for v6 in [false, true] {
        let mut park = local(4, 1, true);
        let frame = datagram(500, 7, v6);
        let head = to_function(&mut park, &frame);
        assert_eq!(head.len(), KEEP_MIN + TAG_BYTES);
        let headers = parse(LINK, &head, head.len() as u32, 0).expect("well-formed");
        assert_eq!(usize::from(headers.payload_offset) + headers.payload_len as usize, head.len());
        if !v6 {
            let mut sum = Checksum::default();
            sum.add(&head[14..34]);
            assert_eq!(sum.value(), 0, "the header's checksum is right");
        }
        assert_eq!(back(&mut park, &head), Some(frame));
    }
}

#[test]
fn a_function_that_adds_headers_gets_their_lengths_right() {
    let mut park = local(4, 1, true);
    let frame = datagram(500, 7, false);
    let head = to_function(&mut park, &frame);
    let wrap = |inner: &[u8]| {
        // IPv4 in IPv4.
        let mut outer = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 4, 0, 0, 9, 0, 0, 1, 9, 0, 0, 2];
        outer[2..4].copy_from_slice(&(20 + inner.len() as u16).to_be_bytes());
        let mut sum = Checksum::default();
        sum.add(&outer);
        outer[10..12].copy_from_slice(&sum.value().to_be_bytes());
        [&frame[..14], &outer, inner].concat()
    };
    assert_eq!(back(&mut park, &wrap(&head[14..])), Some(wrap(&frame[14..])));
    // A whole packet that no length field has room for any more.
    let (mut long, mut park) = (datagram(1_000, 1, false), local(4, 1, true));
    let head = to_function(&mut park, &long);
    let mut grown = head.clone();
    grown[16..18].copy_from_slice(&65_000_u16.to_be_bytes());
    assert_eq!(back(&mut park, &grown), None);
    assert_eq!((park.counts().unfit, park.counts().balance()), (1, true));
    long.truncate(70);
    assert_eq!(to_function(&mut park, &long), long, "hardly longer than what is kept");
    assert_eq!(park.counts().too_short, 1);
}

#[test]
fn what_looks_like_a_tag_is_not_believed() {
    let mut park = local(4, 1, false);
    let mut other = local(4, 1, false);
    other.options.secret = Secret(10);
    let forged = to_function(&mut other, &datagram(300, 3, false));
    // From the wire: it goes with a tag of its own, and comes back as it was.
    let head = to_function(&mut park, &forged);
    assert_eq!(head.len(), forged.len() + TAG_BYTES);
    assert_eq!(back(&mut park, &head), Some(forged.clone()));
    // The same at the end of a short packet: the function sees the packet's length.
    let mut short = datagram(40, 3, false);
    let len = short.len();
    short[len - TAG_BYTES..].copy_from_slice(&forged[forged.len() - TAG_BYTES..]);
    let before = park.counts();
    let head = to_function(&mut park, &short);
    assert!(head.len() == len && head[..len - TAG_BYTES] == short[..len - TAG_BYTES] && head != short);
    assert_eq!(back(&mut park, &head), Some(short));
    let after = park.counts();
    assert_eq!((after.splits - before.splits, after.too_short), (1, before.too_short), "counted once");
    // From the function: it is dropped.
    assert_eq!(back(&mut park, &forged), None);
    assert_eq!(park.counts().damaged, 1);
    // With all slots in use, too.
    let mut full = local(1, 3, false);
    to_function(&mut full, &datagram(300, 3, false));
    let head = to_function(&mut full, &forged);
    assert_eq!(back(&mut full, &head), Some(forged));
    assert_eq!((full.counts().evicted, full.counts().balance()), (1, true));
}

#[test]
fn generations_wrap() {
    let mut park = local(1, 1, false);
    park.set_generation(u16::MAX - 2);
    let heads: Vec<_> = (0..6).map(|byte| (byte, to_function(&mut park, &datagram(200, byte, false)))).collect();
    let (last, earlier) = heads.split_last().expect("six");
    for (_, head) in earlier {
        assert_eq!(back(&mut park, head), None);
    }
    assert_eq!(back(&mut park, &last.1), Some(datagram(200, last.0, false)));
    assert_eq!((park.counts().late, park.counts().evicted, park.counts().joins), (5, 5, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Packet {
        payload: usize,
        v6: bool,
    },
    /// The header of this packet comes back, if there is one.
    Back(usize),
    Release(usize),
    Keep(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = || (0..2_200_usize, any::<bool>()).prop_map(|(payload, v6)| Step::Packet { payload, v6 });
    let step = prop_oneof![
        packet(),
        packet(),
        (0..12_usize).prop_map(Step::Back),
        (0..12_usize).prop_map(Step::Back),
        (0..12_usize).prop_map(Step::Release),
        (0..12_usize).prop_map(Step::Keep),
    ];
    vec(step, 0..120)
}

/// Runs the steps; each header that comes back is joined with its own payload or not at all.
fn against_model(park: &mut Park, slots: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    // Headers that are out, the last one first: frame, head, and the number of its split if it was one.
    let mut out: Vec<(Vec<u8>, Vec<u8>, Option<u64>)> = Vec::new();
    let mut parked: HashMap<u64, ()> = HashMap::new();
    let mut splits = 0;
    for (number, step) in steps.into_iter().enumerate() {
        let at = match step {
            Step::Packet { .. } => 0,
            Step::Back(at) | Step::Release(at) | Step::Keep(at) => at,
        };
        match (step, out.get(at).cloned()) {
            (Step::Packet { payload, v6 }, _) => {
                let frame = datagram(payload, number as u8, v6);
                let head = to_function(park, &frame);
                let is_split = is_tagged(&head);
                prop_assert!(is_split || head == frame);
                if is_split {
                    splits += 1;
                    parked.insert(splits, ());
                    if let Some(oldest) = splits.checked_sub(slots as u64) {
                        parked.remove(&oldest);
                    }
                }
                out.insert(0, (frame, head, is_split.then_some(splits)));
            }
            (Step::Back(_), Some((frame, head, split))) => {
                let is_there = split.is_none_or(|split| parked.remove(&split).is_some());
                prop_assert_eq!(back(park, &head), is_there.then_some(frame));
            }
            (Step::Keep(_), Some((frame, mut head, split))) => {
                crate::tag::set_wish(&mut head, Wish::Keep);
                let is_there = split.is_none_or(|split| parked.contains_key(&split));
                prop_assert_eq!(back(park, &head), is_there.then_some(frame));
            }
            (Step::Release(_), Some((_, head, split))) => {
                park.release(&head);
                split.and_then(|split| parked.remove(&split));
            }
            (_, None) => {}
        }
        let counts = park.counts();
        prop_assert!(counts.balance(), "{:?}", counts);
        prop_assert_eq!(counts.parked as usize, parked.len());
        prop_assert!(parked.len() <= slots);
    }
    Ok(())
}

proptest! {
    /// In any order, lost, twice, late; the ring comes round many times.
    #[test]
    fn a_header_gets_its_own_payload_or_none(steps in steps(), slots in 1_u32..9, shorten: bool, generation: u16) {
        let mut park = local(slots, 1, shorten);
        park.set_generation(generation);
        against_model(&mut park, slots as usize, steps)?;
    }

    /// A frame of any bytes comes back as it was, split or not.
    #[test]
    fn any_frame_comes_back(frames in vec(vec(any::<u8>(), 0..400), 0..20), shorten: bool, link in 0_u16..300) {
        let mut park = local(4, 1, shorten);
        let link = LinkType::from_number(link);
        for mut frame in frames {
            let original = frame.clone();
            let head = match park.split(link, frame.len() as u32, &mut frame) {
                Split::Whole => frame,
                Split::Head { len, tag } => [&frame[..len], &tag].concat(),
            };
            let mut whole = Vec::new();
            match park.join(link, &head, &mut whole) {
                Joined::Plain => prop_assert_eq!(&head, &original),
                Joined::Whole => prop_assert_eq!(&whole, &original),
                Joined::Gone => prop_assert!(false, "nothing came between"),
            }
            // What comes from the function may be anything.
            park.join(link, &original, &mut Vec::new());
        }
    }
}

/// A payload server on a thread.
struct Running {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(port: u16) -> Self {
        let begin = Instant::now();
        let mut server = loop {
            match StoreServer::bind((Ipv4Addr::LOCALHOST, port).into(), 1 << 20) {
                Ok(server) => break server,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(5), "{error}"),
            }
        };
        let address = server.address().expect("bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            server.serve(|| end.load(Ordering::Relaxed)).expect("loopback works");
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn remote(servers: &[&Running], slots: u32) -> Park {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let store = Store::remote(&addresses, slots, 77, Duration::from_millis(200)).expect("they answer");
    Park::new(options(slots, 1, false), store)
}

#[test]
fn two_servers_hold_what_one_memory_holds() {
    let servers = [Running::start(0), Running::start(0)];
    let mut park = remote(&[&servers[0], &servers[1]], 7);
    for round in 0..30_u8 {
        let frames: Vec<_> = (0..5).map(|byte| datagram(300 + usize::from(byte), byte + round, false)).collect();
        let heads: Vec<_> = frames.iter().map(|frame| to_function(&mut park, frame)).collect();
        heads.iter().for_each(|head| park.ask(head));
        for (frame, head) in frames.iter().zip(&heads).rev() {
            assert_eq!(back(&mut park, head).as_ref(), Some(frame));
            assert_eq!(back(&mut park, head), None, "once");
        }
    }
    assert_eq!((park.counts().joins, park.counts().lost, park.counts().missed), (150, 0, 150));
    assert!(park.counts().balance());
}

#[test]
fn a_store_that_stops_and_starts_costs_what_it_held() {
    let (first, second) = (Running::start(0), Running::start(0));
    let port = second.address.port();
    let mut park = remote(&[&first, &second], 8);
    let frame = datagram(300, 1, false);
    let heads: Vec<_> = (0..4).map(|_| to_function(&mut park, &frame)).collect();
    drop(second);
    let came: Vec<bool> = heads.iter().map(|head| back(&mut park, head).is_some()).collect();
    assert_eq!(came, [true, false, true, false], "every second lay on the server that is gone");
    assert_eq!(park.counts().lost, 2);
    // The other takes all, and what it has no room for goes whole.
    for _ in 0..20 {
        let head = to_function(&mut park, &frame);
        assert!(is_tagged(&head));
        assert_eq!(back(&mut park, &head).as_ref(), Some(&frame));
    }
    assert_eq!(park.silent().len(), 1);
    let second = Running::start(port);
    let begin = Instant::now();
    while !park.silent().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "it is greeted again");
        park.tend();
    }
    for _ in 0..20 {
        let head = to_function(&mut park, &frame);
        assert_eq!(back(&mut park, &head).as_ref(), Some(&frame));
    }
    assert_eq!((park.counts().lost, park.counts().balance()), (2, true));
    drop((first, second));
    let head = to_function(&mut park, &frame);
    // Its payload may be lost with the servers, or it went whole.
    back(&mut park, &head);
    for _ in 0..4 {
        let head = to_function(&mut park, &frame);
        back(&mut park, &head);
    }
    let head = to_function(&mut park, &frame);
    assert_eq!(back(&mut park, &head), Some(frame), "without stores packets go whole");
    assert!(park.counts().occupied > 0 && park.counts().balance());
}

/// Each split that ends frees its memory: a server with room for 512 takes many, one after another.
#[test]
fn a_split_that_ends_leaves_its_memory_to_others() {
    let server = Running::start(0);
    let frame = datagram(300, 1, false);
    for session in 0..8 {
        let store = Store::remote(&[server.address], 400, session, Duration::from_millis(200)).expect("there is room");
        let mut park = Park::new(options(400, 1, false), store);
        let head = to_function(&mut park, &frame);
        assert_eq!(back(&mut park, &head).as_ref(), Some(&frame));
    }
}

#[test]
fn stores_that_refuse_or_are_not_there_are_named() {
    let server = Running::start(0);
    let error = Store::remote(&[server.address], 1_000_000, 5, Duration::from_millis(50)).expect_err("too many");
    assert!(error.to_string().contains("has room for 512 payloads, and 1000000 are wanted"), "{error}");
    let address = server.address;
    drop(server);
    let error = Store::remote(&[address], 8, 5, Duration::from_millis(50)).expect_err("nobody there");
    assert!(error.to_string().contains("no store answers at 127.0.0.1:"), "{error}");
}
