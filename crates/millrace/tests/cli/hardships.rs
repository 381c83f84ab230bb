//! What befalls a run on live interfaces: reloads without end, a full disk, a host that is gone, a process that stands still. The run goes on,
//! says what it lacks, and accounts for every packet.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use daemon::{Reply, Request};
use rustix::process::{Pid, Signal, kill_process};
use testkit::netns::{Namespace, Wire, command};
use testkit::row::{eventually, numbered};

use crate::counters::{Books, hold_accounts};
use crate::folder::Folder;
use crate::live::{LONG, Row, carry, datagrams_while, sum};

/// Another configuration a thousand times, while datagrams flow: each comes through once, in order.
#[test]
fn a_thousand_reloads_lose_no_packet() {
    const RELOADS: usize = 1_000;
    let Some(row) = Row::new("kr") else { return };
    let folder = Folder::empty();
    let inside = "inside = [\"10.9.0.1/32\"]\n";
    fs::write(folder.path("fw.toml"), inside).expect("it is ours");
    let run = row.run(&folder, "firewall --config fw.toml --engine rss --cores 2");
    let number = datagrams_while(&row, "reloads", || {
        let socket = folder.path("wall.sock");
        for reload in 0..RELOADS {
            // Each of them has other rules than the one before.
            let text = format!("{inside}allow = [{{ proto = \"tcp\", port = {} }}]\n", 1 + reload);
            let request = Request::Reload { name: "fw.toml".to_owned(), text };
            let reply = daemon::ask(&socket, &request).expect("it answers");
            assert!(matches!(&reply, Reply::Done(told) if told.contains("get the new configuration")), "{reply:?}");
        }
    });
    let summary = run.stop();
    eprintln!("{RELOADS} reloads meanwhile {number} datagrams");
    assert!(number >= 1_000, "{number} datagrams are no load");
    hold_accounts(&summary, "reloads");
    assert_eq!(summary["packets"]["dropped"], 0, "{summary}");
    assert!(summary["packets"]["forwarded"].as_u64() >= Some(number), "{summary}");
}

/// A disk that is too small for the flows and for dropped packets: that is told, nothing is left that looks whole, and packets flow on.
#[test]
fn a_full_disk_costs_no_packet() {
    let Some(row) = Row::new("kd") else { return };
    let folder = Folder::empty();
    let disk = Disk::mount(&folder, "full", "8k");
    let options = "--dropped full/drops.pcapng --snapshot full/at-end";
    let run = row.run(&folder, &format!("firewall --set inside=[\"10.9.0.1/32\"] {options}"));
    // Some hundred flows from inside, and many long packets from outside that are dropped.
    let wires = row.wires();
    for number in 0..400 {
        let mut frame = numbered(0, number, 100);
        frame[34..36].copy_from_slice(&(10_000 + number as u16).to_be_bytes());
        wires[0].send(&frame).expect("the wire takes it");
        let mut frame = numbered(1, number, 1_400);
        frame[34..36].copy_from_slice(&(30_000 + number as u16).to_be_bytes());
        wires[1].send(&frame).expect("the wire takes it");
        if number % 40 == 39 {
            eventually("they are received", || sum(&run.ask("stats"), "received") >= 2 * (number + 1));
        }
    }
    let (code, error) = folder.fails("ctl --control wall.sock snapshot full/flows");
    assert!(code == 3 && error.contains("full/flows") && error.contains("No space left"), "{code}: {error}");
    assert!(!disk.has("flows"), "{:?}", disk.names());
    fs::write(folder.path("notes"), "to keep").expect("it is ours");
    let (code, error) = folder.fails("ctl --control wall.sock snapshot notes");
    assert!(code == 3 && error.contains("this file is no snapshot"), "{code}: {error}");
    assert_eq!(folder.bytes("notes"), b"to keep");
    folder.stdout("ctl --control wall.sock snapshot flows");
    assert!(folder.bytes("flows").len() > 8 << 10, "it is longer than the disk");
    let mut number = 0;
    eventually("it is told that dropped packets can't be written", || {
        wires[1].send(&numbered(1, number, 1_400)).expect("the wire takes it");
        number += 1;
        run.said().contains("--dropped ends here: full/drops.pcapng")
    });
    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("the run goes on");
    let (code, summary, said) = run.end();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("error: --dropped: full/drops.pcapng"), "{said}");
    assert!(said.contains("full/at-end: can't be written") && said.contains("No space left"), "{said}");
    assert!(disk.names().is_empty(), "{:?}", disk.names());
    hold_accounts(&summary, "a full disk");
    assert!(summary["packets"]["dropped"].as_u64() >= Some(400), "{summary}");
}

/// The outside host goes with its namespace, and the wall's interface with it. Once another host is there, hosts talk again.
#[test]
fn a_host_that_is_gone_may_be_replaced() {
    let Some(mut row) = Row::new("kp") else { return };
    let folder = Folder::empty();
    for (at, engine) in ["--engine sequential", "--engine rss --cores 2"].into_iter().enumerate() {
        let run = row.run(&folder, &format!("conntrack {engine}"));
        let books = Books::open(&row, &run);
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        row.outside = Namespace::new(&format!("kp-o{at}")).expect("root may");
        let outside = |row: &Row| row.wall.ip(&["link", "show", "dev", "outside0"]);
        eventually("the interface is gone", || outside(&row).is_err());
        // What inside sends now has nowhere to go. It is received and counted all the same.
        eventually("the run says so", || run.said().contains("there is no interface outside0"));
        let before = sum(&run.ask("stats"), "received");
        let wire = row.inside.enter(|| Wire::open("h0")).expect("the end is there");
        (0..50).for_each(|number| wire.send(&numbered(0, number, 100)).expect("the wire takes it"));
        eventually("inside is still served", || sum(&run.ask("stats"), "received") >= before + 50);
        row.wall.lay_wire("outside0", &row.outside, "h1", 1500).expect("the wire is laid");
        row.outside.ip(&["addr", "add", "10.9.0.2/24", "dev", "h1"]).expect("the end is there");
        eventually("the run takes the interface up", || outside(&row).is_ok_and(|shown| shown.contains("xdp")));
        // The host has another Ethernet address.
        row.inside.ip(&["neigh", "flush", "dev", "h0"]).expect("the end is there");
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        books.hold_inside(&row, &run, engine);
        let summary = run.stop();
        assert!(summary["sent"]["lost"].as_u64() >= Some(50), "{engine}: {summary}");
        hold_accounts(&summary, engine);
    }
}

/// The whole process stands still, and with it every queue: rings and frames run out, and what is lost is counted by the interfaces and by
/// us alike. Then packets flow again.
#[test]
fn a_run_that_stood_still_accounts_for_what_it_missed() {
    const MISSED: u64 = 6_000;
    let Some(row) = Row::new("ks") else { return };
    let folder = Folder::empty();
    for engine in ["--engine sequential", "--engine rss --cores 2"] {
        let run = row.run(&folder, &format!("conntrack {engine}"));
        let books = Books::open(&row, &run);
        let id = Pid::from_raw(run.id() as i32).expect("not 0");
        let wires = row.wires();
        kill_process(id, Signal::STOP).expect("it is ours");
        eventually("it stands still", || stands_still(run.id()));
        (0..MISSED).for_each(|number| wires[0].send(&numbered(0, number, 200)).expect("the wire takes it"));
        kill_process(id, Signal::CONT).expect("it is ours");
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        books.hold_all(&row, &run, engine);
        let summary = run.stop();
        hold_accounts(&summary, engine);
        let lost = summary["lost"]["ring_full"].as_u64().expect("a number");
        assert!(lost > MISSED / 2, "{engine}: {lost} of {MISSED} were lost: {summary}");
        assert_eq!(summary["sent"]["lost"], 0, "{engine}: {summary}");
    }
}

/// True if all threads of a process are stopped.
fn stands_still(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.expect("a thread").path().join("stat")).unwrap_or_default();
        // The state stands behind the name in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// A small file system in a folder. It is unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Folder, name: &str, size: &str) -> Self {
        let path = folder.path(name);
        fs::create_dir(&path).expect("it is ours");
        let (size, text) = (format!("size={size}"), path.to_str().expect("it is text"));
        command("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", text]).expect("root may");
        Self(path)
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn names(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(&self.0).expect("it is mounted");
        names.map(|file| file.expect("it can be read").path()).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        let _ = command("umount", &["--lazy", path.to_str().expect("it is text")]);
    }
}
