use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use memory::{Local, LocalTx};
use nf::{Effects, Meta};
use packet::{Nanos, Seq, TcpFlags};

use super::*;
use crate::testing::{report_at, report_of};
use crate::tracking::driver::{segment, tcp, udp};
use crate::tracking::tcp::State;

const SERVICE: &str =
    "[[services]]\naddress = \"192.0.2.1:80\"\nbackends = [\"10.0.0.1:80\", \"10.0.0.2:80\", \"10.0.0.3:8080\"]\n";

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const SYN_ACK: TcpFlags = SYN.with(ACK);
const FIN_ACK: TcpFlags = TcpFlags::FIN.with(ACK);
const RST_ACK: TcpFlags = RST.with(ACK);

/// A table without bounds, as the contract says.
struct Bench {
    balancer: LoadBalancer,
    shared: Backends<Local>,
    now: Nanos,
    flows: BTreeMap<FiveTuple, (Connection, Nanos)>,
    /// Effects of the last step.
    effects: Effects,
}

fn service() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(192, 0, 2, 1).into(), 80)
}

fn client(number: u16) -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 51, 100, 7).into(), 1_024 + number)
}

/// Source and destination of a packet after the rewrite.
type Ends = (Endpoint, Endpoint);

impl Bench {
    fn new(text: &str) -> Self {
        Self::of(&alloc::format!("{text}\n{SERVICE}"))
    }

    fn of(text: &str) -> Self {
        let balancer = LoadBalancer::new(toml::from_str(text).expect("the test's own configuration"));
        let (shared, now) = (balancer.shared(&Local::default()), Nanos::from_secs(1_000));
        Self { balancer, shared, now, flows: BTreeMap::new(), effects: Effects::default() }
    }

    /// Lets another configuration take over.
    fn reload(&mut self, text: &str) {
        let new = LoadBalancer::new(toml::from_str(text).expect("the test's own configuration"));
        let new = new.succeed(&self.balancer).expect("it can take over");
        new.adopt(&self.balancer, &mut self.shared, &Local::default());
        self.balancer = new;
    }

    fn cx(&self) -> Context<'_, LoadBalancer, Local> {
        Context::new(&self.shared, LocalTx::default(), self.now, Seq(0))
    }

    fn backend(&self, number: u16) -> Endpoint {
        self.balancer.backends[usize::from(number)].endpoint
    }

    fn end_those_due(&mut self) {
        let due = |(key, (_, deadline)): (&FiveTuple, &(Connection, Nanos))| (*deadline <= self.now).then_some(*key);
        let due: Vec<FiveTuple> = self.flows.iter().filter_map(due).collect();
        for key in due {
            let (flow, _) = self.flows.remove(&key).expect("it is there");
            let Ok(()) = self.balancer.expire(&mut self.cx(), &flow);
        }
    }

    fn step(&mut self, meta: &Passing) -> Verdict {
        self.end_those_due();
        let known = self.flows.remove(&meta.key());
        let mut cx = self.cx();
        let (mut flow, deadline) = match known {
            Some(known) => known,
            None => match self.balancer.open(&mut cx, meta) {
                Ok(Opened::Flow(flow)) => (flow, Nanos(0)),
                Ok(Opened::Refused(verdict)) => return verdict,
                Err(never) => match never {},
            },
        };
        let Ok(verdict) = self.balancer.packet(&mut cx, &mut flow, meta);
        let effects = cx.effects();
        let deadline = effects.deadline.unwrap_or(deadline);
        assert!(deadline > Nanos(0), "it would stay for ever");
        if effects.close {
            let Ok(()) = self.balancer.expire(&mut self.cx(), &flow);
        } else {
            self.flows.insert(meta.key(), (flow, deadline));
        }
        self.effects = effects;
        verdict
    }

    fn headers(&mut self, headers: &Headers) -> Ends {
        let verdict = match self.balancer.meta(headers, &[]) {
            Some(meta) => self.step(&meta),
            None => self.balancer.other(headers),
        };
        let tuple = headers.five_tuple().expect("it is IP");
        match verdict {
            Verdict::Forward(_) => (tuple.source(), tuple.destination()),
            Verdict::Rewrite { rewrite, .. } => {
                (rewrite.src.unwrap_or(tuple.source()), rewrite.dst.unwrap_or(tuple.destination()))
            }
            other => panic!("{other:?}: it drops nothing"),
        }
    }

    fn send(&mut self, from: Endpoint, to: Endpoint, flags: TcpFlags, seq: u32, ack: u32) -> Ends {
        let segment = segment(flags, seq, ack, 1_000);
        self.headers(&tcp((from.address, from.port), (to.address, to.port), segment, 0))
    }

    /// Sends a client's packet to the service. Returns the backend that it goes to.
    fn ask(&mut self, number: u16, flags: TcpFlags, seq: u32, ack: u32) -> u16 {
        let (from, to) = self.send(client(number), service(), flags, seq, ack);
        assert_eq!(from, client(number));
        let place = self.balancer.backends.iter().position(|backend| backend.endpoint == to);
        place.expect("it goes to a backend") as u16
    }

    /// Sends a backend's packet. Returns true if it gets the service's address.
    fn answer(&mut self, backend: u16, number: u16, flags: TcpFlags, seq: u32, ack: u32) -> bool {
        let (from, to) = self.send(self.backend(backend), client(number), flags, seq, ack);
        assert_eq!(to, client(number));
        assert!(from == service() || from == self.backend(backend), "{from}");
        from == service()
    }

    /// Sends a packet to a backend's own address, which is not rewritten.
    fn direct(&mut self, backend: u16, number: u16, flags: TcpFlags, seq: u32, ack: u32) {
        let ends = (client(number), self.backend(backend));
        assert_eq!(self.send(ends.0, ends.1, flags, seq, ack), ends);
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Nanos::from_secs(seconds);
        self.end_those_due();
    }

    /// Opens a connection through the service: the client has sent up to 101 and the backend up to 501. Returns the backend.
    fn open(&mut self, number: u16) -> u16 {
        let backend = self.ask(number, SYN, 100, 0);
        assert!(self.answer(backend, number, SYN_ACK, 500, 101));
        assert_eq!(self.ask(number, ACK, 101, 501), backend);
        backend
    }

    /// Opens a connection that is not answered. Returns the backend.
    fn fail(&mut self, number: u16) -> u16 {
        let backend = self.ask(number, SYN, 100, 0);
        self.wait(3);
        backend
    }

    /// Returns the first clients that get this backend while all are up.
    fn clients_of(&self, backend: u16) -> Vec<u16> {
        let tuple = |number| FiveTuple::between(client(number), service(), 6).expect("both are IPv4");
        let first = |number: &u16| {
            let chosen = self.balancer.services[0].table.look_up(hash(&tuple(*number), 0));
            chosen == usize::from(backend)
        };
        (0..300).filter(first).take(20).collect()
    }

    fn flow(&self, number: u16) -> Option<&Connection> {
        self.flows.get(&FiveTuple::between(client(number), service(), 6).expect("both are IPv4")).map(|known| &known.0)
    }

    fn state(&self, number: u16) -> Option<State> {
        self.flow(number).and_then(Connection::state)
    }

    /// Seconds until the deadline.
    fn secs_left(&self, number: u16) -> u64 {
        let key = FiveTuple::between(client(number), service(), 6).expect("both are IPv4");
        self.flows[&key].1.since(self.now).0 / 1_000_000_000
    }
}

#[test]
fn a_connection_goes_through_its_states() {
    let mut bench = Bench::new("");
    let backend = bench.ask(1, SYN, 100, 0);
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::SynSent), 3));
    bench.wait(1);
    bench.ask(1, SYN, 100, 0);
    assert_eq!(bench.secs_left(1), 2, "a repetition doesn't put the deadline off");
    assert!(bench.answer(backend, 1, SYN_ACK, 500, 101));
    assert_eq!((bench.state(1), bench.secs_left(1), bench.effects.assured), (Some(State::SynRecv), 60, false));
    bench.ask(1, ACK, 101, 501);
    assert_eq!((bench.state(1), bench.secs_left(1), bench.effects.assured), (Some(State::Established), 900, true));
    assert!(bench.answer(backend, 1, FIN_ACK, 501, 101));
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::FinWait), 60));
    bench.ask(1, FIN_ACK, 101, 502);
    assert!(bench.answer(backend, 1, ACK, 502, 102));
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::TimeWait), 60));
    bench.ask(1, SYN, 9_000, 0);
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::SynSent), 3), "a new one");
    assert!(bench.answer(backend, 1, RST_ACK, 0, 9_001));
    assert!(bench.flow(1).is_none());
}

#[test]
fn a_connection_stays_with_its_backend_whatever_becomes_of_that() {
    let mut bench = Bench::new("down_after = 1");
    let clients = bench.clients_of(1);
    assert_eq!(bench.open(clients[0]), 1);
    assert_eq!(bench.fail(clients[1]), 1);
    assert_ne!(bench.ask(clients[2], SYN, 1, 0), 1, "new ones go elsewhere");
    assert_eq!(bench.ask(clients[0], ACK, 101, 501), 1);
    assert_eq!(bench.ask(clients[0], SYN, 100, 0), 1, "a SYN that comes a second time is none of the client's");
    let anew = bench.ask(clients[0], SYN, 70_000, 0);
    assert_ne!(anew, 1, "who begins anew has given it up");
    bench.wait(3);
    assert!(bench.flow(clients[0]).is_none(), "an attempt as any other");
    assert_ne!(bench.ask(bench.clients_of(anew)[0], SYN, 1, 0), anew);
}

#[test]
fn a_backend_that_does_not_answer_is_left_alone_and_tried_again() {
    let mut bench = Bench::new("");
    let clients = bench.clients_of(2);
    for client in &clients[..3] {
        assert_eq!(bench.fail(*client), 2);
    }
    let others: Vec<u16> = clients.iter().map(|client| bench.ask(*client, SYN, 1, 0)).collect();
    assert!(!others.contains(&2) && others.contains(&0) && others.contains(&1), "{others:?}");
    for backend in [0, 1] {
        for of_another in bench.clients_of(backend) {
            let before = bench.open(of_another);
            assert_eq!(before, backend, "who was elsewhere stays there");
        }
    }
    bench.wait(10);
    bench.flows.clear();
    assert_ne!(bench.ask(clients[3], ACK, 1, 1), 2, "a segment asks for nothing, and tries nobody");
    assert_eq!(bench.ask(clients[0], SYN, 1, 0), 2, "one tries");
    assert_ne!(bench.ask(clients[1], SYN, 1, 0), 2, "and one only");
    assert_eq!(bench.ask(clients[0], SYN, 1, 0), 2, "which repeats itself");
    assert!(bench.answer(2, clients[0], SYN_ACK, 5, 2));
    bench.flows.clear();
    assert!(clients.iter().all(|client| bench.ask(*client, SYN, 1, 0) == 2), "it is back");
}

#[test]
fn an_answer_ends_the_row_and_a_refusal_is_none() {
    let mut bench = Bench::new("");
    let clients = bench.clients_of(0);
    for _ in 0..4 {
        assert_eq!(bench.fail(clients[0]), 0);
        assert_eq!(bench.fail(clients[1]), 0);
        assert_eq!(bench.open(clients[2]), 0, "two in a row are not three");
        bench.flows.clear();
    }
    for client in &clients[..3] {
        assert_eq!(bench.ask(*client, SYN, 100, 0), 0);
        assert!(bench.answer(0, *client, RST_ACK, 0, 4_000_000));
        assert!(bench.flow(*client).is_some(), "it refuses something else");
        assert!(bench.answer(0, *client, RST_ACK, 0, 101));
        assert!(bench.flow(*client).is_none());
    }
    assert_ne!(bench.ask(clients[3], SYN, 100, 0), 0);
}

#[test]
fn an_attempt_counts_once_however_often_it_is_repeated() {
    let mut bench = Bench::new("answer_timeout = 1");
    let clients = bench.clients_of(0);
    for _ in 0..5 {
        for client in &clients[..2] {
            assert_eq!(bench.ask(*client, SYN, 100, 0), 0);
        }
        bench.wait(2);
    }
    assert_eq!(bench.ask(clients[2], SYN, 100, 0), 0, "two attempts");
    bench.flows.clear();
    assert_eq!(bench.ask(clients[0], SYN, 101, 0), 0);
    bench.wait(2);
    assert_ne!(bench.ask(clients[2], SYN, 100, 0), 0, "and a third, of the same client");
}

#[test]
fn a_connection_that_made_room_has_not_failed() {
    let mut bench = Bench::new("down_after = 1");
    let backend = bench.ask(1, SYN, 100, 0);
    let (flow, _) = bench.flows.pop_first().expect("it is there").1;
    let Ok(()) = bench.balancer.expire(&mut bench.cx(), &flow);
    assert_eq!(bench.ask(1, SYN, 100, 0), backend);
}

#[test]
fn the_last_that_is_up_stays_up() {
    let mut bench = Bench::new("down_after = 1");
    let failed: Vec<u16> =
        [0, 1, 2].map(|backend| bench.clients_of(backend)[0]).map(|client| bench.fail(client)).to_vec();
    let last = bench.ask(1, SYN, 1, 0);
    assert!(failed.contains(&last));
    assert!((2..30).all(|number| bench.ask(number, SYN, 1, 0) == last), "the only one");
    // Another is back, and it is down with its next failure.
    bench.flows.clear();
    bench.wait(10);
    let other = (0..300).find(|number| bench.ask(*number, SYN, 7, 0) != last).expect("one tries");
    let trial = bench.flow(other).expect("it was opened").backend;
    assert!(bench.answer(trial, other, SYN_ACK, 1, 8));
    bench.flows.clear();
    let of_last = bench.clients_of(last)[0];
    assert_eq!(bench.fail(of_last), last);
    assert_eq!(bench.ask(of_last, SYN, 100, 0), trial);
}

#[test]
fn a_full_table_does_not_stop_connections() {
    let mut bench = Bench::new("");
    let backend = bench.ask(1, SYN, 1, 0);
    let to = (service().address, service().port);
    let headers = tcp((client(1).address, client(1).port), to, segment(SYN, 1, 0, 9), 0);
    let meta = bench.balancer.meta(&headers, &[]).expect("it is TCP");
    let orphan = bench.balancer.orphan(&mut bench.cx(), &meta);
    assert_eq!(orphan, Ok(bench.balancer.to_backend(backend)));
}

#[test]
fn answers_come_from_the_service_whatever_is_known() {
    let mut bench = Bench::new("");
    for backend in 0..3 {
        assert!(bench.answer(backend, 1, ACK, 1, 1), "nothing is known");
    }
    let backend = bench.open(1);
    assert!((0..3).all(|other| bench.answer(other, 1, ACK, 1, 1)), "whoever speaks");
    bench.wait(900);
    assert!(bench.flow(1).is_none() && bench.answer(backend, 1, ACK, 501, 101));
    assert!(bench.flows.is_empty(), "answers open nothing");
}

/// These are not believed, and state and deadline don't change.
#[test]
fn what_is_not_believed_changes_nothing() {
    let mut bench = Bench::new("");
    let backend = bench.open(1);
    bench.wait(5);
    let before = *bench.flow(1).expect("it is open");
    let secs_left = bench.secs_left(1);
    bench.ask(1, RST, 900_000, 0);
    bench.ask(1, RST, 7, 0);
    bench.ask(1, SYN_ACK, 101, 501);
    bench.ask(1, SYN.with(TcpFlags::FIN), 101, 501);
    bench.answer(backend, 1, RST_ACK, 900_000, 101);
    bench.answer(backend, 1, TcpFlags::default(), 501, 101);
    bench.direct(backend, 1, ACK, 101, 501);
    bench.direct(backend, 1, RST, 101, 0);
    let now = *bench.flow(1).expect("it is open still");
    assert_eq!(
        (now.state(), now.backend, now.name, bench.secs_left(1)),
        (before.state(), before.backend, before.name, secs_left)
    );
    // Within the window, and not at its edge.
    bench.ask(1, RST, 150, 0);
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::Established), secs_left));
    bench.ask(1, RST, 101, 0);
    assert_eq!((bench.state(1), bench.secs_left(1)), (Some(State::Close), 60));
}

#[test]
fn a_direct_connection_is_left_alone_with_and_without_one_through_the_service() {
    for before in 0..5 {
        let mut bench = Bench::new("down_after = 0");
        let number = bench.clients_of(1)[0];
        match before {
            0 => {}
            1 => {
                bench.open(number);
                bench.ask(number, RST, 101, 0);
            }
            2 => {
                bench.open(number);
                bench.answer(1, number, RST, 501, 0);
            }
            3 => {
                bench.open(number);
                bench.ask(number, FIN_ACK, 101, 501);
                bench.answer(1, number, FIN_ACK, 501, 102);
                bench.ask(number, ACK, 102, 502);
            }
            // Its end has not been seen.
            _ => assert_eq!(bench.open(number), 1),
        }
        bench.direct(1, number, SYN, 70_000, 0);
        assert!(!bench.answer(1, number, SYN_ACK, 9_000, 70_001), "{before}");
        bench.direct(1, number, ACK, 70_001, 9_001);
        assert!(!bench.answer(1, number, ACK, 9_001, 70_001), "{before}");
        bench.wait(800);
        assert!(!bench.answer(1, number, ACK, 9_001, 70_001), "{before}");
        // And one through the service that follows.
        bench.direct(1, number, RST, 70_001, 0);
        assert_eq!(bench.ask(number, SYN, 300, 0), 1);
        assert!(bench.answer(1, number, SYN_ACK, 9_000, 301), "{before}");
    }
}

#[test]
fn direct_connections_beside_one_through_the_service() {
    let mut bench = Bench::new("");
    let number = bench.clients_of(1)[0];
    bench.open(number);
    for backend in [0, 2] {
        bench.direct(backend, number, SYN, 5_000, 0);
        assert!(!bench.answer(backend, number, SYN_ACK, 1, 5_001));
    }
    assert!(bench.answer(1, number, ACK, 501, 101));
    bench.wait(800);
    assert!(!bench.answer(0, number, ACK, 2, 5_001) && !bench.answer(2, number, ACK, 2, 5_001));
    assert_eq!(bench.ask(number, ACK, 101, 501), 1);
    // The other way round.
    let number = bench.clients_of(1)[1];
    bench.direct(0, number, SYN, 5_000, 0);
    assert_eq!(bench.open(number), 1);
    assert!(!bench.answer(0, number, SYN_ACK, 1, 5_001));
    let report =
        report_of(&bench.balancer, bench.flows.iter().map(|(key, known)| (*key, known.0))).expect("it has one");
    assert_eq!(report.rows[1][2], *"2");
}

/// Connections alive, expired, ended and restarted count once each.
#[test]
fn totals_are_of_all_connections() {
    let mut bench = Bench::new("down_after = 0");
    let clients = bench.clients_of(1);
    let row = |bench: &Bench, lapsed: usize| {
        let deadline = |at: usize| if at < lapsed { bench.now } else { Nanos::NEVER };
        let flows = bench.flows.iter().enumerate().map(|(at, (key, known))| (*key, known.0, deadline(at)));
        let flows: Vec<_> = flows.collect();
        let report = report_at(&bench.balancer, &flows, &bench.shared, bench.now).expect("it has one");
        report.rows[1][2..].iter().filter_map(Cell::number).collect::<Vec<u64>>()
    };
    for client in &clients[..3] {
        bench.open(*client);
    }
    bench.direct(1, clients[3], SYN, 1, 0);
    assert_eq!(row(&bench, 0), [3, 3, 6, 3]);
    assert_eq!(row(&bench, 1), [2, 3, 6, 3]);
    bench.ask(clients[0], RST, 101, 0);
    bench.ask(clients[0], SYN, 9_000, 0);
    assert_eq!(row(&bench, 0), [3, 4, 8, 3], "it is another one");
    bench.wait(900);
    assert_eq!(row(&bench, 0), [0, 4, 8, 3]);
}

#[test]
fn a_syn_to_the_backend_that_nobody_believes_leaves_the_connection_as_it_is() {
    let mut bench = Bench::new("");
    let backend = bench.open(1);
    bench.direct(backend, 1, SYN, 70_000, 0);
    assert!(bench.answer(backend, 1, ACK, 501, 101), "it asks back");
    assert_eq!(bench.ask(1, ACK, 101, 501), backend);
    assert!(bench.answer(backend, 1, ACK, 501, 101));
    assert_eq!(bench.flow(1).expect("it is open").name, Name::Service);
}

#[test]
fn of_datagrams_the_last_request_tells() {
    let services = "[[services]]\naddress = \"192.0.2.1:80\"\nprotocol = \"udp\"\nbackends = [\"10.0.0.1:80\"]\n";
    let mut bench = Bench::of(services);
    let (service, backend, client) = (service(), bench.backend(0), client(1));
    let mut send = |from: Endpoint, to: Endpoint| bench.headers(&udp((from.address, from.port), (to.address, to.port)));
    assert_eq!(send(backend, client), (service, client));
    for _ in 0..2 {
        assert_eq!(send(client, service), (client, backend));
        assert_eq!(send(backend, client), (service, client));
        assert_eq!(send(client, backend), (client, backend));
        assert_eq!(send(backend, client), (backend, client));
    }
}

#[test]
fn a_record_may_name_what_there_is_not() {
    let mut bench = Bench::new("");
    let headers = tcp((client(1).address, 1), (service().address, service().port), segment(SYN, 1, 0, 9), 0);
    let known = bench.balancer.meta(&headers, &[]).expect("it is TCP");
    for service in [0, 9] {
        for kind in [PacketKind::Request, PacketKind::Answer { backend: 999 }, PacketKind::Direct { backend: 999 }] {
            let meta = Passing { service, kind, ..known };
            bench.step(&meta);
            let Ok(verdict) = bench.balancer.orphan(&mut bench.cx(), &meta);
            assert!(service == 0 || matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        }
    }
    assert!(bench.flows.values().all(|(flow, _)| usize::from(flow.backend) < 3));
}

#[test]
fn records_have_one_form() {
    let mut record = [0; Passing::RECORD_BYTES];
    let bench = Bench::new("");
    let (client, service) = ((client(1).address, 1_025), (service().address, service().port));
    let backend = (bench.backend(1).address, 80);
    for flags in [SYN, ACK, SYN_ACK, FIN_ACK, RST, SYN.with(TcpFlags::FIN)] {
        for (from, to) in [(client, service), (backend, client), (client, backend)] {
            let meta = bench.balancer.meta(&tcp(from, to, segment(flags, 1, 2, 3), 4), &[]).expect("it is TCP");
            assert_eq!(meta.key().source(), Endpoint::new(client.0, client.1));
            meta.write(&mut record);
            assert_eq!(Passing::read(&record), Some(meta));
        }
    }
    let kind = record[0];
    record[0] = kind & !3;
    assert_eq!(Passing::read(&record), None, "a request has no backend");
    record[0] = kind | 3;
    assert_eq!(Passing::read(&record), None);
    record[0] = kind & 3 | 1 << 2;
    assert_eq!(Passing::read(&record), None, "no datagram is of TCP");
}

/// The service with these backends, each a number of [`SERVICE`]'s, or 3 for another.
fn service_with(backends: &[u16]) -> String {
    let all = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:8080", "10.0.0.4:80"];
    let some: Vec<&str> = backends.iter().map(|number| all[usize::from(*number)]).collect();
    alloc::format!("[[services]]\naddress = \"192.0.2.1:80\"\nbackends = {some:?}\n")
}

#[test]
fn connections_stay_with_their_backends_whatever_others_come_and_go() {
    let mut bench = Bench::new("");
    let before: Vec<u16> = (0..40).map(|number| bench.open(number)).collect();
    bench.reload(&service_with(&[3, 2, 1]));
    let mut moved = 0;
    for (number, backend) in (0..40).zip(before) {
        let now = bench.ask(number, ACK, 102, 501);
        if backend == 0 {
            // Its new backend doesn't know it, and says so to the client.
            assert!(now != 0 && bench.answer(now, number, RST, 501, 0));
            moved += 1;
        } else {
            assert_eq!(now, backend, "client {number}");
            assert!(bench.answer(backend, number, ACK, 501, 103));
        }
    }
    assert!(moved > 3, "{moved} connections were of the one that was removed");
    assert!((100..140).any(|number| bench.open(number) == 3), "the new one gets connections");
    let report = report_at(&bench.balancer, &[], &bench.shared, bench.now).expect("it has a report");
    assert_eq!(report.rows[0][1].to_string(), "10.0.0.1:80 (removed)");
    assert_eq!(report.rows[0][3].to_string(), moved.to_string(), "their connections still count");
}

#[test]
fn a_backend_that_comes_back_is_the_same_one() {
    let mut bench = Bench::new("");
    let number = (0..40).find(|number| bench.open(*number) == 0).expect("one of them goes there");
    bench.reload(&service_with(&[1, 2]));
    bench.reload(&service_with(&[2, 3, 0]));
    assert_eq!(bench.ask(number, ACK, 102, 501), 0, "no packet has come meanwhile");
    assert!(bench.answer(0, number, ACK, 501, 103));
}

#[test]
fn health_stays_unless_it_is_judged_by_other_rules() {
    let mut bench = Bench::new("down_after = 2\nretry_after = 1000\n");
    let mine = bench.clients_of(1);
    assert_eq!((bench.fail(mine[0]), bench.fail(mine[1])), (1, 1));
    assert_ne!(bench.ask(mine[2], SYN, 100, 0), 1, "it is down");
    bench.reload(&("down_after = 2\nretry_after = 1000\n".to_string() + &service_with(&[0, 1, 2, 3])));
    assert!((200..300).all(|number| bench.ask(number, SYN, 100, 0) != 1), "it is still down");
    bench.reload(&("down_after = 3\n".to_string() + &service_with(&[0, 1, 2, 3])));
    assert!((300..400).any(|number| bench.ask(number, SYN, 100, 0) == 1), "it is judged anew");
}

#[test]
fn a_backend_that_comes_back_is_up() {
    let mut bench = Bench::new("down_after = 2\nretry_after = 1000\n");
    let mine = bench.clients_of(0);
    assert_eq!((bench.fail(mine[0]), bench.fail(mine[1])), (0, 0));
    assert_ne!(bench.ask(mine[2], SYN, 100, 0), 0, "it is down");
    for backends in [&[1, 2][..], &[0, 1, 2]] {
        bench.reload(&("down_after = 2\nretry_after = 1000\n".to_string() + &service_with(backends)));
    }
    assert_eq!(bench.ask(mine[3], SYN, 100, 0), 0);
}

#[test]
fn a_service_may_go_with_its_connections() {
    let mut bench = Bench::new("");
    bench.open(1);
    bench.reload("[[services]]\naddress = \"192.0.2.2:80\"\nbackends = [\"10.0.0.1:80\"]\n");
    let ends = (client(1), service());
    assert_eq!(bench.send(ends.0, ends.1, ACK, 102, 501), ends, "no service has this address");
    // The backend of one service is another one for another.
    assert_eq!(bench.balancer.backends.len(), 4);
    bench.wait(901);
    assert!(bench.flows.is_empty());
}
