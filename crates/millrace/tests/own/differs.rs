//! An engine whose outcome differs: `verify` ends with exit code 1, the packet that differs, and the shortest prefix of
//! the capture that shows it.
//!
//! The engines are right, so that the function has to be wrong: it keeps what its packet sets share to itself.

use millrace::port::Trace;
use millrace::port::pcap::Reader;
use millrace::prelude::*;

use super::{demo, millrace};

/// Lets so many packets through in all, whoever sends them, and claims that sources share nothing.
pub(crate) struct Liar;

const ENOUGH: u64 = 100;

impl NetworkFunction for Liar {
    type Meta = Host;
    type Flow = ();
    type Shared<M: Memory> = M::Vector<u64>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "liar",
        summary: "counts all packets together",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["enough"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<u64> {
        memory.vector(1, 0)
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), _: &Host) -> Step<Verdict, M> {
        let seen = cx.shared.read(&mut cx.tx, 0)?;
        cx.shared.write(&mut cx.tx, 0, seen + 1)?;
        Ok(if seen < ENOUGH { Verdict::FORWARD } else { Verdict::Drop(Reason::own(0)) })
    }
}

const VERIFY: &str = "verify liar --engines rss --cores 2 --seeds 3-3 --no-threads";

/// The number in front of a word, thousands set apart.
fn number(text: &str, before: &str) -> usize {
    let (head, _) = text.split_once(before).unwrap_or_else(|| panic!("{before} is missing in {text}"));
    head.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
}

pub(crate) fn a_difference_is_told_and_kept() {
    let folder = demo();
    let output = millrace(&folder, &format!("{VERIFY} --in demo.pcap.zst --packets 2000"));
    let (table, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(table.contains("DIFFERS on 2 cores"), "{table}");
    assert!(error.contains("error: rss on 2 cores differs from sequential, by schedule 3"), "{error}");
    assert!(error.contains("expected drop for the function's reason 0") && error.contains("got Transmit"), "{error}");
    assert!(error.contains("--save-prefix FILE saves them"), "{error}");

    // Shards that count by themselves let a packet more through as soon as there have been enough in all.
    let prefix = number(&error, " packets of the capture show the difference");
    assert!(prefix > ENOUGH as usize && prefix < 2000, "{prefix}");
    assert!(error.contains(&format!("packet {}: expected", prefix - 1)), "{error}");
    let verify = |packets: usize, more: &str| {
        millrace(&folder, &format!("{VERIFY} --in demo.pcap.zst --packets {packets} {more}")).status.code()
    };
    assert_eq!(verify(prefix - 1, ""), Some(0), "one packet fewer shows nothing");
    assert_eq!(verify(prefix, ""), Some(1));

    // What is kept is those packets, and they show it again by the command that is printed.
    assert_eq!(verify(2000, "--save-prefix kept.pcap"), Some(1));
    let load = |name| Trace::load(&mut Reader::open(folder.path().join(name)).unwrap(), usize::MAX).unwrap();
    let (kept, whole) = (load("kept.pcap"), load("demo.pcap.zst"));
    assert_eq!(kept.len(), prefix);
    assert!(kept.iter().zip(whole.iter()).all(|((_, kept), (_, packet))| kept == packet));
    let again = error.lines().find_map(|line| line.trim().strip_prefix("repeat: ")).expect("how to see it again");
    // By the name that this program was called by, not by ours.
    let (called, again) = again.split_once(' ').expect("a program and what it is to do");
    assert!(called.starts_with("own"), "{again}");
    assert_eq!(millrace(&folder, again).status.code(), Some(1), "{again}");
    assert_eq!(millrace(&folder, &format!("{VERIFY} --in kept.pcap")).status.code(), Some(1));
}

pub(crate) fn json_tells_it_too() {
    let output = millrace(&demo(), &format!("{VERIFY} --in demo.pcap.zst --packets 2000 --json"));
    assert_eq!(output.status.code(), Some(1));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&all["equal"], &all["engines"][0]["equal"]), (&false.into(), &false.into()));
    let mismatch = &all["engines"][0]["mismatch"];
    assert_eq!(mismatch["packet"].as_u64().unwrap() + 1, mismatch["prefix"].as_u64().unwrap(), "{mismatch:#}");
    assert_eq!((mismatch["cores"].as_u64(), mismatch["seed"].as_str()), (Some(2), Some("3")));
}

/// Replicas all count everything: the function is wrong, but not under this engine.
pub(crate) fn engines_that_agree_end_well() {
    let line = "verify liar --engines sequential,scr --cores 1-3 --seeds 2 --in demo.pcap.zst --packets 2000";
    let output = millrace(&demo(), line);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("equal: identical") && !said.to_lowercase().contains("differs"), "{said}");
}
