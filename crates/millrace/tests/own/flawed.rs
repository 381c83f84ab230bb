//! An author's mistakes that compile: refused when the function is registered, or at the end of its run.

use std::env;

use millrace::catalogue::{Catalogue, CatalogueEntry};
use millrace::prelude::*;
use serde::Deserialize;

use super::{demo, millrace_with};

/// Which mistake the command's catalogue has.
const FLAW: &str = "MILLRACE_TEST_FLAW";

/// What a packet contributes: its five-tuple, or what is left of it where that is the mistake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen<const KEY: u8>(FiveTuple);

/// The key is the packet's own five-tuple, its symmetric one, the source's alone, or all but the destination's port.
const OWN: u8 = 0;
const SYMMETRIC: u8 = 1;
const SOURCE: u8 = 2;
const COARSE: u8 = 3;

impl<const KEY: u8> Meta for Seen<KEY> {
    type Key = FiveTuple;
    const RECORD_BYTES: usize = TUPLE_BYTES;

    fn key(&self) -> FiveTuple {
        let (from, to) = (self.0.source(), self.0.destination());
        let between = |from, to| FiveTuple::between(from, to, self.0.protocol()).unwrap();
        let nobody = Endpoint { address: if from.address.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, port: 0 };
        match KEY {
            OWN => self.0,
            SYMMETRIC => self.0.symmetric().0,
            SOURCE => between(Endpoint { port: 0, ..from }, nobody),
            _ => between(from, Endpoint { port: 0, ..to }),
        }
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.0).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).tuple().map(Self)
    }
}

/// Forwards everything but half of the packets, for its reason number `REASON`, of which one is declared; says that its packet sets are
/// of kind `SET`.
pub(crate) struct Flawed<const KEY: u8, const SET: u8, const REASON: u8>;

impl<const KEY: u8, const SET: u8, const REASON: u8> NetworkFunction for Flawed<KEY, SET, REASON> {
    type Meta = Seen<KEY>;
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
        [PacketSet::FiveTuple, PacketSet::SymmetricFiveTuple, PacketSet::Source][usize::from(SET)]
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 64 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Seen<KEY>> {
        headers.five_tuple().map(Seen)
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Seen<KEY>) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), _: &Seen<KEY>) -> Step<Verdict, M> {
        Ok(if cx.random().is_multiple_of(2) { Verdict::FORWARD } else { Verdict::Drop(Reason::own(REASON)) })
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

fn entry<const KEY: u8, const SET: u8, const REASON: u8>() -> CatalogueEntry {
    CatalogueEntry::of(|_: Listed| Flawed::<KEY, SET, REASON>)
}

/// The catalogue with the mistake that the environment asks for, if it does.
pub(crate) fn add(catalogue: Catalogue) -> Catalogue {
    let entry = match env::var(FLAW).unwrap_or_default().as_str() {
        "none" => entry::<OWN, 0, 0>(),
        "symmetric" => entry::<SYMMETRIC, 1, 0>(),
        "source" => entry::<SOURCE, 2, 0>(),
        "unlisted" => CatalogueEntry::of(|_: Unlisted| Flawed::<OWN, 0, 0>),
        "nothing to list" => CatalogueEntry::plain(|| Flawed::<OWN, 0, 0>),
        "coarse" => entry::<COARSE, 0, 0>(),
        "fine" => entry::<OWN, 2, 0>(),
        "one-sided" => entry::<OWN, 1, 0>(),
        "too symmetric" => entry::<SYMMETRIC, 0, 0>(),
        "reason" => entry::<OWN, 0, 1>(),
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
