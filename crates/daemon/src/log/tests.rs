//! Lines as a writer gets them, by a clock that the test sets.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::{debug, info, warn};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// Collects lines, and tells a time that stands still.
#[derive(Clone)]
struct Bench {
    lines: Arc<Mutex<Vec<u8>>>,
    now: Arc<Mutex<Instant>>,
}

impl Bench {
    fn new() -> Self {
        Self { lines: Arc::default(), now: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Runs `act` with logs in this form.
    fn with(&self, format: Format, level: Level, act: impl FnOnce()) {
        let (writer, clock) = (self.clone(), Arc::clone(&self.now));
        let lines = limited(format, false, move || writer.clone(), move || *clock.lock().expect("no test panics"));
        let logs = tracing_subscriber::registry().with(lines).with(LevelFilter::from_level(level));
        tracing::subscriber::with_default(logs, act);
    }

    /// Lets time pass.
    fn pass(&self, seconds: f64) {
        *self.now.lock().expect("no test panics") += Duration::from_secs_f64(seconds);
    }

    /// Takes the lines so far, without their time.
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.lines.lock().expect("no test panics"));
        let text = String::from_utf8(bytes).expect("it is text");
        text.lines().map(|line| line.split_once(' ').expect("the time is first").1.trim().to_owned()).collect()
    }
}

impl Write for Bench {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lines.lock().expect("no test panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn text_has_time_level_message_and_fields() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        warn!(interface = "eth0", mtu = 1500, "link is down");
        debug!("not told");
    });
    let bytes = bench.lines.lock().expect("no test panics").clone();
    let text = String::from_utf8(bytes).expect("it is text");
    let (time, rest) = text.split_once(' ').expect("the time is first");
    // 2026-11-28T16:15:01.123456Z
    assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    assert_eq!(rest, " WARN link is down interface=\"eth0\" mtu=1500\n");
}

#[test]
fn json_has_a_key_for_each_field() {
    let bench = Bench::new();
    bench.with(Format::Json, Level::INFO, || info!(interface = "eth0", queues = 2_u64, "opened \"it\"\n"));
    let bytes = bench.lines.lock().expect("no test panics").clone();
    let line: serde_json::Value = serde_json::from_slice(&bytes).expect("it is JSON");
    assert_eq!(line["message"], "opened \"it\"\n");
    assert_eq!((&line["interface"], &line["queues"], &line["level"]), (&"eth0".into(), &2.into(), &"INFO".into()));
    assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
}

/// A line of one call site.
fn refused(number: u64) {
    warn!(number, "refused");
}

#[test]
fn a_flood_is_cut_and_counted() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        (0..25).for_each(refused);
        let lines = bench.take();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[9], "WARN refused number=9");
        info!("another place");
        assert_eq!(bench.take(), ["INFO another place"]);
        // The period goes on, whatever comes in it.
        bench.pass(9.9);
        refused(25);
        assert!(bench.take().is_empty());
        bench.pass(0.2);
        refused(26);
        assert_eq!(bench.take(), ["WARN lines were left out left_out=16 like=\"refused\"", "WARN refused number=26"]);
        // Nothing was left out in this one.
        bench.pass(11.0);
        refused(27);
        assert_eq!(bench.take(), ["WARN refused number=27"]);
    });
}

#[test]
fn what_was_left_out_is_told_when_another_place_writes_or_time_passes_or_logs_end() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        let told = "WARN lines were left out left_out=2 like=\"refused\"";
        (0..12).for_each(refused);
        bench.take();
        bench.pass(10.0);
        info!("another place");
        assert_eq!(bench.take(), [told, "INFO another place"]);

        let logs = Logs(());
        (0..12).for_each(refused);
        bench.take();
        logs.tick();
        assert!(bench.take().is_empty(), "the period goes on");
        bench.pass(10.0);
        logs.tick();
        assert_eq!(bench.take(), [told]);

        (0..12).for_each(refused);
        bench.take();
        drop(logs);
        assert_eq!(bench.take(), [told]);
    });
}

#[test]
fn each_key_has_lines_of_its_own() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        let down = |interface: &str, core: u64| info!(interface, core, number = core, "link is down");
        for _ in 0..12 {
            down("eth0", 1);
            down("eth1", 1);
        }
        (0..3).for_each(|_| down("eth0", 2));
        assert_eq!(bench.take().len(), 23);
        bench.pass(10.0);
        drop(Logs(()));
        let mut lines = bench.take();
        lines.sort();
        let line =
            |name| format!("INFO lines were left out left_out=2 like=\"link is down\" of=\"interface={name} core=1\"");
        assert_eq!(lines, [line("eth0"), line("eth1")]);
    });
}

/// Keys come from outside. Beyond the room for them they are counted as one.
#[test]
fn many_keys_take_no_more_room() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        let refused = |reason: &str| info!(reason, "refused");
        (0..5000).for_each(|number| refused(&format!("{number}")));
        assert_eq!(bench.take().len(), 1024 + 10);
        bench.pass(10.0);
        drop(Logs(()));
        assert_eq!(bench.take(), ["INFO lines were left out left_out=3966 like=\"refused\""]);
        // Long ones are cut off between two characters.
        let long = "\u{1f600}".repeat(400);
        (0..11).for_each(|_| refused(&long));
        bench.take();
        drop(Logs(()));
        let lines = bench.take();
        assert!(lines.len() == 1 && lines[0].len() < 400, "{lines:?}");
    });
}

#[test]
fn events_in_spans_and_threads_are_written() {
    let bench = Bench::new();
    bench.with(Format::Text, Level::INFO, || {
        let span = tracing::info_span!("reload", file = "fw.toml");
        span.in_scope(|| info!("checked"));
        assert_eq!(bench.take(), ["INFO reload{file=\"fw.toml\"}: checked"]);
    });
}
