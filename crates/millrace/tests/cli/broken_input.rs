//! Broken input and output: a clear error, the right exit code, and what was written is valid or absent.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use millrace::packet::{LinkType, Nanos, Seq};
use millrace::port::pcap::{Container, Reader, Writer};
use millrace::port::{Batch, Fate, Packet, Received};
use millrace::testkit::Build;
use rustix::process::{Pid, Signal, kill_process};

use super::folder::{ENGINES, Folder};

/// The exit code, and all that was said.
fn run(folder: &Folder, line: &str) -> (i32, String) {
    let (code, out, error) = folder.run(line);
    (code, String::from_utf8_lossy(&out).into_owned() + &error)
}

/// A folder with a capture `good.pcap` of so many UDP packets.
fn folder(packets: u64) -> Folder {
    let folder = Folder::empty();
    write(&folder.path("good.pcap"), packets, LinkType::Ethernet);
    folder
}

fn write(path: &Path, packets: u64, link: LinkType) {
    write_changed(path, packets, link, |_| {});
}

/// Writes frames that `change` has changed, each as it left the one ahead.
fn write_changed(path: &Path, packets: u64, link: LinkType, mut change: impl FnMut(&mut [u8])) {
    let mut frame = frame_of_udp();
    let mut writer = Writer::create(path, Some(Container::Pcap), None).unwrap();
    for number in 0..packets {
        change(&mut frame);
        let packet = Packet {
            seq: Seq(number),
            time: Nanos::from_micros(number),
            offset: 0,
            len: frame.len() as u32,
            wire_len: frame.len() as u32,
            interface: 0,
            link,
            bucket: 0,
            fate: Fate::Pending,
        };
        writer.write(&packet, &frame).unwrap();
    }
    writer.finish().unwrap();
}

fn frame_of_udp() -> Vec<u8> {
    Build::udp("192.0.2.1:1000", "192.0.2.2:2000").payload(100).bytes()
}

/// How many packets a capture holds, read to its proper end.
fn packets(path: &Path) -> usize {
    let mut reader = Reader::open(path).unwrap();
    let mut batch = Batch::default();
    let mut count = 0;
    while reader.read(&mut batch).unwrap() != Received::End {
        count += batch.len();
    }
    count
}

#[test]
fn what_is_no_capture_is_told() {
    let folder = folder(1);
    let at = |name: &str| folder.path(name);
    fs::write(at("text.txt"), "this is a text\n").unwrap();
    fs::write(at("empty.pcap"), "").unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("header.pcap"), &fs::read(at("good.pcap")).unwrap()[..10]).unwrap();
    for (line, words) in [
        ("run ddos --in missing.pcap --out out.pcap", "missing.pcap: can't be opened"),
        ("run ddos --in text.txt --out out.pcap", "not a capture"),
        ("run ddos --in empty.pcap --out out.pcap", "empty"),
        ("run ddos --in folder --out out.pcap", "folder: no captures in this folder"),
        ("inspect missing.pcap", "missing.pcap"),
        ("inspect text.txt", "text"),
        ("verify ddos --in missing.pcap", "missing.pcap"),
        ("bench ddos --in text.txt", "not a capture"),
        ("profile nat --in empty.pcap", "empty.pcap: is empty"),
        ("profile nat --in folder", "folder: no captures in this folder"),
        ("verify ddos --in -", "error: standard input: is empty"),
        ("run ddos --in header.pcap", "ends 10 bytes into its header; it has no packet"),
    ] {
        let (code, error) = run(&folder, line);
        assert_eq!(code, 3, "{line}: {error}");
        assert!(error.contains(words), "{line}: {error}");
        assert_eq!(error.matches("No such file").count().max(1), 1, "said once: {error}");
        assert!(!at("out.pcap").exists(), "{line}");
    }
}

#[test]
fn a_capture_cut_in_a_record_gives_what_came_before() {
    let folder = folder(100);
    let whole = fs::read(folder.path("good.pcap")).unwrap();
    fs::write(folder.path("cut.pcap"), &whole[..whole.len() - 50]).unwrap();
    for engine in ENGINES {
        let line = format!("run ddos --in cut.pcap --out out.pcap {engine}");
        let (code, error) = run(&folder, &line);
        assert_eq!(code, 3, "{error}");
        assert!(error.contains("ends") && error.contains("packet 100") && error.contains("99 packets"), "{error}");
        assert_eq!(packets(&folder.path("out.pcap")), 99);
        assert!(
            error.contains("\n  out.pcap is valid, and has only what comes of the packets before that place\n"),
            "{error}"
        );
    }
    let (_, error) = run(&folder, "run ddos --in cut.pcap --out out.pcap --dropped d.pcapng --flows f.csv");
    assert!(error.contains("  out.pcap, d.pcapng, f.csv are valid, and have only"), "{error}");
    let (code, error) = run(&folder, "sequence --function ddos --in cut.pcap --out seq.pcap --cores 2");
    assert!(code == 3 && error.contains("\n  seq.pcap is valid, and has only"), "{error}");
    // An output that fails is not there, and isn't said to be.
    let (code, error) = run(&folder, "run ddos --in good.pcap --out /dev/full");
    assert!(code == 3 && !error.contains("is valid"), "{error}");
    let (code, error) = run(&folder, "inspect cut.pcap");
    assert!(code == 3 && error.contains("ends"), "{error}");
    // What would mean something else over a part of the traffic does nothing, and says how to have the part.
    for command in ["verify ddos --seeds 1 --no-threads", "profile nat --rounds 1 --round-packets 1", "tables advise"] {
        let (code, error) = run(&folder, &format!("{command} --in cut.pcap"));
        let words = "(at byte 15666, packet 100); --packets 99 reads only the packets before that\n";
        assert!(code == 3 && error.starts_with("error: cut.pcap: ends ") && error.ends_with(words), "{error}");
    }
    let (code, error) =
        run(&folder, "verify ddos --seeds 1 --no-threads --engines sequential,rss --in cut.pcap --packets 99");
    assert_eq!(code, 0, "{error}");
    // One that looks ahead runs all the same.
    let (code, error) = run(&folder, "run ddos --in cut.pcap --engine auto --out out.pcap");
    assert!(code == 3 && error.contains("99 packets") && error.contains("ends"), "{error}");
    // Compressed, the same.
    fs::write(folder.path("cut.pcap.zst"), &millrace::DEMO_CAPTURE[..millrace::DEMO_CAPTURE.len() / 2]).unwrap();
    let (code, error) = run(&folder, "run ddos --in cut.pcap.zst --out out.pcap");
    assert!(code == 3 && error.contains("Zstandard"), "{error}");
    assert!(packets(&folder.path("out.pcap")) > 1_000);
}

#[test]
fn short_snaps_empty_captures_and_unknown_links_are_no_errors() {
    let folder = folder(0);
    let (code, error) = run(&folder, "run conntrack --in good.pcap --out out.pcap");
    assert!(code == 0 && error.contains("0 packets"), "{error}");
    assert_eq!(packets(&folder.path("out.pcap")), 0);
    assert!(error.contains("\ngood.pcap has no packets\n"), "{error}");
    assert_eq!(run(&folder, "inspect good.pcap").0, 0);
    // Nothing is no error either for what looks at each packet.
    fs::write(folder.path("rules.v4"), "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n").unwrap();
    for line in ["rules explain rules.v4 --in good.pcap", "rules diff rules.v4 rules.v4 --in good.pcap"] {
        let (code, error) = run(&folder, line);
        assert!(code == 0 && error.contains("good.pcap has no packets\n"), "{line}: {code} {error}");
    }
    let (code, error) = run(&folder, "rules explain rules.v4 --in good.pcap --packet 1");
    assert!(code == 2 && error.contains("good.pcap has 0 packets"), "{error}");
    // There is nothing to verify or to time.
    assert_eq!(run(&folder, "verify ddos --in good.pcap").0, 3);
    assert_eq!(run(&folder, "bench ddos --in good.pcap").0, 3);

    write(&folder.path("strange.pcap"), 10, LinkType::Other(147));
    let (code, error) = run(&folder, "run ddos --in strange.pcap --out out.pcap");
    assert_eq!(code, 0, "{error}");
    assert_eq!(packets(&folder.path("out.pcap")), 10, "they pass unread");
    assert!(error.contains("10 packets are of an unsupported link type"), "{error}");
    write(&folder.path("plain.pcap"), 10, LinkType::Ethernet);
    assert!(!run(&folder, "run ddos --in plain.pcap").1.contains("not read"));
    let seen = folder.command("inspect strange.pcap").output().unwrap();
    let seen = String::from_utf8(seen.stdout).unwrap();
    assert!(seen.contains("no flows: no packet has addresses"), "{seen}");
    assert!(seen.contains("10 packets are of an unsupported link type, link type 147; what"), "{seen}");
    write(&folder.path("radio.pcap"), 10, LinkType::Other(127));
    for line in ["run ddos --in radio.pcap", "inspect radio.pcap"] {
        let seen = folder.command(line).output().unwrap();
        let seen = String::from_utf8([seen.stdout, seen.stderr].concat()).unwrap();
        let words = "10 packets are of an unsupported link type, IEEE 802.11 with radiotap header (link type 127); ";
        assert_eq!(seen.matches(words).count(), 1, "{line}: {seen}");
    }
    assert!(
        !String::from_utf8(folder.command("inspect plain.pcap").output().unwrap().stdout).unwrap().contains("not read")
    );

    let frame = frame_of_udp();
    let path = folder.path("short.pcap");
    let mut writer = Writer::create(&path, None, None).unwrap();
    for len in 0..frame.len() {
        let packet = Packet {
            seq: Seq(len as u64),
            time: Nanos::from_secs(len as u64),
            offset: 0,
            len: len as u32,
            wire_len: frame.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        writer.write(&packet, &frame[..len]).unwrap();
    }
    writer.finish().unwrap();
    let (code, error) = run(&folder, "run conntrack --in short.pcap");
    assert_eq!(code, 0, "{error}");
    for reason in ["link-truncated", "ip-truncated", "transport-truncated"] {
        assert!(error.contains(reason), "{reason} in {error}");
    }
}

#[test]
fn the_input_is_never_written_over() {
    let folder = folder(10);
    let good = folder.path("good.pcap");
    symlink(&good, folder.path("soft.pcap")).unwrap();
    fs::hard_link(&good, folder.path("hard.pcap")).unwrap();
    let before = fs::read(&good).unwrap();
    for output in ["good.pcap", "./good.pcap", "soft.pcap", "hard.pcap"] {
        let (code, error) = run(&folder, &format!("run ddos --in good.pcap --out {output}"));
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("is also the input"), "{error}");
        assert!(fs::read(&good).unwrap() == before);
    }
    let output = folder.command("run ddos --in - --out good.pcap").stdin(File::open(&good).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(fs::read(&good).unwrap() == before);
}

#[test]
fn outputs_that_cannot_be_written_leave_nothing_behind() {
    let folder = folder(20_000);
    for (output, words) in [("none/out.pcap", "can't be created"), ("/dev/full", "disk is full"), (".", "directory")] {
        for engine in ENGINES {
            let line = format!("run ddos --in good.pcap --out {output} {engine}");
            let (code, error) = run(&folder, &line);
            assert_eq!(code, 3, "{line}: {error}");
            assert!(error.contains(words), "{line}: {error}");
        }
        let (code, error) = run(&folder, &format!("synth --profile uniform --flows 10 --packets 20k --out {output}"));
        assert!(code == 3 && error.contains(words), "{error}");
    }
    let locked = folder.path("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    // Root may write anywhere.
    if File::create(locked.join("probe")).is_err() {
        assert_eq!(run(&folder, "run ddos --in good.pcap --out locked/out.pcap").0, 3);
    }
    let left: Vec<PathBuf> = fs::read_dir(folder.root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "nothing half-written lies about: {left:?}");
}

#[test]
fn a_reader_that_goes_is_a_quiet_end() {
    let folder = folder(20_000);
    let runs = ENGINES.map(|engine| format!("run ddos --in good.pcap --out - {engine}"));
    for line in runs.iter().map(String::as_str).chain(["synth --profile uniform --flows 10 --packets 1M --out -"]) {
        let mut child = folder.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 24];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
    for line in ["functions --json", "functions", "--help", "completions bash", "inspect good.pcap"] {
        let mut child = folder.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let code = output.status.code().expect("no signal ends it");
        assert!(code == 141 || code == 0, "{line}: {code}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{line}");
    }
}

/// Of a capture in the classic format.
const FILE_HEADER_BYTES: usize = 24;

/// Interrupts a run whose input goes on for as long as somebody reads it.
#[test]
fn an_interrupt_leaves_a_valid_output_and_full_statistics() {
    for engine in ENGINES {
        let folder = folder(50_000);
        let capture = fs::read(folder.path("good.pcap")).unwrap();
        let line = format!("run ddos --in - --out out.pcap {engine} --json");
        let mut child: Child =
            folder.command(&line).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let (first, second) = capture.split_at(capture.len() / 2);
        input.write_all(first).unwrap();
        interrupt(&child);
        let mut given = input.write_all(second);
        let since = Instant::now();
        while given.is_ok() {
            assert!(since.elapsed() < Duration::from_secs(60), "{line}: nothing stops it");
            given = input.write_all(&capture[FILE_HEADER_BYTES..]);
        }
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["interrupted"], true);
        let received = run["packets"]["received"].as_u64().unwrap();
        assert_eq!(packets(&folder.path("out.pcap")) as u64, received, "ddos drops none of them");
    }
}

/// A run whose input has nothing to say for now, and isn't over.
#[test]
fn an_interrupt_ends_a_wait_for_an_idle_pipe() {
    let runs = ENGINES.map(|engine| (format!("run ddos --in - --out out.pcap {engine} --json"), true));
    for (line, has_output) in runs.into_iter().chain([("inspect - --json".to_owned(), false)]) {
        let line = line.as_str();
        let folder = folder(50_000);
        let capture = fs::read(folder.path("good.pcap")).unwrap();
        let output = interrupted(&folder, line, &capture[..capture.len() / 2]);
        assert_eq!(output.status.code(), Some(130), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        if has_output {
            assert_eq!(reported["interrupted"], true);
            let received = reported["packets"]["received"].as_u64().unwrap();
            assert!((1..=25_000).contains(&received), "{received}");
            assert_eq!(packets(&folder.path("out.pcap")) as u64, received, "ddos drops none of them");
        }
    }
}

/// The same where a thread waits for the pipe, to decode what comes.
#[test]
fn an_interrupt_ends_a_wait_for_an_idle_compressed_pipe() {
    let folder = Folder::empty();
    let mut random = 1u32;
    let payload = |frame: &mut [u8]| {
        for byte in &mut frame[42..] {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (random >> 24) as u8;
        }
    };
    // Their bytes don't compress, so that half of them is more than is decoded ahead of the packets.
    write_changed(&folder.path("good.pcap.zst"), 50_000, LinkType::Ethernet, payload);
    let capture = fs::read(folder.path("good.pcap.zst")).unwrap();
    assert!(capture.len() > 1 << 19);
    for line in ["run ddos --in - --json", "run ddos --in - --cores 2 --json"] {
        let output = interrupted(&folder, line, &capture[..capture.len() / 2]);
        assert_eq!(output.status.code(), Some(130), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(reported["interrupted"], true);
        let received = reported["packets"]["received"].as_u64().unwrap();
        assert!((1..50_000).contains(&received), "{received}");
    }
}

/// Work whose figures mean nothing before its end says what was done, and gives no figures.
#[test]
fn an_interrupt_tells_how_far_the_work_was() {
    let folder = folder(50_000);
    let capture = fs::read(folder.path("good.pcap")).unwrap();
    for (line, words) in [
        ("verify ddos --in -", "interrupted: nothing was verified; the traffic was still being read\n"),
        ("bench ddos --in -", "interrupted: nothing was timed\n"),
        ("profile nat --in - --json", "interrupted: nothing was timed\n"),
    ] {
        let output = interrupted(&folder, line, &capture[..capture.len() / 2]);
        assert_eq!(output.status.code(), Some(130), "{line}");
        assert_eq!((output.stdout.len(), String::from_utf8(output.stderr).unwrap().as_str()), (0, words), "{line}");
    }
    let child = folder.command("demo").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let heeds = || {
        fs::read_to_string(&status).unwrap().lines().any(|line| {
            let mask = line.strip_prefix("SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask >> 1 & 1 == 1)
        })
    };
    while !heeds() {
        std::thread::yield_now();
    }
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(130) && output.stdout.is_empty(), "{error}");
    assert!(error.lines().filter(|line| line.starts_with("interrupted: ")).count() == 1, "{error}");
    assert!(error.lines().all(|line| line.starts_with("interrupted: ") || line.starts_with("demo: ")), "{error}");
}

/// What becomes of a command that is interrupted once it has taken in more than a pipe holds, and is not told the end.
fn interrupted(folder: &Folder, line: &str, input: &[u8]) -> std::process::Output {
    let mut child: Child =
        folder.command(line).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input).unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(pipe);
    output
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
}
