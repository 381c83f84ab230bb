//! Flows that outlive a run: `--snapshot`, `--restore` and `millrace ctl snapshot`.

use std::fs;

use super::folder::{ENGINES, Folder};
use super::waiting::ends;

/// Functions whose flows outlive a run, each with settings under which flows decide.
const FUNCTIONS: [&str; 7] = [
    "conntrack",
    "firewall",
    "policer --set rate=20000 --set burst=3000",
    "ddos --set threshold=20",
    "syn-limit --set rate=1 --set burst=2",
    "heavy-hitter",
    "port-knock",
];

/// Ways to run that decide packet by packet as one core does. Cores that share a table decide in another order.
fn ways() -> Vec<&'static str> {
    let others = ENGINES.into_iter().filter(|engine| !engine.starts_with("--engine shared"));
    others.chain(["--engine shared --cores 1"]).collect()
}

/// The packets of a capture without its header.
fn packets(folder: &Folder, name: &str) -> Vec<u8> {
    folder.bytes(name)[24..].to_vec()
}

/// A run over the first half of a capture and one over the second half decide as one run over all, whichever engines they have.
#[test]
fn a_second_run_goes_on_where_the_first_ended() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 6000 --flows 300 --seed 5 --out in.pcap");
    let capture = folder.bytes("in.pcap");
    let half = ends(&capture)[3000];
    fs::write(folder.path("1.pcap"), &capture[..half]).unwrap();
    fs::write(folder.path("2.pcap"), [&capture[..24], &capture[half..]].concat()).unwrap();
    let (mut turn, ways) = (0, ways());
    for function in FUNCTIONS.map(|function| format!("{function} --set flows=4096 --set flows_v6=64")) {
        folder.stdout(&format!("run {function} --in in.pcap --out all.pcap"));
        let all = packets(&folder, "all.pcap");
        folder.stdout(&format!("run {function} --in 1.pcap --out 1.out.pcap"));
        folder.stdout(&format!("run {function} --in 2.pcap --out 2.out.pcap"));
        let anew = [packets(&folder, "1.out.pcap"), packets(&folder, "2.out.pcap")].concat();
        for _ in 0..ways.len() {
            let (first, second) = (ways[turn % ways.len()], ways[turn * 3 / 2 % ways.len()]);
            turn += 1;
            let flows = "--snapshot flows.snapshot";
            folder.stdout(&format!("run {function} {first} --in 1.pcap --out 1.out.pcap {flows}"));
            let flows = "--restore flows.snapshot";
            folder.stdout(&format!("run {function} {second} --in 2.pcap --out 2.out.pcap {flows}"));
            let halves = [packets(&folder, "1.out.pcap"), packets(&folder, "2.out.pcap")].concat();
            assert!(halves == all, "{function}: {first}, then {second}");
        }
        // The halves without a snapshot differ where flows decide: otherwise this test would say nothing.
        let decides = ["conntrack", "firewall", "policer", "ddos"];
        let is_one = decides.iter().any(|name| function.starts_with(name));
        assert!(!is_one || anew != all, "{function}: flows decide");
    }
}

#[test]
fn what_is_no_right_snapshot_is_refused() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 500 --flows 50 --out in.pcap");
    folder.stdout("run conntrack --in in.pcap --snapshot flows.snapshot");
    let refused = |line: &str, code: i32, why: &str| {
        let (is, error) = folder.fails(line);
        assert!(is == code && error.contains(why), "{line}: {is} {error}");
    };
    let run = "run conntrack --in in.pcap --restore";
    refused(
        "run firewall --in in.pcap --restore flows.snapshot",
        2,
        "flows.snapshot: the snapshot is of the function conntrack",
    );
    refused(&format!("{run} flows.snapshot --set flows=2000"), 2, "with another configuration");
    refused(&format!("{run} in.pcap"), 3, "in.pcap: this is no snapshot");
    refused(&format!("{run} absent"), 3, "absent: can't be read");
    folder.stdout(&format!("{run} absent --if-exists"));
    let mut damaged = folder.bytes("flows.snapshot");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(folder.path("damaged"), &damaged).unwrap();
    refused(&format!("{run} damaged"), 3, "damaged: the snapshot is damaged");
    // Functions whose packet sets share state have no snapshots, and nothing is left where one was to be.
    refused("run nat --in in.pcap --snapshot n", 2, "nat can't be snapshotted");
    assert!(!folder.path("n").exists());
    // A disk that is full, or a folder that isn't there: the run says so.
    refused("run conntrack --in in.pcap --snapshot absent/flows", 3, "absent/flows: can't be written");
    refused("run conntrack --in in.pcap --snapshot /dev/null", 3, "this is no regular file");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    // A link is followed.
    std::os::unix::fs::symlink("target", folder.path("link")).unwrap();
    fs::write(folder.path("target"), "").unwrap();
    folder.stdout("run conntrack --in in.pcap --snapshot link");
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert!(folder.bytes("target").starts_with(b"MILLSNAP"));
    let names: Vec<_> = fs::read_dir(folder.path(".")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
}
