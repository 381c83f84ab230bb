//! `--chain`: several functions as one, beside the same functions in commands of their own, one behind another.

use std::fs;

use crate::folder::{ENGINES, Folder};

/// A chain sends what its functions send one behind another, byte for byte.
#[test]
fn a_chain_sends_what_its_functions_send_one_behind_another() {
    let folder = Folder::new();
    fs::write(
        folder.path("chain.toml"),
        "[firewall]\nreject = true\n[policer]\nrate = 50000\nburst = 3000\nicmp_errors = \"quoted\"\n",
    )
    .unwrap();
    folder.stdout("run firewall --set reject=true --in demo.pcap.zst --out first.pcap");
    folder.stdout(
        "run policer --set rate=50000 --set burst=3000 --set icmp_errors=quoted --in first.pcap --out second.pcap",
    );
    // Cores that share all flows decide a flow's packets in an order of their own.
    for engine in ENGINES.iter().filter(|engine| !engine.contains("shared")) {
        folder.stdout(&format!(
            "run --chain firewall,policer --config chain.toml --in demo.pcap.zst --out chain.pcap {engine}"
        ));
        assert!(folder.bytes("chain.pcap") == folder.bytes("second.pcap"), "{engine}");
    }
    // Where functions share state, or packets have other addresses, only engines that share state take the chain.
    folder.stdout("run nat --in demo.pcap.zst --out first.pcap");
    folder.stdout("run conntrack --in first.pcap --out second.pcap");
    folder.stdout("run ddos --set threshold=300 --in second.pcap --out third.pcap");
    let line = "run --chain nat,conntrack,ddos --set ddos.threshold=300 --in demo.pcap.zst --out chain.pcap";
    for engine in ["sequential", "scr --cores 2", "shared --cores 1", "transactional --cores 1"] {
        folder.stdout(&format!("{line} --engine {engine}"));
        assert!(folder.bytes("chain.pcap") == folder.bytes("third.pcap"), "{engine}");
    }
    let (_, refused) = folder.fails(&format!("{line} --engine rss --cores 2"));
    assert!(refused.contains("what ddos keeps by source address"), "{refused}");
}

/// The run says which functions have their flows together; drops, explanations and reports are by function.
#[test]
fn a_chain_is_told_by_function() {
    let folder = Folder::new();
    let line = "run --chain conntrack,policer,nat --set policer.burst=3000 --in demo.pcap.zst";
    let (_, _, told) = folder.run(line);
    assert!(told.contains("chain: one entry for conntrack, by five-tuple, both directions"), "{told}");
    assert!(
        told.contains("chain: an entry of its own for policer: it counts ICMP errors by their own addresses"),
        "{told}"
    );
    let report = folder.json(&format!("{line} --json"));
    let reasons = report["packets"]["drops"].to_string();
    assert!(reasons.contains("\"policer:rate\""), "{report:#}");
    let explained = folder
        .stdout("explain --chain conntrack,policer --set policer.icmp_errors=quoted --in demo.pcap.zst --packet 40");
    assert!(explained.contains("conntrack: ") && explained.contains("policer: Bucket"), "{explained}");
    // Each function's part, also of those that keep their flows elsewhere, as far as the packet comes.
    let nat = "--chain firewall,nat,policer --in demo.pcap.zst --packet";
    let told = (1..200).map(|number| folder.json(&format!("explain {nat} {number} --json"))).find(|told| {
        told["verdict"] == "forwarded" && told["functions"][1]["changes"].as_array().is_some_and(|all| !all.is_empty())
    });
    let told = told.expect("some packet is translated");
    let names: Vec<_> = (0..3).map(|at| told["functions"][at]["function"].as_str().expect("a name")).collect();
    assert_eq!(names, ["firewall", "nat", "policer"]);
    assert_eq!(told["functions"][2]["bytes_sent"], told["bytes_sent"], "the last one's packet is the chain's");
    assert!(told["functions"][2]["state_after"].as_str().is_some_and(|state| state.contains("Bucket")), "{told}");
    let dropped = (1..200).map(|number| folder.json(&format!("explain {nat} {number} --json")));
    let dropped = dropped.into_iter().find(|told| told["verdict"] == "dropped").expect("some packet is dropped");
    let last = dropped["functions"].as_array().and_then(|all| all.last()).expect("there is one");
    let (last, reason) =
        (last["function"].as_str().unwrap_or_default(), dropped["reason"].as_str().unwrap_or_default());
    assert!(reason.strip_prefix(last).is_some_and(|reason| reason.starts_with(':')), "{dropped}");
    let checked = folder.stdout("check --chain conntrack,ddos");
    assert!(checked.contains("an entry of its own for ddos: it needs source address"), "{checked}");
    let page = folder.stdout("functions chain");
    assert!(page.contains("backwards") && page.contains("check --chain"), "{page}");
    // A chain of one function is that function.
    assert!(folder.stdout("run --chain ddos --in demo.pcap.zst").starts_with("ddos under sequential"));
}

/// Flows of a chain outlive a run: the second half of the packets fares as in one run over all.
#[test]
fn the_entries_of_a_chain_outlive_a_run() {
    let folder = Folder::new();
    let chain =
        "--chain conntrack,policer --set policer.icmp_errors=quoted --set policer.burst=3000 --set policer.rate=50000";
    folder.stdout(&format!("run {chain} --in demo.pcap.zst --out whole.pcap"));
    for (part, out) in
        [("--to +8 --snapshot s.millrace", "first.pcap"), ("--from +8 --restore s.millrace", "rest.pcap")]
    {
        folder.stdout(&format!("run {chain} --in demo.pcap.zst {part} --out {out}"));
    }
    let (whole, first, rest) = (folder.bytes("whole.pcap"), folder.bytes("first.pcap"), folder.bytes("rest.pcap"));
    assert!(first.len() > 10_000 && rest.len() > 10_000, "both parts have packets");
    assert!([&first[..], &rest[24..]].concat() == whole, "{} {} {}", whole.len(), first.len(), rest.len());
    folder.stdout(&format!("run {chain} --in demo.pcap.zst --from +8 --out anew.pcap"));
    assert!(folder.bytes("anew.pcap") != rest, "flows decide");
    let (_, other) = folder.fails("run --chain firewall,conntrack --in demo.pcap.zst --restore s.millrace");
    assert!(other.contains("the snapshot is of another function"), "{other}");
}

/// So do flows that a function keeps apart, and what functions share.
#[test]
fn what_the_functions_of_a_chain_share_outlives_a_run() {
    let folder = Folder::new();
    let chain = "--chain firewall,nat,policer --set policer.burst=3000 --set policer.rate=50000";
    for engine in ["--engine sequential", "--engine scr --cores 2", "--engine transactional --cores 1"] {
        folder.stdout(&format!("run {chain} --in demo.pcap.zst --out whole.pcap"));
        for (part, out) in
            [("--to +3 --snapshot s.millrace", "first.pcap"), ("--from +3 --restore s.millrace", "rest.pcap")]
        {
            folder.stdout(&format!("run {chain} --in demo.pcap.zst {part} --out {out} {engine}"));
        }
        let (whole, first, rest) = (folder.bytes("whole.pcap"), folder.bytes("first.pcap"), folder.bytes("rest.pcap"));
        assert!(first.len() > 10_000 && rest.len() > 10_000, "both parts have packets");
        assert!([&first[..], &rest[24..]].concat() == whole, "{engine}");
        folder.stdout(&format!("run {chain} --in demo.pcap.zst --from +3 --out anew.pcap"));
        assert!(folder.bytes("anew.pcap") != rest, "what was kept decides");
    }
}

#[test]
fn slips_in_chains_are_told() {
    let folder = Folder::new();
    for (line, said) in [
        ("run --chain fire,nat --in demo.pcap.zst", "`fire` can't be in a chain; did you mean `firewall`?"),
        ("run --chain firewall,dns-tunnel --in demo.pcap.zst", "`dns-tunnel` can't be in a chain"),
        ("run nat --chain firewall,nat --in demo.pcap.zst", "--chain names all functions"),
        ("run chain --in demo.pcap.zst", "a chain needs `functions`"),
        (
            "run --chain firewall,nat --set policer.rate=5 --in demo.pcap.zst",
            "`policer` is neither a key of chain nor a function in it",
        ),
        ("run --chain firewall, --in demo.pcap.zst", "a name is missing beside a comma"),
        (
            "run --chain firewall,nat --set functions=[\"nat\"] --in demo.pcap.zst",
            "--set functions: --chain names the functions",
        ),
        ("run --chain firewall,nat --set nat.sesions=5 --in demo.pcap.zst", "did you mean `sessions`?"),
        ("run --chain firewall,nat --set firewall=5 --in demo.pcap.zst", "`firewall` must be a table: [firewall]"),
    ] {
        let (code, error) = folder.fails(line);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(error.contains(said), "{line}: {error}");
    }
}
