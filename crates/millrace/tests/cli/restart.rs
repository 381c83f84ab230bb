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

/// Functions whose packet sets share state that outlives a run, too.
const SHARING: [&str; 8] = [
    "nat --set inside=[\"10.0.0.0/8\"] --set sessions=2048 --set mappings=2048 --set ports=5000-5999 --set timeouts.udp=1",
    "load-balancer --config services.toml",
    "rules --rules sharing.rules --set flows=4096",
    "bridge --set ageing=1",
    "anti-ddos --set minimum=40 --set threshold=0.5 --set flows=4096 --set flows_v6=64",
    "asset-monitor --set hosts=64 --set services=32 --set flows=4096 --set flows_v6=64",
    "efsm --program sharing.efsm",
    "efsm --program several.efsm",
];

/// Ways to run these that decide packet by packet as one core does.
const ORDERED: [&str; 6] = [
    "--engine sequential",
    "--engine scr --cores 2",
    "--engine shared --cores 1",
    "--engine scr --cores 3",
    "--engine transactional --cores 1",
    "--engine pipeline --cores 1",
];

/// Ways to run that decide packet by packet as one core does. Cores that share a table decide in another order.
fn ways() -> Vec<&'static str> {
    let others = ENGINES.into_iter().filter(|engine| !engine.starts_with("--engine shared"));
    others.chain(["--engine shared --cores 1"]).collect()
}

/// A program whose contexts are in flows.
const PLAIN: &str = "stage count
  key biflow ip.src ip.dst
  states new=0 busy=1
  on new          : state busy idle 30s; r0 = 1; out across
  on busy r0>=4   : r0 = 0; drop
  on busy         : r0 = r0 + 1; out across
";

/// A program that also has a global register.
const SHARED: &str = "stage count
  key biflow ip.src ip.dst
  global next = 0
  states new=0 busy=1
  on new          : state busy idle 30s; r0 = 1; out across
  on busy next>=4 : next = 0; drop
  on busy         : next = next + 1; out across
";

/// A program with contexts of two keys, some of which exist from the start.
const SEVERAL: &str = "stage senders
  key ip.src
  contexts 4096
  on 0      : state 1 idle 20s; r0 = 1; goto answers
  on 1      : r0 = r0 + 1; goto answers
stage answers
  lookup ip.src ip.proto l4.src
  update ip.dst ip.proto l4.dst
  contexts 4096
  on 0 : state 1 hard 20s; out across
  on 1 : r1 = r1 + 1; state 2 hard 5s; out across
  on 2 : state 1 hard 5s; drop
";

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
    let services = "down_after = 1\nflows = 4096\nflows_v6 = 64\n[[services]]\naddress = \"10.0.0.1:80\"\n\
                    backends = [\"10.0.0.2:80\", \"10.0.0.3:80\"]\n";
    fs::write(folder.path("services.toml"), services).unwrap();
    let rules = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
                 -A FORWARD -m hashlimit --hashlimit-upto 2/second --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-name h \
                 -j ACCEPT\nCOMMIT\n*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 10.9.9.1-10.9.9.4\nCOMMIT\n";
    fs::write(folder.path("sharing.rules"), rules).unwrap();
    let mut turn = 0;
    let plain = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
                 -A FORWARD -p udp -j ACCEPT\n-A FORWARD -p tcp --syn -j ACCEPT\nCOMMIT\n";
    fs::write(folder.path("plain.rules"), plain).unwrap();
    for (name, program) in [("plain", PLAIN), ("sharing", SHARED), ("several", SEVERAL)] {
        fs::write(folder.path(&format!("{name}.efsm")), program).unwrap();
    }
    let others = ["rules --rules plain.rules --set loose=false", "efsm --program plain.efsm"];
    let functions = FUNCTIONS.iter().chain(&others);
    let alone = functions.map(|function| (format!("{function} --set flows=4096 --set flows_v6=64"), ways()));
    let sharing = SHARING.map(|function| (function.to_owned(), ORDERED.to_vec()));
    for (function, ways) in alone.chain(sharing) {
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
        let decides = ["conntrack", "firewall", "policer", "ddos", "nat", "rules", "anti-ddos", "efsm"];
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
    refused(&format!("{run} flows.snapshot --set flows=2000"), 2, "another number of flows");
    refused(&format!("{run} flows.snapshot --set flows=2000"), 2, "Remove the snapshot to begin without flows");
    refused(&format!("{run} in.pcap"), 3, "in.pcap: this is no snapshot");
    refused(&format!("{run} absent"), 3, "absent doesn't exist; add --if-exists");
    folder.stdout(&format!("{run} absent --if-exists"));
    let mut damaged = folder.bytes("flows.snapshot");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(folder.path("damaged"), &damaged).unwrap();
    refused(&format!("{run} damaged"), 3, "damaged: the snapshot is damaged");
    // Some functions have no snapshots, and nothing is left where one was to be.
    refused("run ipsec --in in.pcap --snapshot n", 2, "ipsec can't be snapshotted: its flows have no form");
    refused("run flow-buffer --in in.pcap --snapshot n", 2, "flow-buffer can't be snapshotted: it gathers streams");
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
    // Also where there is nothing yet, over another link into another folder. A circle leads nowhere.
    fs::create_dir(folder.path("state")).unwrap();
    std::os::unix::fs::symlink("state/next", folder.path("first")).unwrap();
    std::os::unix::fs::symlink("flows", folder.path("state/next")).unwrap();
    folder.stdout("run conntrack --in in.pcap --snapshot first");
    assert!(["first", "state/next"].iter().all(|link| fs::symlink_metadata(folder.path(link)).unwrap().is_symlink()));
    assert!(folder.bytes("state/flows").starts_with(b"MILLSNAP"));
    folder.stdout("run conntrack --in in.pcap --restore first");
    std::os::unix::fs::symlink("circle", folder.path("circle")).unwrap();
    refused("run conntrack --in in.pcap --snapshot circle", 3, "it leads over too many links");
    // A snapshot is no stream.
    for line in ["run conntrack --in in.pcap --snapshot -", "run conntrack --in in.pcap --restore -", "ctl snapshot -"]
    {
        refused(line, 2, "a snapshot is no stream; name a file");
    }
    assert!(!folder.path("-").exists());
    let names: Vec<_> = fs::read_dir(folder.path(".")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
}

/// A service whose configuration has changed while it was stopped begins with its flows, and the new configuration decides.
#[test]
fn a_configuration_that_has_changed_meanwhile_takes_over() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 6000 --flows 300 --seed 5 --out in.pcap");
    let capture = folder.bytes("in.pcap");
    let half = ends(&capture)[3000];
    fs::write(folder.path("1.pcap"), &capture[..half]).unwrap();
    fs::write(folder.path("2.pcap"), [&capture[..24], &capture[half..]].concat()).unwrap();
    let forwarded = |line: &str| folder.json(&format!("{line} --json"))["packets"]["forwarded"].as_u64().unwrap();
    // Nobody may begin a connection under the second configuration.
    let nobody = "--set inside=[\"192.0.2.0/32\"]";
    let anew = forwarded(&format!("run firewall {nobody} --in 2.pcap"));
    let first = "run firewall --engine rss --cores 2 --in 1.pcap --snapshot flows";
    folder.stdout(first);
    for engine in ENGINES {
        let restored =
            forwarded(&format!("run firewall {nobody} {engine} --in 2.pcap --restore flows --snapshot more"));
        assert!(restored > anew, "{engine}: {restored} of 3000, and {anew} without flows");
        // The snapshot of that run is of the second configuration.
        let again = forwarded(&format!("run firewall {nobody} --in 2.pcap --restore more"));
        assert!(again > 0, "{engine}");
        // What is refused says why, and what can be done.
        let (code, error) = folder.fails("run firewall --set flows=77 --in 2.pcap --restore more");
        assert!(code == 2 && error.contains("another number of flows") && error.contains("192.0.2.0/32"), "{error}");
    }
    // A rule set goes on with the connections of another one.
    let filter = |rules: &str| format!("*filter\n:FORWARD DROP [0:0]\n{rules}COMMIT\n");
    fs::write(folder.path("open.rules"), filter("-A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT\n"))
        .unwrap();
    fs::write(folder.path("closed.rules"), filter("-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"))
        .unwrap();
    folder.stdout("run rules --rules open.rules --engine rss --cores 2 --in 1.pcap --snapshot connections");
    let anew = forwarded("run rules --rules closed.rules --in 2.pcap");
    let restored = forwarded("run rules --rules closed.rules --engine scr --cores 2 --in 2.pcap --restore connections");
    assert!(restored > 500 && restored > anew, "{restored} of 3000, and {anew} without connections");
    // A program goes on with the contexts of another one, if a reload would let it take over.
    fs::write(folder.path("plain.efsm"), PLAIN).unwrap();
    fs::write(folder.path("most.efsm"), PLAIN.replace("r0>=4", "r0>=1")).unwrap();
    fs::write(folder.path("sharing.efsm"), SHARED).unwrap();
    fs::write(folder.path("quiet.efsm"), SHARED.replace("next = 0; ", "").replace("next = next + 1; ", "")).unwrap();
    folder.stdout("run efsm --program plain.efsm --engine rss --cores 2 --in 1.pcap --snapshot contexts");
    let anew = forwarded("run efsm --program most.efsm --in 2.pcap");
    let restored = forwarded("run efsm --program most.efsm --engine scr --cores 2 --in 2.pcap --restore contexts");
    assert!(restored < anew, "{restored} of 3000, and {anew} without contexts");
    for (other, reason) in [
        (PLAIN.replace("ip.src ip.dst", "ip.src ip.dst ip.proto"), "the stage `count` has other keys"),
        (PLAIN.replace("stage count", "stage other"), "the stage `count` has contexts, and is not in the new program"),
        (SHARED.to_owned(), "the new program has global registers, and the contexts of the running one are in flows"),
    ] {
        fs::write(folder.path("other.efsm"), other).unwrap();
        let (code, error) = folder.fails("run efsm --program other.efsm --in 2.pcap --restore contexts");
        assert!(code == 2 && error.contains(reason) && error.contains("Remove the snapshot"), "{error}");
        assert!(error.contains("on busy r0>=4"), "it names the snapshot's own program: {error}");
    }
    // One that sets no global register goes on with contexts that packet sets share, and hands them on.
    folder.stdout("run efsm --program sharing.efsm --in 1.pcap --snapshot contexts");
    folder
        .stdout("run efsm --program quiet.efsm --engine scr --cores 2 --in 2.pcap --restore contexts --snapshot more");
    let contexts = |line: &str| {
        let end = folder.json(&format!("{line} --set report=\"contexts\" --json"));
        end["report"]["rows"].as_array().unwrap().len()
    };
    let all = contexts("run efsm --program quiet.efsm --in in.pcap");
    fs::write(folder.path("none.pcap"), &capture[..24]).unwrap();
    let handed = contexts("run efsm --program quiet.efsm --engine shared --cores 2 --in none.pcap --restore more");
    assert!(all > 50 && handed >= all, "{handed} of {all} contexts");
    // Mappings stay with their addresses, and new ones get the new address.
    let (one, two) = ("--set external=[\"203.0.113.1\"]", "--set external=[\"203.0.113.2\"]");
    folder.stdout(&format!("run nat {one} --in 1.pcap --snapshot mappings"));
    let has = |pcap: &str, address: [u8; 4]| folder.bytes(pcap).windows(4).any(|bytes| bytes == address);
    folder.stdout(&format!("run nat {two} --engine scr --cores 2 --in 2.pcap --restore mappings --out 2.out.pcap"));
    assert!(has("2.out.pcap", [203, 0, 113, 1]) && has("2.out.pcap", [203, 0, 113, 2]));
    folder.stdout(&format!("run nat {two} --in 2.pcap --out 2.out.pcap"));
    assert!(!has("2.out.pcap", [203, 0, 113, 1]));
}
