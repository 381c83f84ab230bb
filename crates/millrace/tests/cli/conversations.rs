//! Random conversations in the language of scenarios: mostly as hosts talk, with segments that no host should send in between.

use std::fmt::Write;

use testkit::Rng;

/// What conversations there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any. Both sides open connections.
    Any,
    /// Connections are opened from inside.
    FromInside,
    /// By IPv4, opened from inside, and all TCP as hosts talk.
    Proper,
}

/// Conversations of one flow each, with endpoints of their own. The kernel's verdicts that the language asks for say nothing.
pub(crate) fn conversations(seed: u64, count: u16, kind: Kind) -> String {
    let mut rng = Rng::new(seed);
    let mut text = String::new();
    for number in 0..count {
        let (near, port) = (["a", "b"][rng.below(2) as usize], 20_000 + number);
        writeln!(text, "## conversation {number} of seed {seed}").expect("a text");
        let (own, other) = if kind == Kind::Proper { (near, "x") } else { ("a6", "x6") };
        match rng.below(10) {
            0 => datagrams(&mut rng, &format!("{near}:{port} udp x:53"), &mut text),
            1 => datagrams(&mut rng, &format!("{own}:{port} udp {other}:53"), &mut text),
            2 => queries(&mut rng, &format!("{near}:{port} echo x:0"), &mut text),
            3 => segments(&mut rng, &format!("{own}:{port} tcp {other}:80"), kind, &mut text),
            _ => segments(&mut rng, &format!("{near}:{port} tcp x:80"), kind, &mut text),
        }
    }
    text
}

fn step(text: &mut String, is_outward: bool, what: &str) {
    writeln!(text, "{} {what} = pass", if is_outward { '>' } else { '<' }).expect("a text");
}

fn datagrams(rng: &mut Rng, flow: &str, text: &mut String) {
    writeln!(text, "{flow}").expect("a text");
    for _ in 0..3 + rng.below(5) {
        let is_outward = rng.chance(0.6);
        let what = if rng.chance(0.2) { error(rng, flow) } else { format!("{}", rng.below(1_200)) };
        step(text, is_outward, &what);
    }
}

/// Requests from inside alone, and replies from outside, asked for or not.
fn queries(rng: &mut Rng, flow: &str, text: &mut String) {
    writeln!(text, "{flow}").expect("a text");
    for number in 0..3 + rng.below(4) {
        let is_outward = rng.chance(0.6);
        step(text, is_outward, &format!("{} {number}", if is_outward { "request" } else { "reply" }));
    }
}

/// An error about the last packet of the other direction.
fn error(rng: &mut Rng, flow: &str) -> String {
    let kinds = if flow.contains("6:") { ["1/4", "2/0 mtu1300", "3/0"] } else { ["3/3", "3/4 mtu1300", "11/0"] };
    format!("error {}", kinds[rng.below(3) as usize])
}

/// A side of a TCP connection.
#[derive(Clone, Copy, Default)]
struct Talker {
    /// Its next sequence number, after the initial one.
    next: i64,
    has_opened: bool,
    has_ended: bool,
}

fn segments(rng: &mut Rng, flow: &str, kind: Kind, text: &mut String) {
    writeln!(text, "isn {} {}\n{flow}", rng.bits() as u32, rng.bits() as u32).expect("a text");
    let wildness = if kind == Kind::Proper { 0.0 } else { [0.0, 0.1, 0.4][rng.below(3) as usize] };
    let mut sides = [Talker::default(); 2];
    let mut said: Vec<(bool, String)> = Vec::new();
    for _ in 0..8 + rng.below(10) {
        let (is_outward, what) = match () {
            () if rng.chance(0.05) => (rng.chance(0.5), error(rng, flow)),
            () if rng.chance(0.07) && !said.is_empty() => said[rng.below(said.len() as u64) as usize].clone(),
            () if rng.chance(wildness) => wild(rng, &sides, kind == Kind::FromInside),
            () => proper(rng, &mut sides),
        };
        step(text, is_outward, &what);
        // What is said again may move windows, which not every function looks at.
        if kind != Kind::Proper && !what.starts_with("error") {
            said.push((is_outward, what));
        }
    }
}

/// What a host would say next.
fn proper(rng: &mut Rng, sides: &mut [Talker; 2]) -> (bool, String) {
    let [client, server] = *sides;
    if !client.has_opened {
        (sides[0].next, sides[0].has_opened) = (1, true);
        let scale = ["", " ws0", " ws7"][rng.below(3) as usize];
        return (true, format!("S 0{scale} sackok"));
    }
    if !server.has_opened {
        (sides[1].next, sides[1].has_opened) = (1, true);
        return (false, format!("SA 0/1{} sackok", ["", " ws2"][rng.below(2) as usize]));
    }
    let from = usize::from(rng.chance(0.5));
    let (own, other) = (sides[from], sides[1 - from].next);
    let what = match rng.below(10) {
        _ if own.has_ended => format!("A {}/{other}", own.next),
        0..5 => {
            let len = 1 + rng.below(1_000) as i64;
            sides[from].next += len;
            format!("PA {}+{len}/{other}", own.next)
        }
        5..9 => format!("A {}/{other}", own.next),
        _ => {
            (sides[from].next, sides[from].has_ended) = (own.next + 1, true);
            format!("FA {}/{other}", own.next)
        }
    };
    (from == 0, what)
}

/// What no host should say now, or at all.
fn wild(rng: &mut Rng, sides: &[Talker; 2], inside_opens: bool) -> (bool, String) {
    const FLAGS: [&str; 14] = ["S", "SA", "A", "A", "PA", "FA", "R", "RA", "R", ".", "SF", "SR", "FPU", "SAE"];
    const AWAY: [i64; 9] = [0, 0, -1, 1, 700, -700, 70_000, -100_000, 2_000_000_000];
    let from = usize::from(rng.chance(0.5));
    let flags = loop {
        let flags = FLAGS[rng.below(FLAGS.len() as u64) as usize];
        if !(inside_opens && from == 1 && flags == "S") {
            break flags;
        }
    };
    let mut near = |number: i64| number + AWAY[rng.below(AWAY.len() as u64) as usize];
    let (seq, ack) = (near(sides[from].next), near(sides[1 - from].next));
    let len = if flags.contains(['P', 'A']) && !flags.contains('S') { rng.below(3) * 100 } else { 0 };
    let window = [8_000, 0, 65_535][rng.below(3) as usize];
    (from == 0, format!("{flags} {seq}+{len}/{ack} w{window}"))
}
