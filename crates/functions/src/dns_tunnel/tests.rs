use core::net::{Ipv4Addr, Ipv6Addr};
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use memory::{Allocator, Distributed, Local, LocalTx, Map, Vector};
use nf::local_fingerprint;
use packet::{FiveTuple, Host, Nanos, Seq};
use stream::{End, Gap};

use super::messages::READ_MAX;
use super::state::{Peers, Totals};
use super::*;
use crate::streams::{Direction, Said, Session, SharedStreamFunction};
use crate::testing::{report_at, tell};

struct Bench {
    function: DnsTunnel,
    common: Common<Answers<Local>>,
    now: Nanos,
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

const fn server(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

impl Bench {
    fn new(text: &str) -> Self {
        let function = DnsTunnel::new(toml::from_str(text).expect("the test's own configuration"));
        Self { common: function.shared(&Local::default()), function, now: Nanos::from_secs(1_000) }
    }

    const fn state(&self) -> &Answers<Local> {
        self.common.shared()
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn see(&self, client: IpAddr, event: Event) -> Verdict {
        let mut cx = Context::new(&self.common, LocalTx::default(), self.now, Seq(0));
        let Ok(Opened::Refused(verdict)) = self.function.open(&mut cx, &Sight { client: client.into(), event }) else {
            panic!("only segments have flows")
        };
        verdict
    }

    fn tell(&self, client: IpAddr, servers: &[IpAddr]) -> Verdict {
        self.answer(client, 0, servers)
    }

    fn answer(&self, client: IpAddr, name: u32, servers: &[IpAddr]) -> Verdict {
        let mut peers = Peers::default();
        servers.iter().for_each(|server| peers.add(Detector::peer(*server), server.is_ipv4() != client.is_ipv4()));
        self.see(client, Event::Told { name, peers })
    }

    fn send(&self, client: IpAddr, server: IpAddr) -> Verdict {
        self.see(client, Event::Sends { peer: Detector::peer(server), is_query: false })
    }

    fn orphans(&self, host: IpAddr) -> Option<(u32, bool)> {
        let mut tx = LocalTx::default();
        let Ok(place) = self.state().by_name.get(&mut tx, &name(host.into()));
        let Ok(client) = self.state().clients.read(&mut tx, place? as usize);
        Some((client.orphans, client.is_tunnel))
    }

    fn waiting(&self) -> usize {
        let is_taken = |place: &usize| self.state().waiting.is_allocated(&mut LocalTx::default(), *place) == Ok(true);
        (0..self.state().waiting.capacity()).filter(is_taken).count()
    }
}

#[test]
fn an_answer_waits_until_any_of_its_addresses_is_used() {
    let v6 = |last: u8| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(last)));
    for (client, server) in [(CLIENT, server as fn(u8) -> IpAddr), (V6, v6)] {
        let others = server(9);
        let bench = Bench::new("");
        bench.tell(client, &[server(1), others]);
        bench.tell(client, &[server(2), server(3)]);
        assert_eq!((bench.orphans(client), bench.waiting()), (Some((2, false)), 2));
        bench.send(client, server(4));
        bench.send(server(8), server(1));
        assert_eq!(bench.orphans(client), Some((2, false)), "others, and to others, are no use of it");
        bench.send(client, others);
        assert_eq!((bench.orphans(client), bench.waiting()), (Some((1, false)), 1));
        bench.send(client, server(1));
        assert_eq!(bench.orphans(client), Some((1, false)), "an answer is used once");
    }
}

#[test]
fn who_asks_twice_has_one_answer_to_use() {
    let bench = Bench::new("threshold = 2");
    for _ in 0..5 {
        bench.tell(CLIENT, &[server(1), server(2)]);
        bench.tell(CLIENT, &[server(2), server(3)]);
    }
    assert_eq!((bench.orphans(CLIENT), bench.waiting()), (Some((1, false)), 1));
    bench.send(CLIENT, server(3));
    assert_eq!((bench.orphans(CLIENT), bench.waiting()), (Some((0, false)), 0));
}

/// The client asks over IPv4 for both families and uses IPv6, in any order of answers and uses.
#[test]
fn a_name_is_used_when_any_of_its_addresses_is_by_any_family() {
    let (v4, v6) = (server(1), "2001:db8:99::1".parse().unwrap());
    for (first, second, used) in [(v4, v6, v6), (v4, v6, v4), (v6, v4, v6), (v6, v4, v4)] {
        let by = |used: IpAddr| if used.is_ipv4() { CLIENT } else { V6 };
        let bench = Bench::new("threshold = 2");
        bench.answer(CLIENT, 7, &[first]);
        bench.answer(CLIENT, 7, &[second]);
        assert_eq!(bench.orphans(CLIENT), Some((1, false)), "they are one name");
        bench.send(by(used), used);
        assert_eq!(bench.orphans(CLIENT), Some((0, false)));
        let mut early = Bench::new("threshold = 2");
        early.answer(CLIENT, 7, &[used]);
        early.send(by(used), used);
        early.wait(9);
        early.answer(CLIENT, 7, &[if used == v4 { v6 } else { v4 }]);
        assert_eq!(early.orphans(CLIENT), Some((0, false)), "the answer that comes when the name is used");
        early.wait(1);
        early.answer(CLIENT, 7, &[v4]);
        assert_eq!(early.orphans(CLIENT), Some((1, false)), "and once more later");
        assert_eq!(early.waiting(), 1);
    }
}

#[test]
fn an_alias_without_address_belongs_to_its_name() {
    let bench = Bench::new("threshold = 2");
    bench.see(CLIENT, Event::Nowhere { name: 7 });
    bench.answer(CLIENT, 7, &[server(1)]);
    bench.send(CLIENT, server(1));
    bench.see(CLIENT, Event::Nowhere { name: 7 });
    assert_eq!(bench.orphans(CLIENT), Some((0, false)));
    bench.see(CLIENT, Event::Nowhere { name: 8 });
    assert_eq!(bench.see(CLIENT, Event::Nowhere { name: 9 }), Verdict::FORWARD);
    assert_eq!(bench.orphans(CLIENT), Some((2, true)), "names that lead nowhere at all");
}

/// For an address of another family, the using client is unknown.
#[test]
fn what_two_clients_are_told_across_families_accuses_neither() {
    let bench = Bench::new("");
    let shared = "2001:db8:99::1".parse().unwrap();
    bench.answer(CLIENT, 7, &[shared]);
    bench.answer(server(200), 7, &[shared]);
    assert_eq!((bench.orphans(CLIENT), bench.orphans(server(200))), (Some((0, false)), Some((1, false))));
    bench.send(V6, shared);
    assert_eq!(bench.orphans(server(200)), Some((0, false)));
}

#[test]
fn orphans_count_within_a_window() {
    let mut bench = Bench::new("threshold = 3\nwindow = 10\nidle_timeout = 100");
    bench.tell(CLIENT, &[server(1)]);
    bench.see(CLIENT, Event::Nowhere { name: 0 });
    bench.wait(10);
    bench.tell(CLIENT, &[server(2)]);
    assert_eq!((bench.orphans(CLIENT), bench.waiting()), (Some((1, false)), 2), "not yet taken back, and not counted");
    bench.send(CLIENT, server(1));
    assert_eq!(bench.orphans(CLIENT), Some((1, false)), "of the window before");
    bench.tell(CLIENT, &[server(3)]);
    bench.tell(CLIENT, &[server(4)]);
    assert_eq!((bench.orphans(CLIENT), bench.waiting()), (Some((3, true)), 3));
    bench.tell(CLIENT, &[server(5)]);
    assert_eq!(bench.waiting(), 3, "a tunnel's answers take no room");
}

#[test]
fn a_tunnel_is_blocked_as_configured_until_it_has_been_quiet() {
    for (block, sends, asks, is_told) in
        [("nothing", true, true, true), ("dns", true, false, false), ("all", false, false, false)]
    {
        let mut bench = Bench::new(&format!("threshold = 2\nwindow = 10\nidle_timeout = 30\nblock = {block:?}"));
        let passes = |verdict: Verdict| verdict == Verdict::FORWARD;
        assert!(passes(bench.tell(CLIENT, &[server(1)])));
        assert_eq!(passes(bench.see(CLIENT, Event::Nowhere { name: 0 })), is_told, "{block}: the one that shows it");
        let ask = Event::Sends { peer: Detector::peer(server(53)), is_query: true };
        assert_eq!((passes(bench.send(CLIENT, server(2))), passes(bench.see(CLIENT, ask))), (sends, asks), "{block}");
        assert_eq!(passes(bench.see(CLIENT, Event::Unreadable)), is_told, "{block}");
        assert!(passes(bench.see(server(3), ask)), "{block}: others");
        bench.wait(30);
        assert!(passes(bench.see(CLIENT, ask)), "{block}");
        bench.tell(CLIENT, &[server(1)]);
        assert_eq!(bench.orphans(CLIENT), Some((1, false)), "{block}: it begins anew");
    }
}

#[test]
fn a_tunnels_end_that_falls_silent_is_named_and_not_blocked() {
    let mut bench = Bench::new("threshold = 2\nwindow = 10\nidle_timeout = 30\nremember = 600\nblock = \"all\"");
    bench.tell(CLIENT, &[server(1)]);
    bench.tell(CLIENT, &[server(2)]);
    let rows = |bench: &Bench| report_at(&bench.function, &[], &bench.common, bench.now).unwrap().rows;
    assert_ne!(bench.send(CLIENT, server(9)), Verdict::FORWARD);
    bench.wait(500);
    assert_eq!(bench.send(CLIENT, server(9)), Verdict::FORWARD);
    assert_eq!(rows(&bench), [["10.0.0.1", "2", "2", "0", "yes"]]);
    bench.tell(CLIENT, &[server(3)]);
    assert_eq!((bench.orphans(CLIENT), rows(&bench)[0][4].to_string()), (Some((1, false)), "yes".into()));
    bench.wait(600);
    assert!(rows(&bench).is_empty());
}

#[test]
fn without_room_nobody_is_judged() {
    let bench = Bench::new("threshold = 2\nanswers = 1\nclients = 1");
    bench.tell(CLIENT, &[server(1)]);
    bench.tell(CLIENT, &[server(2)]);
    bench.tell(V6, &[server(3)]);
    assert_eq!((bench.orphans(CLIENT), bench.orphans(V6)), (Some((1, false)), None));
    let report = report_at(&bench.function, &[], &bench.common, bench.now).unwrap();
    assert!(
        report.title.contains("3 answers, 0 used; 0 messages unreadable, 2 answers without room"),
        "{}",
        report.title
    );
    bench.send(CLIENT, server(1));
    bench.tell(CLIENT, &[server(2)]);
    assert_eq!(bench.orphans(CLIENT), Some((1, false)));
}

#[test]
fn what_is_past_its_time_leaves_no_trace() {
    let mut bench = Bench::new("window = 10\nidle_timeout = 20\nanswers = 20\nclients = 20");
    for number in 1..=20 {
        bench.tell(server(100 + number), &[server(number)]);
    }
    bench.wait(21);
    for _ in 0..60 {
        bench.send(CLIENT, server(200));
    }
    assert_eq!(bench.waiting(), 0);
    assert!((1..=20).all(|number| bench.orphans(server(100 + number)).is_none()));
    let other = Bench::new("window = 10\nidle_timeout = 20\nanswers = 20\nclients = 20");
    let digests = [&bench.common, &other.common].map(|common| {
        common.shared().totals.update(&mut LocalTx::default(), |totals| *totals = Totals::default()).unwrap();
        local_fingerprint(&bench.function, common)
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn addresses_that_nobody_can_use_are_no_answer() {
    for text in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
        assert_eq!(Detector::peer(text.parse().unwrap()), 0, "{text}");
    }
    assert_ne!(Detector::peer("2001:db8::1".parse().unwrap()), Detector::peer("2001:db8::2".parse().unwrap()));
}

/// A response. `rest` is the question and the answers.
fn message(questions: u8, answers: u8, rest: &[u8]) -> Vec<u8> {
    [&[0, 1, 0x81, 0x80, 0, questions, 0, answers, 0, 0, 0, 0], rest].concat()
}

/// An A record of the name `.`.
fn a(last: u8) -> Vec<u8> {
    vec![0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last]
}

/// A message with its length, as it is over TCP.
fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// A connection of the client to port 53. Bytes are held as a function over streams has it.
struct Connection<'a> {
    bench: &'a Bench,
    lookups: Lookups,
    held: Vec<u8>,
}

impl<'a> Connection<'a> {
    fn new(bench: &'a Bench, midstream: bool) -> Self {
        let IpAddr::V4(client) = CLIENT else { unreachable!("it is an IPv4 address") };
        let tuple = FiveTuple::v4(client, Ipv4Addr::new(192, 0, 2, 53), 5000, DNS, packet::protocol::TCP);
        let session = Session { tuple, began: bench.now, midstream };
        Self { bench, lookups: SharedStreamFunction::open(bench.function.detector(), &session), held: Vec::new() }
    }

    fn says(&mut self, from: Direction, said: impl FnOnce(Direction) -> Said<'static>) {
        let Bench { function, now, .. } = self.bench;
        tell(function.detector(), self.bench.state(), *now, &mut self.lookups, said(from));
    }

    /// The server says these pieces.
    fn server(&mut self, pieces: &[&[u8]]) {
        let Bench { function, now, .. } = self.bench;
        for piece in pieces {
            let told = [self.held.as_slice(), piece].concat();
            let said = Said::Data(Direction::Reply, &told);
            let asked = tell(function.detector(), self.bench.state(), *now, &mut self.lookups, said);
            self.held = told[told.len() - asked.holds..].to_vec();
        }
    }

    fn gap(&mut self, len: usize) {
        self.held.clear();
        self.says(Direction::Reply, |from| Said::Gap(from, Gap { len: len as u32, end: End::Acknowledged }));
    }
}

impl Bench {
    /// Answers, used ones and unreadable messages.
    fn totals(&self) -> [u64; 3] {
        let Ok(totals) = self.state().totals.read(&mut LocalTx::default(), Nanos::NEVER);
        let Totals { answers, used, unreadable, .. } = totals;
        [answers, used, unreadable]
    }
}

/// Two answers and a message that answers nothing, cut at every byte.
#[test]
fn answers_over_tcp_are_read_however_they_are_cut() {
    let other = message(0, 0, &[]);
    let stream =
        [framed(&message(0, 2, &[a(1), a(2)].concat())), framed(&other), framed(&message(0, 1, &a(3)))].concat();
    for cut in 0..=stream.len() {
        let bench = Bench::new("");
        let (one, rest) = stream.split_at(cut);
        Connection::new(&bench, false).server(&[one, rest]);
        assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([2, 0, 0], Some((2, false))), "cut at {cut}");
        bench.send(CLIENT, server(2));
        assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([2, 1, 0], Some((1, false))), "cut at {cut}");
        let other = Bench::new("");
        Connection::new(&other, false).server(&stream.chunks(1).collect::<Vec<_>>());
        assert_eq!(other.orphans(CLIENT), Some((2, false)));
    }
}

#[test]
fn what_the_client_says_is_no_answer() {
    let bench = Bench::new("");
    let answer = framed(&message(0, 1, &a(1))).leak();
    Connection::new(&bench, false).says(Direction::Original, |from| Said::Data(from, answer));
    assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([0, 0, 0], None));
}

#[test]
fn of_a_long_message_the_beginning_counts() {
    let text =
        |len: usize| [&[0, 0, 16, 0, 1, 0, 0, 0, 60][..], &(len as u16).to_be_bytes(), &vec![b'x'; len]].concat();
    // An address ahead of a long text, and a long text alone.
    let with_address = message(0, 2, &[a(1), text(20_000)].concat());
    let alone = message(0, 2, &[text(20_000), a(2)].concat());
    assert!(alone.len() > READ_MAX);
    let stream = [framed(&with_address), framed(&alone), framed(&message(0, 1, &a(3)))].concat();
    for piece in [1, 1460, 9000, stream.len()] {
        let bench = Bench::new("");
        Connection::new(&bench, false).server(&stream.chunks(piece).collect::<Vec<_>>());
        assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([3, 0, 0], Some((3, false))), "in pieces of {piece}");
        for last in 1..=3 {
            bench.send(CLIENT, server(last));
        }
        assert_eq!(bench.totals(), [3, 2, 0], "the second address is not read");
    }
}

#[test]
fn what_is_lost_of_a_stream_is_unreadable() {
    let (one, other) = (framed(&message(0, 1, &a(1))), framed(&message(1, 1, &[&[0, 0, 1, 0, 1][..], &a(2)].concat())));
    for at in 2..one.len() {
        let bench = Bench::new("");
        let mut connection = Connection::new(&bench, false);
        connection.server(&[&one[..at]]);
        connection.gap(one.len() - at);
        connection.server(&[&other]);
        assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([1, 0, 1], Some((1, false))), "lost behind {at}");
    }
    let bench = Bench::new("");
    let mut connection = Connection::new(&bench, false);
    connection.gap(1000);
    connection.server(&[b"the rest of something\r\n", &other, &one]);
    assert_eq!((bench.totals(), bench.orphans(CLIENT)), ([2, 0, 1], Some((2, false))), "what may begin a message does");
    connection.server(&[&one[..9]]);
    connection.says(Direction::Reply, Said::End);
    assert_eq!(bench.totals(), [2, 0, 2], "it breaks off");

    let bench = Bench::new("");
    Connection::new(&bench, true).server(&[&one[5..], &other]);
    assert_eq!(bench.totals(), [1, 0, 0], "of a connection that was under way nothing is known to be lost");
    let bench = Bench::new("");
    let unreadable = framed(&message(0, 1, &a(1)[..9]));
    Connection::new(&bench, false).server(&[&unreadable, &other, &framed(b"short"), &one]);
    assert_eq!(bench.totals(), [2, 0, 2], "the next message begins behind it all the same");
}

/// Both directions of a connection have the key of its client, and are steered as all of the client's packets.
#[test]
fn packets_of_a_client_meet() {
    use packet::{Endpoint, FlowKey, protocol};
    let end = |text: &str| {
        let end: std::net::SocketAddr = text.parse().unwrap();
        Endpoint::new(end.ip(), end.port())
    };
    let tuple = |[from, to]: [&str; 2]| FiveTuple::between(end(from), end(to), protocol::TCP).unwrap();
    for (client, ends) in
        [("10.0.0.1", ["10.0.0.1:5000", "192.0.2.53:53"]), ("2001:db8::1", ["[2001:db8::1]:5000", "[2001:db8::53]:53"])]
    {
        let client = Host::from(client.parse::<IpAddr>().unwrap());
        let (there, back) = (tuple(ends), tuple(ends).reversed());
        let key = ByClient::connection(there).expect("one port is 53");
        assert_eq!(ByClient::connection(back), Some(key));
        assert_eq!((key.host(), key.rss_fields()), (client, ByClient::client(client).rss_fields()));
        assert_eq!(key.rss_fields(), client.rss_fields());
        assert_ne!(key, ByClient::client(client));
    }
    for neither in [["10.0.0.1:53", "192.0.2.53:53"], ["10.0.0.1:5000", "192.0.2.53:5353"]] {
        assert_eq!(ByClient::connection(tuple(neither)), None, "{neither:?}");
    }
}
