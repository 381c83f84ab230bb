//! Connections whose packets the XDP program takes: put in, taken, closed by what it doesn't take, and taken back, also under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_port_xdp::{Mode, Monitor, Options, XdpPort};
use packet::{Action, Decided, Endpoint, FiveTuple, LastSegment, Nanos, TcpFlags, TcpSide, TcpWindows};
use port::{Batch, Card, CardRefusal, Fate, Opened, Port, Receive, Received, Returned, Transmit, TransmitCounts};
use testkit::netns::Wire;
use testkit::row::{LONG, Row, eventually};
use testkit::{Build, Rng};

use crate::bench::both;

type Command = Box<dyn FnOnce(&mut dyn Card, Nanos) + Send>;

/// A thread that forwards what the card doesn't take, and does commands on the card.
struct Core {
    stop: Arc<AtomicBool>,
    commands: mpsc::Sender<Command>,
    monitor: Monitor,
    thread: Option<JoinHandle<(u64, TransmitCounts)>>,
}

impl Core {
    fn start(row: &Row, options: Options) -> Self {
        let (commands, todo) = mpsc::channel::<Command>();
        let (ready, is_ready) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (middle, stops) = (Arc::clone(&row.middle), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            middle.enter(move || {
                let mut port = XdpPort::new(options).expect("the options are right");
                let monitor = port.monitor();
                let Opened::Queues(mut queues) = port.open(1).expect("it opens") else { panic!("it has queues") };
                let mut queue = queues.remove(0);
                let mut card = queue.take_cards(1).expect("offload is wanted").remove(0);
                ready.send(monitor).expect("the test waits");
                let (mut batch, mut count, mut ended) = (Batch::default(), 0, Vec::new());
                // ORDERING: Relaxed. A late look does no harm.
                while !stops.load(Ordering::Relaxed) {
                    let received = queue.receive(&mut batch);
                    let now = queue.now().expect("it has a clock");
                    if !matches!(received, Ok(Received::Packets)) {
                        card.idle();
                        todo.try_iter().for_each(|command| command(&mut *card, now));
                        let _ = queue.wait(Duration::from_millis(1));
                        continue;
                    }
                    for index in 0..batch.len() {
                        let (packet, bytes) = batch.packet(index);
                        // Taken or not, it goes across: functions have their own tests.
                        let _ = card.offer(packet, bytes);
                        let to = packet.interface ^ 1;
                        batch.packets_mut()[index].fate = Fate::Transmit(to);
                        count += 1;
                    }
                    card.ended(now, &mut ended);
                    queue.transmit(&mut batch).expect("it counts losses");
                    todo.try_iter().for_each(|command| command(&mut *card, now));
                }
                let mut all = Vec::new();
                card.all(&mut all);
                for flow in &all {
                    card.remove(flow).expect("it is in the card");
                }
                queue.finish().expect("it counts losses");
                (count, queue.sent().expect("it counts"))
            })
        });
        let monitor = is_ready.recv_timeout(LONG).expect("the port opens");
        Self { stop, commands, monitor, thread: Some(thread) }
    }

    /// Does something on the card.
    fn on<T: Send + 'static>(&self, what: impl FnOnce(&mut dyn Card, Nanos) -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let command = move |card: &mut dyn Card, now: Nanos| tell.send(what(card, now)).expect("the test waits");
        self.commands.send(Box::new(command)).expect("the thread runs");
        told.recv_timeout(LONG).expect("the thread answers")
    }

    fn insert(&self, flow: FiveTuple, decided: Decided) -> Result<(), CardRefusal> {
        self.on(move |card, now| card.insert(flow, &decided, now + Nanos::from_secs(100), now))
    }

    fn remove(&self, flow: FiveTuple) -> Returned {
        self.on(move |card, _| card.remove(&flow)).expect("it is in the card")
    }

    /// Packets that the program has taken at both interfaces.
    fn offloaded(&self) -> u64 {
        self.monitor.counts().iter().map(|counts| counts.program.offloaded).sum()
    }

    /// Packets that came to the core, and counts of what went out.
    fn stop(mut self) -> (u64, TransmitCounts) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().expect("it doesn't panic")
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ends(number: u16) -> [Endpoint; 2] {
    [Endpoint::new([10, 0, 0, 1].into(), 1000 + number), Endpoint::new([10, 0, 0, 2].into(), 53)]
}

fn flow(number: u16, protocol: u8) -> FiveTuple {
    let [one, other] = ends(number);
    FiveTuple::between(one, other, protocol).expect("one family").symmetric().0
}

const UDP: Decided =
    Decided { actions: [Action::Across; 2], idle: [Nanos::from_secs(100); 2], bytes_max: u64::MAX, tcp: None };

fn datagram(connection: u16, from: usize, number: u32) -> Vec<u8> {
    let ends = ends(connection);
    Build::udp(ends[from], ends[1 - from]).data(&number.to_be_bytes()).bytes()
}

/// The next frame.
fn next(wire: &Wire) -> Vec<u8> {
    let end = Instant::now() + LONG;
    loop {
        if let Some(frame) = wire.take().expect("it is there") {
            return frame;
        }
        assert!(Wire::wait(&[wire], end).expect("it is there"), "nothing comes");
    }
}

/// Sends frames that come through, one after another, until the program has taken one.
fn until_open(core: &Core, wires: &[Wire; 2], mut frame: impl FnMut() -> Vec<u8>) -> u64 {
    let before = core.offloaded();
    let mut sent = 0;
    eventually("the entry opens", || {
        let frame = frame();
        wires[0].send(&frame).expect("the wire takes it");
        sent += 1;
        assert_eq!(next(&wires[1]), frame);
        core.offloaded() > before
    });
    sent
}

/// Both ends of the row receive what a driver's program redirects.
fn row(label: &str) -> Option<Row> {
    let row = Row::new(label, 1500)?;
    for (host, end) in [(&row.left, "h0"), (&row.right, "h1")] {
        host.feed("ethtool", &["-K", end, "gro", "on"], "").expect("veth has it");
    }
    Some(row)
}

#[test]
fn the_program_takes_the_packets_of_a_connection() {
    let Some(row) = row("offload") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        let core = Core::start(&row, Options { offload: 2, mode, ..both() });
        assert!(core.monitor.describe()[0].contains("up to 2 connections offloaded"), "{:?}", core.monitor.describe());
        let wires = row.wires();
        core.insert(flow(0, 17), UDP).expect("there is room");
        let mut number = 0;
        let first = until_open(&core, &wires, || {
            number += 1;
            datagram(0, 0, number)
        });
        for number in 0..500 {
            let from = number as usize % 2;
            wires[from].send(&datagram(0, from, number)).expect("the wire takes it");
            assert_eq!(next(&wires[1 - from]), datagram(0, from, number), "{mode:?}");
        }
        let offloaded = core.offloaded();
        assert!(offloaded > 500, "{mode:?}: all but the first");
        let Returned { taken, ahead, actions } = core.remove(flow(0, 17));
        assert_eq!(actions, UDP.actions);
        assert_eq!((taken.packets, taken.bytes), ([250 + first, 250], [(250 + first) * 46, 250 * 46]), "{mode:?}");
        assert_eq!(ahead[0].0 + ahead[1].0, offloaded, "{mode:?}");
        assert!(taken.deadline == taken.last + Nanos::from_secs(100), "{mode:?}: {taken:?}");
        // From now on they come to the core.
        wires[0].send(&datagram(0, 0, 7)).expect("the wire takes it");
        assert_eq!(next(&wires[1]), datagram(0, 0, 7));
        let (received, sent) = core.stop();
        assert_eq!(received + offloaded, first + 501, "{mode:?}");
        assert_eq!((sent.sent, sent.lost), (first + 501, 0), "{mode:?}");
    }
}

#[test]
fn a_full_table_takes_no_more() {
    let Some(row) = row("ofull") else { return };
    let core = Core::start(&row, Options { offload: 2, ..both() });
    core.insert(flow(0, 17), UDP).expect("there is room");
    core.insert(flow(1, 17), UDP).expect("there is room");
    assert_eq!(core.insert(flow(2, 17), UDP), Err(CardRefusal::Full));
    assert_eq!(core.on(|card, now| card.victim(now)), None, "both were just put in");
    let later = core.on(|card, now| card.victim(now + Nanos::from_secs(2)));
    assert!(later.is_some_and(|flow| core.on(move |card, _| card.contains(&flow))), "{later:?}");
    core.remove(flow(0, 17));
    core.insert(flow(2, 17), UDP).expect("there is room again");
    let ended = core.on(|card, now| {
        let mut ended = Vec::new();
        card.ended(now + Nanos::from_secs(99), &mut ended);
        assert_eq!(ended, [], "no deadline has passed");
        card.ended(now + Nanos::from_secs(101), &mut ended);
        ended.len()
    });
    assert_eq!(ended, 2);
}

/// Of a TCP connection in the middle of a transfer: the first endpoint sends.
fn windows() -> TcpWindows {
    let side =
        |end: u32| TcpSide { end, max_end: end + 60_000, max_win: 60_000, max_ack: 0, scale: 0, unacknowledged: false };
    TcpWindows { sides: [side(1_000), side(9_000)], last: LastSegment::default() }
}

fn segment(seq: u32) -> Build {
    let [one, other] = ends(0);
    Build::tcp(one, other).flags(TcpFlags::ACK).seq(seq).ack(9_000).window(60_000)
}

#[test]
fn what_the_program_does_not_take_closes_the_entry() {
    let Some(row) = row("oclose") else { return };
    let core = Core::start(&row, Options { offload: 1, ..both() });
    let wires = row.wires();
    let (fin, syn) = (TcpFlags::ACK.with(TcpFlags::FIN), TcpFlags::SYN);
    type Closing = (&'static str, fn(Build, [TcpFlags; 2]) -> Build);
    let closing: [Closing; 8] = [
        ("FIN", |build, [fin, _]| build.flags(fin)),
        ("SYN", |build, [_, syn]| build.flags(syn)),
        ("RST", |build, _| build.flags(TcpFlags::RST)),
        ("beyond the window", |build, _| build.seq(3_000_000)),
        ("an acknowledgement of nothing", |build, _| build.ack(2_000_000)),
        ("a closed window", |build, _| build.window(0)),
        ("a selective acknowledgement", |build, _| build.sack(&[(9_100, 9_200)])),
        ("a fragment", |build, _| build.payload(80).fragment(0, true)),
    ];
    for (what, change) in closing {
        core.insert(flow(0, 6), Decided { tcp: Some(windows()), ..UDP }).expect("there is room");
        let mut seq = 1_000;
        until_open(&core, &wires, || {
            seq += 1;
            segment(seq - 1).payload(1).bytes()
        });
        let (taken, to_core) = (core.offloaded(), |core: &Core| core.monitor.counts()[0].program.redirected);
        let before = to_core(&core);
        let odd = change(segment(seq), [fin, syn]).bytes();
        for frame in [odd, segment(seq).payload(1).bytes(), segment(seq + 1).payload(1).bytes()] {
            wires[0].send(&frame).expect("the wire takes it");
            assert_eq!(next(&wires[1]), frame, "{what}");
        }
        assert_eq!((core.offloaded(), to_core(&core)), (taken, before + 3), "{what}: later ones go to the core, too");
        let Returned { taken, .. } = core.remove(flow(0, 6));
        let end = taken.tcp.expect("it is TCP").sides[0].end;
        assert_eq!((taken.packets[0], end), (u64::from(seq - 1_000), seq), "{what}");
    }
}

/// Connections come and go while packets of theirs do not cease: each packet arrives once.
#[test]
fn nothing_is_lost_or_doubled_by_connections_that_come_and_go_under_load() {
    const PACKETS: u32 = 30_000;
    const CONNECTIONS: u16 = 8;
    let Some(row) = row("oload") else { return };
    let core = Core::start(&row, Options { offload: 4, ..both() });
    let wires = row.wires();
    let is_over = AtomicBool::new(false);
    let (mut numbers, mut ahead) = (vec![0_u8; PACKETS as usize], 0);
    thread::scope(|scope| {
        let (is_over, core) = (&is_over, &core);
        let moving = scope.spawn(move || {
            let (mut rng, mut ahead) = (Rng::new(3), 0);
            while !is_over.load(Ordering::Relaxed) {
                let flow = flow(rng.below(u64::from(CONNECTIONS)) as u16, 17);
                let returned = core.on(move |card, now| match card.remove(&flow) {
                    None => {
                        let _ = card.insert(flow, &UDP, now + Nanos::from_secs(100), now);
                        None
                    }
                    returned => returned,
                });
                ahead += returned.map_or(0, |returned| returned.ahead[0].0);
                thread::sleep(Duration::from_millis(rng.below(20)));
            }
            ahead
        });
        for number in 0..PACKETS {
            wires[0].send(&datagram(number as u16 % CONNECTIONS, 0, number)).expect("the wire takes it");
            // Never more on their way than rings hold.
            if number.is_multiple_of(64) {
                thread::sleep(Duration::from_micros(100));
            }
            while let Some(frame) = wires[1].take().expect("it is there") {
                numbers[u32::from_be_bytes(*frame[42..].first_chunk().expect("it has a number")) as usize] += 1;
            }
        }
        let mut quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) && numbers.contains(&0) {
            while let Some(frame) = wires[1].take().expect("it is there") {
                numbers[u32::from_be_bytes(*frame[42..].first_chunk().expect("it has a number")) as usize] += 1;
                quiet = Instant::now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        ahead = moving.join().expect("it doesn't panic");
    });
    let (offloaded, lost) = (core.offloaded(), core.monitor.counts()[0].ring_full);
    let (received, sent) = core.stop();
    assert_eq!(received + offloaded + lost, u64::from(PACKETS));
    assert_eq!((sent.sent, sent.lost), (received + offloaded, 0));
    assert!(ahead <= offloaded && offloaded > 1000, "{ahead} of {offloaded} were told");
    let missing = numbers.iter().filter(|times| **times == 0).count() as u64;
    assert!(numbers.iter().all(|times| *times <= 1), "one came twice");
    assert_eq!(missing, lost, "what is missing is counted");
}

#[test]
fn an_interface_that_is_down_ends_offload() {
    let Some(row) = row("odown") else { return };
    let core = Core::start(&row, Options { offload: 2, ..both() });
    core.insert(flow(0, 17), UDP).expect("there is room");
    row.middle.ip(&["link", "set", "a1", "down"]).expect("it is there");
    let all = |core: &Core| {
        core.on(|card, now| {
            let mut ended = Vec::new();
            card.ended(now, &mut ended);
            ended.len()
        })
    };
    eventually("all come back", || all(&core) == 1);
    assert_eq!(core.insert(flow(1, 17), UDP), Err(CardRefusal::Down));
    core.remove(flow(0, 17));
    row.middle.ip(&["link", "set", "a1", "up"]).expect("it is there");
    eventually("it goes on", || core.insert(flow(1, 17), UDP).is_ok());
}
