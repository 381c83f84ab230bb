use core::net::{Ipv4Addr, Ipv6Addr};

use memory::{Local, LocalTx, Map};
use nf::local_fingerprint;
use packet::Seq;

use super::*;
use crate::testing::report_at;

struct Bench {
    function: DnsTunnel,
    state: Answers<Local>,
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
        Self { state: function.shared(&Local::default()), function, now: Nanos::from_secs(1_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn see(&self, client: IpAddr, event: Event) -> Verdict {
        let mut cx = Context::new(&self.state, LocalTx::default(), self.now, Seq(0));
        let Ok(verdict) = self.function.packet(&mut cx, &mut (), &Sight { client: client.into(), event });
        verdict
    }

    fn tell(&self, client: IpAddr, servers: &[IpAddr]) -> Verdict {
        self.answer(client, 0, servers)
    }

    fn answer(&self, client: IpAddr, name: u32, servers: &[IpAddr]) -> Verdict {
        let mut peers = Peers::default();
        servers.iter().for_each(|server| peers.add(DnsTunnel::peer(*server), server.is_ipv4() != client.is_ipv4()));
        self.see(client, Event::Told { name, peers })
    }

    fn send(&self, client: IpAddr, server: IpAddr) -> Verdict {
        self.see(client, Event::Sends { peer: DnsTunnel::peer(server), is_query: false })
    }

    fn orphans(&self, host: IpAddr) -> Option<(u32, bool)> {
        let mut tx = LocalTx::default();
        let Ok(place) = self.state.by_name.get(&mut tx, &name(host.into()));
        let Ok(client) = self.state.clients.read(&mut tx, place? as usize);
        Some((client.orphans, client.is_tunnel))
    }

    fn waiting(&self) -> usize {
        let is_taken = |place: &usize| self.state.waiting.is_allocated(&mut LocalTx::default(), *place) == Ok(true);
        (0..self.state.waiting.capacity()).filter(is_taken).count()
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
        let ask = Event::Sends { peer: DnsTunnel::peer(server(53)), is_query: true };
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
    let rows = |bench: &Bench| report_at(&bench.function, &[], &bench.state, bench.now).unwrap().rows;
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
    let report = report_at(&bench.function, &[], &bench.state, bench.now).unwrap();
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
    let digests = [&bench.state, &other.state].map(|state| {
        state.totals.update(&mut LocalTx::default(), |totals| *totals = Totals::default()).unwrap();
        local_fingerprint(&bench.function, state)
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn addresses_that_nobody_can_use_are_no_answer() {
    for text in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
        assert_eq!(DnsTunnel::peer(text.parse().unwrap()), 0, "{text}");
    }
    assert_ne!(DnsTunnel::peer("2001:db8::1".parse().unwrap()), DnsTunnel::peer("2001:db8::2".parse().unwrap()));
}
