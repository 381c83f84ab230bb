//! What a run on live interfaces counts: every packet once, and what the kernel counts at the interfaces.
#![cfg(target_os = "linux")]

use serde_json::Value;
use testkit::netns::Namespace;
use testkit::row::eventually;

use crate::live::{Row, Run, sum};

/// Every packet of a run on two interfaces by XDP is accounted for, once.
pub(crate) fn hold_accounts(summary: &Value, what: &str) {
    let number = |path: &str| {
        let found = summary.pointer(path).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("{what}: no number at {path}: {summary}"))
    };
    let received = number("/packets/received");
    let decided = number("/packets/forwarded") + number("/packets/replied") + number("/packets/dropped");
    assert_eq!(received, decided, "{what}: {summary}");
    let reasons = summary["packets"]["drops"].as_object().expect("a list by reason");
    let reasons: u64 = reasons.values().map(|count| count.as_u64().expect("a number")).sum();
    assert_eq!(reasons, number("/packets/dropped"), "{what}: {summary}");
    // What the programs handed on or took ahead was received, sent across as link traffic, found a ring full, or was still in one at the end.
    let both = |name: &str| (0..2).map(|at| number(&format!("/live/interfaces/{at}/{name}"))).sum::<u64>();
    let (across, lost) = (both("link_across") + both("link_across_lost"), both("ring_full"));
    assert!(lost >= number("/lost/ring_full"), "{what}: {summary}");
    // The function received a datagram where fragments came, and fragments left again.
    let of_fragments = |name: &str| summary["fragments"][name].as_u64().unwrap_or(0);
    let (fragments, datagrams) = (of_fragments("received"), of_fragments("datagrams"));
    assert_eq!(
        both("to_function") + both("offloaded") + datagrams,
        received + fragments + across + lost,
        "{what}: {summary}"
    );
    let left = number("/packets/forwarded") + number("/packets/replied");
    let sent = number("/sent/sent") + number("/sent/lost");
    assert!((left..=left + fragments).contains(&sent) && (datagrams > 0 || sent == left), "{what}: {summary}");
    assert_eq!((number("/lost/unclaimed"), &summary["live"]["frames_add_up"]), (0, &true.into()), "{what}: {summary}");
}

/// What the kernel has counted at the wall's interfaces beyond what a run there has counted. It stays the same while nobody else is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    inside: Beyond,
    outside: Beyond,
    /// Sent by both interfaces, where nothing is lost on the way out.
    sent: u64,
}

/// Received by an interface, and dropped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beyond {
    received: u64,
    dropped: u64,
}

impl Books {
    /// Looks at a run that has just begun.
    pub(crate) fn open(row: &Row, run: &Run<'_>) -> Self {
        let mut found = None;
        eventually("interfaces and run stand still", || {
            found = Self::look(row, run);
            found.is_some()
        });
        found.expect("it has just been found")
    }

    /// Holds all of the run's counters to those of the interfaces.
    pub(crate) fn hold_all(self, row: &Row, run: &Run<'_>, what: &str) {
        self.hold(row, run, what, |now| *now == self);
    }

    /// Holds counters of received packets.
    pub(crate) fn hold_received(self, row: &Row, run: &Run<'_>, what: &str) {
        self.hold(row, run, what, |now| (now.inside, now.outside) == (self.inside, self.outside));
    }

    /// Holds counters of packets received from inside, whatever became of the interface outside.
    pub(crate) fn hold_inside(self, row: &Row, run: &Run<'_>, what: &str) {
        self.hold(row, run, what, |now| now.inside == self.inside);
    }

    fn hold(self, row: &Row, run: &Run<'_>, what: &str, is_right: impl Fn(&Self) -> bool) {
        let mut last = None;
        // Packets may be on their way still.
        eventually("the counters of the run are those of the interfaces", || {
            let now = Self::look(row, run);
            let is_right = now.as_ref().is_some_and(&is_right);
            if !is_right && now.is_some() && last != now {
                eprintln!("{what}: beyond the run, the interfaces counted {self:?}, and now {now:?}");
                last = now;
            }
            is_right
        });
    }

    /// `None` if something has come or gone meanwhile.
    fn look(row: &Row, run: &Run<'_>) -> Option<Self> {
        let look = || ["inside0", "outside0"].map(|interface| Counts::of(&row.wall, interface));
        let (before, stats) = (look(), run.ask("stats"));
        if look() != before {
            return None;
        }
        let counted = |at: usize, names: &[&str]| -> u64 {
            let counters: Vec<(String, u64)> =
                serde_json::from_value(stats["interfaces"][at]["counters"].clone()).expect("names and numbers");
            counters.iter().filter(|counter| names.contains(&&*counter.0)).map(|counter| counter.1).sum()
        };
        let beyond = |at: usize| Beyond {
            received: before[at].received.wrapping_sub(counted(at, &["to-function", "unclaimed", "link-to-kernel"])),
            dropped: before[at].dropped.wrapping_sub(counted(at, &["ring-full"])),
        };
        let across = counted(0, &["link-across"]) + counted(1, &["link-across"]);
        let sent = sum(&stats, "forwarded") + sum(&stats, "replied") + across;
        let sent = (before[0].sent + before[1].sent).wrapping_sub(sent);
        Some(Self { inside: beyond(0), outside: beyond(1), sent })
    }
}

/// Packets that an interface has received and sent, and received ones that it has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    received: u64,
    sent: u64,
    dropped: u64,
}

impl Counts {
    fn of(namespace: &Namespace, interface: &str) -> Self {
        let told = namespace.ip(&["-s", "-j", "link", "show", "dev", interface]).expect("it is there");
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        let of = |path: &str| told[0]["stats64"].pointer(path).and_then(Value::as_u64).expect("a number");
        Self { received: of("/rx/packets"), sent: of("/tx/packets"), dropped: of("/rx/dropped") }
    }
}
