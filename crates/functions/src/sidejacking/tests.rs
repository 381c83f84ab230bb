use core::net::{IpAddr, Ipv4Addr};
use std::string::String;

use memory::Local;

use super::*;
use crate::testing::{Asked, report_shared, tell};

const OWNER: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

struct Bench {
    function: Sidejacking,
    state: Sessions<Local>,
    now: Nanos,
}

fn connection(client: [u8; 4]) -> Connection {
    let tuple = FiveTuple::v4(client.into(), Ipv4Addr::new(192, 0, 2, 80), 4000, 80, packet::protocol::TCP);
    Connection { tuple, sides: [Messages::default(); 2], is_known: false }
}

impl Bench {
    /// A detector that blocks.
    fn new(text: &str) -> Self {
        let text = std::format!("block = true\n{text}");
        let function = Sidejacking::new(toml::from_str(&text).expect("the test's own configuration"));
        Self { state: function.shared(&Local::default()), function, now: Nanos::from_secs(1_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn says(&self, connection: &mut Connection, from: Direction, text: &str) -> Asked {
        tell(&self.function, &self.state, self.now, connection, Said::Data(from, text.as_bytes()))
    }

    /// Sends a request over a connection of its own. Returns true if it counts as another client's.
    fn asks(&self, client: [u8; 4], session: u64, agent: u32) -> bool {
        let fields = std::format!("Host: a\r\nUser-Agent: {agent}\r\nCookie: sid=0123456789-{session}\r\n");
        self.says(&mut connection(client), Direction::Original, &request(&fields)).drops
    }

    /// Returns the session of a request.
    fn session(&self, text: &str) -> Option<(Digest, u32)> {
        let server = Endpoint::new(IpAddr::from([192, 0, 2, 80]), 80);
        http::request(text.as_bytes(), |request| of_request(&self.function.config, &request, server)).flatten()
    }
}

fn request(fields: &str) -> String {
    std::format!("GET / HTTP/1.1\r\n{fields}\r\n")
}

#[test]
fn a_session_belongs_to_who_used_it_first() {
    let mut bench = Bench::new("session_timeout = 100\nrefresh_interval = 10");
    assert!(!bench.asks(OWNER, 7, 1) && bench.asks(OTHER, 7, 1) && !bench.asks(OWNER, 7, 2));
    assert!(!bench.asks(OTHER, 8, 1), "another session");
    for _ in 0..12 {
        bench.wait(10);
        assert!(!bench.asks(OWNER, 7, 1) && bench.asks(OTHER, 7, 1));
    }
    bench.wait(99);
    assert!(bench.asks(OTHER, 7, 1));
    bench.wait(1);
    assert!(!bench.asks(OTHER, 7, 1) && bench.asks(OWNER, 7, 1), "its own client has left it");
}

#[test]
fn what_differs_is_configured() {
    for (differs, address, agent, both) in [
        ("address", true, false, true),
        ("agent", false, true, true),
        ("either", true, true, true),
        ("both", false, false, true),
    ] {
        let bench = Bench::new(&std::format!("differs = {differs:?}"));
        bench.asks(OWNER, 7, 1);
        assert_eq!((bench.asks(OTHER, 7, 1), bench.asks(OWNER, 7, 2), bench.asks(OTHER, 7, 2)), (address, agent, both));
    }
}

#[test]
fn a_connection_is_dropped_with_the_cookie_and_by_default_none_is() {
    let mut bench = Bench::new("");
    bench.asks(OWNER, 7, 1);
    let text = request("Host: a\r\nUser-Agent: 1\r\nCookie: sid=0123456789-7\r\n");
    let (one, other) = text.split_at(50);
    let mut stolen = connection(OTHER);
    let asked = bench.says(&mut stolen, Direction::Original, one);
    assert_eq!(asked, Asked { port: None, drops: false, holds: one.len() });
    // As reassembly tells it: what was held, with what follows.
    assert!(bench.says(&mut stolen, Direction::Original, &std::format!("{one}{other}")).drops);
    bench.function.config.block = false;
    assert!(!bench.says(&mut connection(OTHER), Direction::Original, &text).drops);
    assert!(!bench.says(&mut connection(OTHER), Direction::Original, &text.repeat(2)).drops);
    let report = report_shared(&bench.function, &bench.state, bench.now).unwrap();
    assert!(report.title.contains("5 requests with a session cookie, 4 by other clients"), "{}", report.title);
}

#[test]
fn only_clients_send_cookies_and_only_whole_heads_are_read() {
    let bench = Bench::new("");
    bench.asks(OWNER, 7, 1);
    let text = request("Host: a\r\nUser-Agent: 1\r\nCookie: sid=0123456789-7\r\n");
    let mut answered = connection(OTHER);
    bench.says(&mut answered, Direction::Reply, "HTTP/1.1 200 OK\r\n\r\n");
    assert!(!bench.says(&mut answered, Direction::Reply, &text).drops, "a server");
    assert!(bench.says(&mut answered, Direction::Original, &text).drops);
    let begun = || Said::Data(Direction::Original, &text.as_bytes()[..60]);
    let gap = Said::Gap(Direction::Original, stream::Gap { len: 3, end: stream::End::Acknowledged });
    for end in [gap, Said::End(Direction::Original)] {
        let mut cut = connection(OTHER);
        tell(&bench.function, &bench.state, bench.now, &mut cut, begun());
        assert!(!tell(&bench.function, &bench.state, bench.now, &mut cut, end).drops);
    }
    let long = request(&std::format!("X: {}\r\nCookie: sid=0123456789-7\r\n", "y".repeat(HELD_MAX)));
    assert!(!bench.says(&mut connection(OTHER), Direction::Original, &long[..HELD_MAX + 9]).drops);
    let report = report_shared(&bench.function, &bench.state, bench.now).unwrap();
    assert!(report.title.ends_with("3 heads unread)"), "{}", report.title);
}

#[test]
fn sessions_without_room_are_counted_and_told_of_nobody() {
    let mut bench = Bench::new("sessions = 1\nsession_timeout = 10\nremember = 10");
    assert!(
        !bench.asks(OWNER, 7, 1) && !bench.asks(OWNER, 8, 1) && !bench.asks(OTHER, 8, 1) && bench.asks(OTHER, 7, 2)
    );
    let report = report_shared(&bench.function, &bench.state, bench.now).unwrap();
    assert!(
        report.title.contains("4 requests with a session cookie, 1 by other clients, 2 without room"),
        "{}",
        report.title
    );
    assert_eq!(report.rows, [["192.0.2.80:80", "10.0.0.1", "10.0.0.2", "another", "1"]]);
    bench.wait(12);
    assert!(!bench.asks(OTHER, 8, 1) && bench.asks(OWNER, 8, 1), "there is room again");
}

#[test]
fn cookies_name_sessions() {
    let bench = Bench::new("");
    let one = bench.session(&request("Host: a\r\nCookie: PHPSESSID=0123456789abcdef\r\n")).expect("it has a cookie");
    for same in [
        "cookie:x=1;y; PHPSESSID=0123456789abcdef ;z=2\r\nHOST: A:80\r\n",
        "Host: a\r\nCookie: sid=short\r\nCookie: PHPSESSID=0123456789abcdef\r\n",
    ] {
        assert_eq!(bench.session(&request(same)), Some(one), "{same}");
    }
    for other in [
        "Host: b\r\nCookie: PHPSESSID=0123456789abcdef\r\n",
        "Host: a\r\nCookie: PHPSESSID=0123456789abcdeF\r\n",
        "Host: a\r\nCookie: JSESSIONID=0123456789abcdef\r\n",
        "Cookie: PHPSESSID=0123456789abcdef\r\n",
    ] {
        let session = bench.session(&request(other)).expect("it has a cookie");
        assert_ne!(session.0, one.0, "{other}");
    }
    for none in ["Host: a\r\n", "Host: a\r\nCookie: lang=0123456789\r\n", "Cookie: sid=0123456\r\n", "Cookie: sid\r\n"]
    {
        assert_eq!(bench.session(&request(none)), None, "{none}");
    }
    assert!(bench.session(&request("Cookie: ASPSESSIONIDQQABCDEF=0123456789\r\n")).is_some());
    let [a, b] = ["x", "y"].map(|agent| std::format!("Host: a\r\nUser-Agent: {agent}\r\nCookie: sid=0123456789\r\n"));
    let [a, b] = [a, b].map(|fields| bench.session(&request(&fields)).expect("it has a cookie"));
    assert!(a.0 == b.0 && a.1 != b.1);
}

#[test]
fn what_can_never_match_or_would_turn_the_tables_is_refused() {
    let refused = |text: &str| toml::from_str::<Config>(text).expect_err(text).to_string();
    for cookie in ["", "*", "a*b", "**", "a=b", "a;b", " a"] {
        let error = refused(&std::format!("cookies = [\"sid\", {cookie:?}]"));
        assert!(error.contains("`cookies` has") && error.contains(cookie), "{error}");
    }
    assert!(toml::from_str::<Config>("cookies = [\"sid\", \"ASPSESSIONID*\"]").is_ok());
    let error = refused("refresh_interval = 1800");
    assert!(error.contains("`refresh_interval` (1800) must be less than `session_timeout` (1800)"), "{error}");
    assert!(toml::from_str::<Config>("refresh_interval = 1799").is_ok());
}
