//! Screens of several sizes against files of what they have to look like, and any sample at any size.

extern crate daemon as millrace_daemon;

#[path = "../../daemon/examples/page/made_up.rs"]
mod made_up;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use daemon::{Core, Dropped, Interface, Latency, Stats, TopFlow, Transactions};
use made_up::MadeUp;
use millrace_top::{View, draw};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// What a terminal of a size shows: a line of text for each row.
fn screen(view: &mut View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory never fails");
    terminal.draw(|frame| draw(frame, view)).expect("memory never fails");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

/// Compares with a file. With the variable MILLRACE_BLESS, writes the file: look at the change before committing it.
fn expect(name: &str, screen: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(format!("{name}.txt"));
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        fs::write(&path, screen).expect("there is room");
    }
    let expected = fs::read_to_string(&path).expect("MILLRACE_BLESS=1 writes it");
    assert_eq!(screen, expected, "{name}:\n{screen}");
}

fn two_minutes() -> View {
    let mut run = MadeUp::default();
    let mut view = View::new(run.next(Duration::from_secs(1)), true);
    (2..=120).for_each(|second| view.sample(run.next(Duration::from_secs(second))));
    view
}

fn press(view: &mut View, keys: &[KeyCode]) -> bool {
    keys.iter().any(|key| view.key(KeyEvent::new(*key, KeyModifiers::NONE)))
}

#[test]
fn sizes() {
    for (name, width, height) in [
        ("large", 140, 45),
        ("smallest-large", 100, 30),
        ("common", 80, 24),
        ("smallest", 60, 15),
        ("too-small", 40, 5),
    ] {
        expect(name, &screen(&mut two_minutes(), width, height));
    }
}

#[test]
fn panels_one_by_one() {
    let mut view = two_minutes();
    for name in ["drops", "state", "flows", "interfaces"] {
        assert!(!press(&mut view, &[KeyCode::Tab]));
        expect(&format!("smallest-{name}"), &screen(&mut view, 60, 15));
    }
    assert!(!press(&mut view, &[KeyCode::End, KeyCode::Up]));
    expect("smallest-interfaces-scrolled", &screen(&mut view, 60, 15));
    let end = screen(&mut view, 60, 15);
    // Scrolling stops at the first row, and leaves other panels as they are.
    assert!(!press(&mut view, &[KeyCode::PageUp, KeyCode::PageUp, KeyCode::Up, KeyCode::Right]));
    assert_eq!(screen(&mut view, 60, 15), screen(&mut two_minutes(), 60, 15));
    press(&mut view, &[KeyCode::Left, KeyCode::PageDown, KeyCode::Up]);
    assert_eq!(screen(&mut view, 60, 15), end);
}

#[test]
fn what_keys_do() {
    let mut view = two_minutes();
    let live = screen(&mut view, 80, 24);
    press(&mut view, &[KeyCode::Char('?')]);
    expect("help", &screen(&mut view, 80, 24));
    // Escape closes the help first.
    assert!(!press(&mut view, &[KeyCode::Esc]));
    assert_eq!(screen(&mut view, 80, 24), live);
    press(&mut view, &[KeyCode::Char('p')]);
    let paused = screen(&mut view, 80, 24);
    assert!(paused.lines().next().is_some_and(|line| line.ends_with(" paused")), "{paused}");
    view.sample(Stats { uptime_ms: 121_000, ..Stats::default() });
    assert_eq!(screen(&mut view, 80, 24), paused);
    press(&mut view, &[KeyCode::Char('p')]);
    assert!(screen(&mut view, 80, 24).contains("up 2 min 1 s"));
    for key in [KeyCode::Char('q'), KeyCode::Esc] {
        assert!(press(&mut view, &[key]), "{key:?}");
    }
    assert!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!view.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::CONTROL)));
}

#[test]
fn what_else_is_said() {
    let mut view = View::new(Stats { function: "nat".to_owned(), engine: "rss".to_owned(), ..Stats::default() }, false);
    expect("first-sample", &screen(&mut view, 80, 24));
    let cores = vec![Core::default(); 40];
    view.sample(Stats { uptime_ms: 1000, cores, stalled: Some(7), ..Stats::default() });
    assert!(screen(&mut view, 80, 24).ends_with("Core 7 stalls: the others wait for it.\n"));
    view.end("/run/millrace.sock: no run\nlistens there".to_owned());
    expect("ended", &screen(&mut view, 100, 30));
}

/// Names of the run can't move the cursor, nor leave their place.
#[test]
fn names_are_only_text() {
    let mut view = two_minutes();
    let name = || "\x1b[2J\u{202e}日本語\t\r\n".repeat(20);
    view.sample(Stats {
        function: name(),
        engine: name(),
        uptime_ms: 130_000,
        dropped: vec![Dropped { reason: name(), packets: 1 }],
        top_flows: vec![TopFlow { flow: name(), ..TopFlow::default() }],
        interfaces: vec![Interface { name: name(), trouble: Some(name()), counters: vec![(name(), 1)] }],
        ..Stats::default()
    });
    let shown = screen(&mut view, 140, 45);
    assert!(
        shown.contains('日') && !shown.contains(|sign: char| sign == '\u{202e}' || sign.is_control() && sign != '\n')
    );
    assert!(shown.lines().next().is_some_and(|line| line.ends_with(" live")), "{shown}");
    let line = millrace_top::line(
        &Stats::default(),
        &Stats { uptime_ms: 1, dropped: vec![Dropped { reason: name(), packets: 1 }], ..Stats::default() },
    );
    assert!(!line.contains(char::is_control), "{line}");
}

#[test]
fn a_line_of_a_sample() {
    let mut run = MadeUp::default();
    let [before, now] = [7, 8].map(|second| run.next(Duration::from_secs(second)));
    assert_eq!(
        millrace_top::line(&before, &now),
        "8 s  received 2.71 Mpps, 11.1 Gbit/s  forwarded 2.62 Mpps  replied 5.41 kpps  dropped 79.2 kpps (no-rule 65.9 \
         kpps, table-full 11.3 kpps, malformed 1.98 kpps)  load 62 % 51 % 70 % 58 %, imbalance 1.16  flows 203715 (77.7 \
         %)  aborts 0.5 %  latency p50 4.3 us, p99 22 us"
    );
    assert_eq!(millrace_top::line(&now, &now), "8 s  no rates: another run has begun");
}

fn any_stats() -> impl Strategy<Value = Stats> {
    let number = || prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..1_000_000];
    let core =
        [(); 6].map(|()| number()).prop_map(|[received, received_bytes, forwarded, replied, dropped, idle_ns]| Core {
            received,
            received_bytes,
            forwarded,
            replied,
            dropped,
            idle_ns,
        });
    let dropped = (any::<String>(), number()).prop_map(|(reason, packets)| Dropped { reason, packets });
    let interface = (any::<String>(), proptest::collection::vec((any::<String>(), number()), 0..5))
        .prop_map(|(name, counters)| Interface { trouble: counters.is_empty().then(|| name.clone()), name, counters });
    let flow = (any::<String>(), number(), number()).prop_map(|(flow, packets_per_second, bytes_per_second)| TopFlow {
        flow,
        packets_per_second,
        bytes_per_second,
    });
    let latency = [(); 6].map(|()| number()).prop_map(|[packets, p50_ns, p99_ns, p999_ns, worst_ns, sum_us]| Latency {
        packets,
        p50_ns,
        p99_ns,
        p999_ns,
        worst_ns,
        sum_us,
    });
    let transactions = (number(), number()).prop_map(|(committed, aborted)| Transactions { committed, aborted });
    let lists = (
        proptest::collection::vec(core, 0..70),
        proptest::collection::vec(dropped, 0..9),
        proptest::collection::vec(interface, 0..4),
        proptest::collection::vec(flow, 0..9),
    );
    let parts = (proptest::option::of(latency), proptest::option::of(transactions), proptest::option::of(number()));
    (any::<(String, String)>(), [(); 4].map(|()| number()), lists, parts).prop_map(
        |((function, engine), [uptime_ms, flows, flows_opened, flows_max], lists, (latency, transactions, stalled))| {
            let (cores, dropped, interfaces, top_flows) = lists;
            Stats {
                function,
                engine,
                uptime_ms,
                cores,
                dropped,
                flows,
                flows_opened,
                flows_max,
                transactions,
                interfaces,
                latency,
                top_flows,
                stalled,
            }
        },
    )
}

#[test]
fn any_sample_at_any_size() {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    let keys = prop::sample::select(vec![
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Down,
        KeyCode::Up,
        KeyCode::End,
        KeyCode::Home,
        KeyCode::PageDown,
        KeyCode::Char('p'),
        KeyCode::Char('?'),
    ]);
    let steps = proptest::collection::vec((any_stats(), keys, 0_u16..160, 0_u16..60), 1..5);
    proptest!(config, |(steps in steps)| {
        let mut view = View::new(steps[0].0.clone(), true);
        for (stats, key, width, height) in steps {
            prop_assert!(!millrace_top::line(&Stats::default(), &stats).contains(char::is_control));
            view.sample(stats);
            press(&mut view, &[key]);
            let shown = screen(&mut view, width, height);
            prop_assert_eq!(shown.lines().count(), usize::from(height));
        }
    });
}
