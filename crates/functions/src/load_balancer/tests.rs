use core::net::{IpAddr, Ipv4Addr};

use memory::{Local, LocalTx, LocalVector};
use packet::{Nanos, Seq};

use super::*;

const SERVICE: &str =
    "[[services]]\naddress = \"192.0.2.1:80\"\nbackends = [\"10.0.0.1:80\", \"10.0.0.2:80\", \"10.0.0.3:8080\"]\n";

struct Bench {
    balancer: LoadBalancer,
    healths: LocalVector<Health>,
    now: Nanos,
}

fn client(number: u16) -> FiveTuple {
    FiveTuple::v4(Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(192, 0, 2, 1), 1_024 + number, 80, 6)
}

impl Bench {
    fn new(text: &str) -> Self {
        let text = alloc::format!("{text}\n{SERVICE}");
        let balancer = LoadBalancer::new(toml::from_str(&text).expect("the test's own configuration"));
        Self { healths: balancer.shared(&Local::default()), balancer, now: Nanos::from_secs(1_000) }
    }

    fn cx(&self) -> Context<'_, LoadBalancer, Local> {
        Context::new(&self.healths, LocalTx::default(), self.now, Seq(0))
    }

    fn open(&self, number: u16) -> Connection {
        let meta = Passing { tuple: client(number), service: 0, way: Way::Request, signal: Signal::Syn };
        let Ok(Opened::Flow(flow)) = self.balancer.open(&mut self.cx(), &meta) else { panic!("a request is let in") };
        flow
    }

    fn give(&self, flow: &mut Connection, number: u16, way: Way, signal: Signal) -> (Verdict, nf::Effects) {
        let mut cx = self.cx();
        let meta = Passing { tuple: client(number), service: 0, way, signal };
        let Ok(verdict) = self.balancer.packet(&mut cx, flow, &meta);
        (verdict, cx.effects())
    }

    fn end(&self, flow: &Connection) {
        let Ok(()) = self.balancer.expire(&mut self.cx(), flow);
    }

    /// The first clients whose backend is this one while all are up.
    fn clients_of(&self, backend: u16) -> Vec<u16> {
        (0..200).filter(|number| self.open(*number).backend == backend).take(20).collect()
    }

    /// Lets a client's connection go unanswered.
    fn fail(&mut self, number: u16) -> u16 {
        let flow = self.open(number);
        self.now = self.now + Nanos::from_secs(3);
        self.end(&flow);
        flow.backend
    }
}

#[test]
fn requests_go_to_the_backend_and_answers_come_from_the_service() {
    let bench = Bench::new("");
    let mut flow = bench.open(1);
    let endpoint = bench.balancer.backends[usize::from(flow.backend)].endpoint;
    let (verdict, _) = bench.give(&mut flow, 1, Way::Request, Signal::Syn);
    assert_eq!(verdict, Verdict::rewritten(Rewrite { dst: Some(endpoint), ..Rewrite::NONE }));
    let answer = Way::Answer { backend: flow.backend };
    let (verdict, _) = bench.give(&mut flow, 1, answer, Signal::Syn);
    let service = Endpoint::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
    assert_eq!(verdict, Verdict::rewritten(Rewrite { src: Some(service), ..Rewrite::NONE }));
    let other = Way::Answer { backend: (flow.backend + 1) % 3 };
    assert_eq!(bench.give(&mut flow, 1, other, Signal::None).0, Verdict::FORWARD, "it talks to that one directly");
}

#[test]
fn a_connection_stays_with_its_backend_whatever_becomes_of_that() {
    let mut bench = Bench::new("down_after = 1");
    let number = bench.clients_of(1)[0];
    let mut flow = bench.open(number);
    assert_eq!(bench.fail(bench.clients_of(1)[1]), 1);
    assert_ne!(bench.open(number).backend, 1, "new ones go elsewhere");
    let before = flow;
    bench.give(&mut flow, number, Way::Request, Signal::Syn);
    assert_eq!(flow.backend, before.backend);
}

#[test]
fn a_connection_goes_through_its_phases() {
    let bench = Bench::new("");
    let mut flow = bench.open(1);
    let answer = Way::Answer { backend: flow.backend };
    let after = |secs| Some(bench.now + Nanos::from_secs(secs));
    for (way, signal, phase, deadline, assured) in [
        (Way::Request, Signal::Syn, Phase::Waiting, None, false),
        (answer, Signal::Syn, Phase::Answered, after(60), false),
        (Way::Request, Signal::Syn, Phase::Answered, after(60), false),
        (Way::Request, Signal::None, Phase::Open, after(900), true),
        (Way::Request, Signal::None, Phase::Open, after(900), false),
        (answer, Signal::None, Phase::Open, after(900), true),
        (answer, Signal::Fin, Phase::Closing, after(60), false),
        (Way::Request, Signal::None, Phase::Closing, after(60), false),
        (Way::Request, Signal::Syn, Phase::Waiting, after(3), false),
        (answer, Signal::Rst, Phase::Refused, None, false),
    ] {
        let (_, effects) = bench.give(&mut flow, 1, way, signal);
        assert_eq!(flow.phase, phase, "{signal:?} {way:?}");
        assert_eq!((effects.deadline, effects.assured), (deadline, assured), "{signal:?} {way:?}");
        assert_eq!(effects.close, phase == Phase::Refused);
    }
}

#[test]
fn a_backend_that_does_not_answer_is_left_alone_and_tried_again() {
    let mut bench = Bench::new("");
    let clients = bench.clients_of(2);
    for client in &clients[..3] {
        assert_eq!(bench.fail(*client), 2);
    }
    let others: Vec<u16> = clients.iter().map(|client| bench.open(*client).backend).collect();
    assert!(!others.contains(&2) && others.contains(&0) && others.contains(&1), "{others:?}");
    for of_another in bench.clients_of(0) {
        assert_eq!(bench.open(of_another).backend, 0, "who was elsewhere stays there");
    }
    bench.now = bench.now + Nanos::from_secs(10);
    assert_eq!(bench.open(clients[0]).backend, 2, "one tries");
    assert_ne!(bench.open(clients[1]).backend, 2, "and one only");
    bench.now = bench.now + Nanos::from_secs(10);
    let mut flow = bench.open(clients[0]);
    bench.give(&mut flow, clients[0], Way::Answer { backend: 2 }, Signal::Syn);
    assert!(clients.iter().all(|client| bench.open(*client).backend == 2), "it is back");
}

#[test]
fn an_answer_ends_the_row_and_a_refusal_is_none() {
    let mut bench = Bench::new("");
    let clients = bench.clients_of(0);
    for _ in 0..4 {
        bench.fail(clients[0]);
        bench.fail(clients[0]);
        let mut flow = bench.open(clients[1]);
        assert_eq!(flow.backend, 0, "two in a row are not three");
        bench.give(&mut flow, clients[1], Way::Answer { backend: 0 }, Signal::Syn);
    }
    for client in &clients[..3] {
        let mut flow = bench.open(*client);
        let (_, effects) = bench.give(&mut flow, *client, Way::Answer { backend: 0 }, Signal::Rst);
        assert!(effects.close);
        bench.end(&flow);
    }
    assert_ne!(bench.open(clients[3]).backend, 0);
}

#[test]
fn a_connection_that_made_room_has_not_failed() {
    let bench = Bench::new("down_after = 1");
    let flow = bench.open(1);
    bench.end(&flow);
    assert_eq!(bench.open(1).backend, flow.backend);
}

#[test]
fn where_all_are_down_the_table_is_right() {
    let mut bench = Bench::new("down_after = 1");
    let before: Vec<u16> = (0..50).map(|number| bench.open(number).backend).collect();
    for backend in 0..3 {
        let flow = Connection { backend, phase: Phase::Refused, since: bench.now };
        bench.end(&flow);
    }
    let after: Vec<u16> = (0..50).map(|number| bench.open(number).backend).collect();
    assert_eq!(after, before);
    bench.now = bench.now + Nanos::from_secs(9);
    assert_eq!(bench.open(0).backend, before[0]);
}

#[test]
fn a_full_table_does_not_stop_connections() {
    let bench = Bench::new("");
    let meta = Passing { tuple: client(1), service: 0, way: Way::Request, signal: Signal::Syn };
    let expected = bench.balancer.to_backend(bench.open(1).backend);
    assert_eq!(bench.balancer.orphan(&mut bench.cx(), &meta), Ok(expected));
}

#[test]
fn a_record_may_name_what_there_is_not() {
    let bench = Bench::new("");
    let meta = Passing { tuple: client(1), service: 9, way: Way::Request, signal: Signal::Syn };
    assert!(matches!(bench.balancer.open(&mut bench.cx(), &meta), Ok(Opened::Refused(Verdict::FORWARD))));
    assert_eq!(bench.balancer.orphan(&mut bench.cx(), &meta), Ok(Verdict::FORWARD));
}

#[test]
fn records_have_one_form() {
    let mut record = [0; <Passing as nf::Meta>::RECORD_BYTES];
    for way in [Way::Request, Way::Answer { backend: 0 }, Way::Answer { backend: 300 }] {
        for signal in [Signal::None, Signal::Rst, Signal::Syn, Signal::Fin] {
            let passing = Passing { tuple: client(9), service: 7, way, signal };
            nf::Meta::write(&passing, &mut record);
            assert_eq!(nf::Meta::read(&record), Some(passing));
        }
    }
    record[0] = 0;
    assert_eq!(<Passing as nf::Meta>::read(&record), None, "a request has no backend");
    record[0] = 8;
    assert_eq!(<Passing as nf::Meta>::read(&record), None);
    let at = Ipv4Addr::LOCALHOST;
    let datagram =
        Passing { tuple: FiveTuple::v4(at, at, 1, 2, 17), service: 0, way: Way::Request, signal: Signal::Syn };
    nf::Meta::write(&datagram, &mut record);
    assert_eq!(<Passing as nf::Meta>::read(&record), None);
}
