//! Runs that answer while they go on: `millrace run --control` and `millrace ctl`.

use std::io::Write;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::folder::{ENGINES, Folder};
use super::waiting::ends;

/// A run that reads a pipe.
struct Run<'a> {
    folder: &'a Folder,
    child: Child,
    line: String,
}

impl<'a> Run<'a> {
    fn begin(folder: &'a Folder, line: &str) -> Self {
        let mut command = folder.command(&format!("run {line} --json --in - --control=run.sock"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { folder, child, line: line.to_owned() }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().expect("it is piped").write_all(bytes).unwrap();
    }

    /// Asks until the answer is right, which it is in the end on any machine.
    fn until(&self, question: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let line = format!("ctl --control run.sock --json {question}");
        let begun = Instant::now();
        loop {
            let (code, stdout, stderr) = self.folder.run(&line);
            let answer = (code == 0).then(|| serde_json::from_slice::<Value>(&stdout).unwrap());
            match answer {
                Some(answer) if is_right(&answer) => return answer,
                answer => {
                    assert!(
                        begun.elapsed() < Duration::from_secs(60),
                        "{}: {question}: {answer:?} {stderr}",
                        self.line
                    );
                    thread::yield_now();
                }
            }
        }
    }

    /// Ends the input and returns the summary.
    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn sum(stats: &Value, of: &str) -> u64 {
    stats["cores"].as_array().unwrap().iter().map(|core| core[of].as_u64().unwrap()).sum()
}

/// Under every engine: counters that add up, flows, the report, and another configuration from a packet on.
#[test]
fn a_run_answers_and_takes_another_configuration() {
    const PACKETS: u64 = 4_000;
    const HALF: u64 = PACKETS / 2;
    let folder = Folder::empty();
    folder.stdout(&format!("synth --profile university-dc --packets {PACKETS} --flows 150 --seed 8 --out in.pcap"));
    let capture = folder.bytes("in.pcap");
    let half = ends(&capture)[HALF as usize];
    std::fs::write(folder.path("closed.toml"), "action = \"drop\"\npatterns = [\"x\"]").unwrap();
    std::fs::write(folder.path("emptied.rules"), "# nothing\n\n").unwrap();
    std::fs::write(folder.path("wrong.rules"), "garbage\n").unwrap();
    std::fs::write(folder.path("closed.rules"), "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n").unwrap();
    std::fs::write(folder.path("open.rules"), "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n").unwrap();
    for engine in ENGINES {
        let mut run = Run::begin(&folder, &format!("rules --rules open.rules {engine}"));
        run.write(&capture[..half]);
        let stats = run.until("stats", |stats| sum(stats, "received") == HALF);
        assert_eq!((sum(&stats, "forwarded"), sum(&stats, "dropped")), (HALF, 0), "{engine}");
        assert_eq!(stats["function"], "rules", "{engine}");
        let report = run.until("report", |report| !report.is_null());
        assert!(report["columns"].as_array().is_some_and(|columns| !columns.is_empty()), "{engine}: {report}");

        // What can't take over is refused, and changes nothing.
        let (code, error) = folder.fails("ctl --control run.sock reload closed.toml");
        assert!(code == 2 && error.contains("closed.toml:1:1: `action` is not a key"), "{engine}: {error}");
        let (code, error) = folder.fails("ctl --control run.sock reload emptied.rules");
        assert!(code == 2 && error.contains("emptied.rules is empty"), "{engine}: {error}");
        let (code, error) = folder.fails("ctl --control run.sock reload wrong.rules");
        assert!(code == 2 && error.contains("wrong.rules:1:1"), "{engine}: {error}");
        let told = folder.stdout("ctl --control run.sock reload closed.rules");
        assert_eq!(told, format!("packets from number {HALF} on get the new configuration\n"), "{engine}");
        run.write(&capture[half..]);
        let stats = run.until("stats", |stats| sum(stats, "received") == PACKETS);
        assert_eq!((sum(&stats, "forwarded"), sum(&stats, "dropped")), (HALF, PACKETS - HALF), "{engine}");
        let summary = run.end();
        assert_eq!(summary["packets"]["dropped"], HALF, "{engine}: {summary}");
        let (code, error) = folder.fails("ctl --control run.sock stats");
        assert!(code == 2 && error.contains("no run listens there"), "{engine}: {error}");
    }
}

/// Flows by their ends, each once under every engine.
#[test]
fn flows_are_listed_by_their_ends() {
    let folder = Folder::new();
    folder.stdout("run conntrack --in demo.pcap.zst --packets 9000 --out in.pcap");
    let capture = folder.bytes("in.pcap");
    let packets = ends(&capture).len() as u64 - 1;
    let (mut seen, mut opened) = (Vec::new(), Vec::new());
    for engine in ENGINES {
        let mut run = Run::begin(&folder, &format!("conntrack --seed 1 {engine}"));
        run.write(&capture);
        run.until("stats", |stats| sum(stats, "received") == packets);
        let stats = run.until("stats", |_| true);
        let all = run.until("flows --top 100000", |_| true);
        // Entries are flows, and those that have expired and were not reclaimed yet.
        let entries = stats["flows"].as_u64().unwrap();
        assert!(
            entries >= all["all"].as_u64().unwrap() && entries <= stats["flows_opened"].as_u64().unwrap(),
            "{engine}"
        );
        opened.push(stats["flows_opened"].clone());
        let mut keys: Vec<String> =
            all["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
        keys.sort_unstable();
        assert!(all["fit"] == all["all"] && all["all"] == keys.len(), "{engine}");
        // Filters only look at what the key says.
        let tcp = run.until("flows --top 0 --where tcp", |_| true);
        let with_tcp = keys.iter().filter(|key| key.ends_with(" tcp")).count();
        assert!(tcp["fit"] == with_tcp && with_tcp > 0 && with_tcp < keys.len(), "{engine}: {tcp}");
        assert_eq!(tcp["rows"].as_array().unwrap().len(), 0, "{engine}");
        seen.push(keys);
        let (code, error) = folder.fails("ctl --control run.sock flows --where nothing");
        assert!(code == 2 && error.contains("`nothing`"), "{engine}: {error}");
        run.end();
    }
    assert!(!seen[0].is_empty() && seen.iter().all(|keys| *keys == seen[0]), "the same flows under every engine");
    assert!(opened.iter().all(|one| *one == opened[0]), "each flow is counted once: {opened:?}");
}

/// Packets of a filter, with what became of them, and the state of their flows.
#[test]
fn packets_are_traced_and_explained() {
    let folder = Folder::new();
    folder.stdout("run conntrack --in demo.pcap.zst --packets 9000 --out in.pcap");
    let capture = folder.bytes("in.pcap");
    let ends = ends(&capture);
    for engine in ["--engine sequential", "--engine rss --cores 2"] {
        let mut run = Run::begin(&folder, &format!("conntrack {engine}"));
        // The header alone: the run waits for packets.
        run.write(&capture[..ends[0]]);
        run.until("stats", |_| true);
        let ask = |question: &str| {
            let mut command = folder.command(&format!("ctl --control run.sock --json {question}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut asking = [ask("trace tcp --packets 5")];
        let mut at = 0;
        let mut go_on = |run: &mut Run<'_>, child: &mut Child| {
            // The packets come until somebody has seen enough of them.
            while child.try_wait().unwrap().is_none() {
                assert!(at + 20 < ends.len(), "{engine}: nobody sees the packets");
                run.write(&capture[ends[at]..ends[at + 20]]);
                at += 20;
                thread::sleep(Duration::from_millis(20));
            }
        };
        go_on(&mut run, &mut asking[0]);
        let [child] = asking;
        let told = child.wait_with_output().unwrap();
        assert!(told.status.success(), "{engine}: {}", String::from_utf8_lossy(&told.stderr));
        let lines: Vec<Value> =
            told.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(lines.len(), 5, "{engine}");
        let numbers: Vec<u64> = lines.iter().map(|line| line["number"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted(), "{engine}: {numbers:?}");
        for line in &lines {
            assert!(line["parsed"].as_str().unwrap().contains(" tcp;"), "{engine}: {line}");
            assert!(line["sent_by"].as_array().unwrap().is_empty() == line["reason"].is_string(), "{engine}: {line}");
        }
        let mut child = ask("explain tcp");
        go_on(&mut run, &mut child);
        let told: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        let flows = told["flows"].as_array().unwrap();
        assert!(flows.len() <= 1, "{engine}: a packet has one flow here: {told}");
        for flow in flows {
            let key = flow["key"].as_str().unwrap();
            assert!(key.ends_with(" tcp") && !flow["state"].as_str().unwrap().is_empty(), "{engine}: {told}");
        }
        let (code, error) = folder.fails("ctl --control run.sock trace nothing");
        assert!(code == 2 && error.contains("`nothing`"), "{engine}: {error}");
        run.end();
    }
}

#[test]
fn a_run_ends_when_it_is_told_to() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 1000 --flows 50 --out in.pcap");
    let mut run = Run::begin(&folder, "conntrack");
    run.write(&folder.bytes("in.pcap"));
    run.until("stats", |stats| sum(stats, "received") == 1_000);
    let told = folder.stdout("ctl --control run.sock stop");
    assert!(told.contains("ends"), "{told}");
    // Its input is still open.
    let input = run.child.stdin.take();
    assert_eq!(run.child.wait().unwrap().code(), Some(130));
    drop(input);
    assert!(!folder.path("run.sock").exists());
}

/// A second run doesn't take the first one's socket, nor a file's place.
#[test]
fn a_socket_belongs_to_one_run() {
    let folder = Folder::new();
    folder.stdout("synth --profile university-dc --packets 1000 --flows 50 --out in.pcap");
    let mut run = Run::begin(&folder, "conntrack");
    run.write(&folder.bytes("in.pcap"));
    run.until("stats", |_| true);
    let (code, error) = folder.fails("run conntrack --in demo.pcap.zst --control=run.sock");
    assert!(code == 2 && error.contains("another run listens there"), "{error}");
    let (code, error) = folder.fails("run conntrack --in demo.pcap.zst --control=demo.pcap.zst");
    assert!(code == 2 && error.contains("a file that is no socket"), "{error}");
    run.end();
}
