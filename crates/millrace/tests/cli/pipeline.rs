//! `--engine pipeline`: its output, its options and what it refuses.

use super::folder::Folder;

#[test]
fn a_pipeline_writes_what_sequential_writes() {
    let folder = Folder::new();
    for function in ["conntrack", "app-classifier", "stream-match --set patterns=[\"HTTP/1\"]"] {
        let line = format!("run {function} --in demo.pcap.zst --seed 1");
        folder.stdout(&format!("{line} --out sequential.pcap"));
        for cores in 1..=5 {
            let run = folder.json(&format!("{line} --engine pipeline --cores {cores} --out pipeline.pcap --json"));
            assert!(folder.bytes("pipeline.pcap") == folder.bytes("sequential.pcap"), "{function} on {cores} cores");
            let by_core = run["by_core"].as_array().unwrap();
            let received: Vec<u64> = by_core.iter().map(|core| core["received"].as_u64().unwrap()).collect();
            assert_eq!(received.iter().sum::<u64>(), run["packets"]["received"].as_u64().unwrap(), "{function}");
            assert!((received[0] == 0) == (cores > 1), "the first stage decides nothing: {received:?}");
            assert!(received[1..].iter().all(|packets| *packets > 0), "{function}: {received:?}");
        }
    }
}

#[test]
fn stages_and_ways_have_to_fit_the_cores() {
    let folder = Folder::new();
    let run = "run conntrack --in demo.pcap.zst --engine pipeline";
    for line in [
        format!("{run} --cores 3 --stages 2 --ways 2"),
        format!("{run} --cores 2 --ways 1"),
        format!("{run} --cores 4 --stages 2"),
        run.to_owned(),
    ] {
        folder.stdout(&line);
    }
    for (line, hint) in [
        (format!("{run} --cores 3 --ways 3"), "3 ways need --cores 4, as one more core reads and steers"),
        (format!("{run} --ways 1"), "1 way needs --cores 2"),
        (format!("{run} --cores 3 --stages 3"), "a pipeline has 2 stages, not 3"),
        (format!("{run} --stages 2"), "2 stages need --cores 2 or more"),
        (format!("{run} --cores 3 --ways 0"), "at least 1"),
        ("run conntrack --in demo.pcap.zst --engine rss --cores 3 --ways 2".to_owned(), "--ways is for pipeline"),
        ("run conntrack --in demo.pcap.zst --stages 2".to_owned(), "--stages is for pipeline"),
        ("run nat --in demo.pcap.zst --engine pipeline --cores 3".to_owned(), "pipeline can't run nat on 3 cores"),
        (
            "bench conntrack --in demo.pcap.zst --engines pipeline --cores 2".to_owned(),
            "pipeline on 2 cores isn't measured from memory",
        ),
    ] {
        let (code, _, error) = folder.run(&line);
        assert!(code == 2 && error.contains(hint), "{line}: {code}: {error}");
    }
}

#[test]
fn a_pipeline_is_verified() {
    let folder = Folder::new();
    let text = folder.stdout("verify conntrack --in demo.pcap.zst --engines pipeline --cores 1-4 --seeds 3");
    assert!(text.contains("pipeline") && text.contains("equal: identical per packet set"), "{text}");
}
