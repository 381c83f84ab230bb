//! An author's mistakes that compile: refused when the function is registered, or at the end of its run.

use std::env;

use millrace::catalogue::{Catalogue, CatalogueEntry};
use millrace::prelude::*;
use serde::Deserialize;

use super::{demo, millrace_with};

/// Which mistake the command's catalogue has.
const FLAW: &str = "MILLRACE_TEST_FLAW";

/// What a packet contributes: its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen(FiveTuple);

/// What a key is made of.
#[derive(Clone, Copy)]
enum Key {
    /// The packet's five-tuple.
    Own,
    /// The same for both directions.
    Symmetric,
    /// The source address.
    Source,
    /// All but the destination port.
    Coarse,
}

impl Key {
    fn of(self, own: FiveTuple) -> FiveTuple {
        let (from, to) = (own.source(), own.destination());
        let between = |from, to| FiveTuple::between(from, to, own.protocol()).unwrap();
        let nobody = Endpoint { address: if from.address.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, port: 0 };
        match self {
            Self::Own => own,
            Self::Symmetric => own.symmetric().0,
            Self::Source => between(Endpoint { port: 0, ..from }, nobody),
            Self::Coarse => between(from, Endpoint { port: 0, ..to }),
        }
    }
}

impl Meta for Seen {
    type Key = FiveTuple;
    const RECORD_BYTES: usize = TUPLE_BYTES;

    fn key(&self) -> FiveTuple {
        self.0
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.0).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).tuple().map(Self)
    }
}

/// Forwards half of the packets and drops the others.
pub(crate) struct Flawed {
    key: Key,
    /// What it says that its keys are made of.
    set: PacketSet,
    /// The number of its drop reason, of which one is declared.
    reason: u8,
}

impl NetworkFunction for Flawed {
    type Meta = Seen;
    type Flow = ();
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "flawed",
        summary: "has a flaw",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[ConfigKey { name: "limit", default: "7", help: "nothing" }],
        drop_reasons: &["odd"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        self.set
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 64 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Seen> {
        headers.five_tuple().map(|own| Seen(self.key.of(own)))
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Seen) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), _: &Seen) -> Step<Verdict, M> {
        Ok(if cx.random().is_multiple_of(2) { Verdict::FORWARD } else { Verdict::Drop(Reason::own(self.reason)) })
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Listed {
    #[allow(dead_code, reason = "its name is what counts")]
    limit: u32,
}

impl Default for Listed {
    fn default() -> Self {
        Self { limit: 7 }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[allow(dead_code, reason = "the names are what counts")]
struct Unlisted {
    limit: u32,
    burst: u32,
}

fn entry(key: Key, set: PacketSet, reason: u8) -> CatalogueEntry {
    CatalogueEntry::of(move |_: Listed| Flawed { key, set, reason })
}

/// The catalogue with the mistake that the environment asks for, if it does.
pub(crate) fn add(catalogue: Catalogue) -> Catalogue {
    let sound = || Flawed { key: Key::Own, set: PacketSet::FiveTuple, reason: 0 };
    let entry = match env::var(FLAW).unwrap_or_default().as_str() {
        "none" => entry(Key::Own, PacketSet::FiveTuple, 0),
        "symmetric" => entry(Key::Symmetric, PacketSet::SymmetricFiveTuple, 0),
        "source" => entry(Key::Source, PacketSet::Source, 0),
        "unlisted" => CatalogueEntry::of(move |_: Unlisted| sound()),
        "nothing to list" => CatalogueEntry::plain(sound),
        "coarse" => entry(Key::Coarse, PacketSet::FiveTuple, 0),
        "fine" => entry(Key::Own, PacketSet::Source, 0),
        "one-sided" => entry(Key::Own, PacketSet::SymmetricFiveTuple, 0),
        "too symmetric" => entry(Key::Symmetric, PacketSet::FiveTuple, 0),
        "reason" => entry(Key::Own, PacketSet::FiveTuple, 1),
        _ => return catalogue,
    };
    catalogue.with(entry)
}

pub(crate) fn a_function_that_breaks_the_contract_is_refused() {
    let folder = demo();
    let try_out = |flaw: &str, line: &str| {
        let output = millrace_with(&folder, line, &[(FLAW, flaw)]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for flaw in ["none", "symmetric", "source"] {
        assert_eq!(try_out(flaw, "functions flawed"), (Some(0), String::new()), "{flaw}");
    }
    for (flaw, says) in [
        ("unlisted", "the key `burst`, which DESCRIPTION.keys doesn't list"),
        ("nothing to list", "lists `limit`, which its configuration doesn't have"),
        ("coarse", "packets with different destination port have the same key"),
        ("fine", "differ only in destination address have different keys"),
        ("one-sided", "a packet and its answer have different keys"),
    ] {
        for line in ["functions", "run flawed --in demo.pcap.zst"] {
            let (code, error) = try_out(flaw, line);
            assert_eq!(code, Some(1), "{flaw}: {error}");
            assert!(
                error.contains("error: the function `flawed` can't be registered: ") && error.contains(says),
                "{error}"
            );
        }
    }
    // One name for both directions is no harm where each direction is asked for by itself: the hash is the same.
    assert_eq!(try_out("too symmetric", "functions flawed").0, Some(0));
}

pub(crate) fn reasons_are_those_that_are_declared() {
    let folder = demo();
    for (cores, engine) in [(1, "sequential"), (2, "rss"), (2, "scr")] {
        let line = format!("run flawed --in demo.pcap.zst --cores {cores} --engine {engine}");
        let output = millrace_with(&folder, &line, &[(FLAW, "reason")]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("with `Reason::own(1)`, but DESCRIPTION.drop_reasons has 1 reason;"), "{error}");
        let output = millrace_with(&folder, &line, &[(FLAW, "none")]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
