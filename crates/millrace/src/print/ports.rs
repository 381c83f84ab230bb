//! Notes on ports that a capture has no interface for.

use std::path::Path;

use port::pcap::Misplaced;
use serde_json::{Value, json};

use super::number::counted;

/// The ports that captures lack. Each interface of a capture is a port, numbered from 0.
pub(crate) struct Ports {
    /// Number of interfaces of the input.
    interfaces: usize,
    /// The ports that the configuration names and the input lacks.
    lacking: Vec<u16>,
    /// The packets that were sent to ports which the output lacks.
    misplaced: Misplaced,
}

impl Ports {
    /// Compares the ports that a configuration names with the interfaces of a capture.
    pub(crate) fn of(mut named: Vec<u16>, interfaces: usize, misplaced: &Misplaced) -> Self {
        named.retain(|port| usize::from(*port) >= interfaces);
        Self { interfaces, lacking: named, misplaced: *misplaced }
    }

    /// The notes, a line each.
    pub(crate) fn told(&self, input: &str, output: Option<&Path>) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((first, others)) = self.lacking.split_first() {
            /// The most ports that are named.
            const SHOWN: usize = 8;
            let mut list = first.to_string();
            others.iter().take(SHOWN - 1).for_each(|port| list += &format!(", {port}"));
            list += if self.lacking.len() > SHOWN { ", ..." } else { "" };
            let (word, they) = if others.is_empty() { ("port", "it") } else { ("ports", "them") };
            let has = match self.interfaces {
                1 => "one interface, port 0".to_owned(),
                many => format!("{many} interfaces, ports 0 to {}", many.saturating_sub(1)),
            };
            notes.push(format!(
                "the configuration names {word} {list}, and {input} has {has}: no packet comes in by {they}"
            ));
        }
        let Misplaced { packets, port, is_several } = self.misplaced;
        if let Some(output) = output.filter(|_| packets > 0) {
            let (packets, others) =
                (counted(packets, "packet", "packets"), if is_several { " and others" } else { "" });
            notes.push(format!(
                "{packets} left by port {port}{others}, for which {} has no interface: they are written under the \
                 interface that they came in by",
                output.display()
            ));
        }
        if !notes.is_empty() {
            notes.push(WHAT_TO_DO.to_owned());
        }
        notes
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> Value {
        let Misplaced { packets, port, is_several } = self.misplaced;
        json!({
            "lacking": self.lacking, "misplaced": packets, "misplaced_first": (packets > 0).then_some(port),
            "misplaced_several": is_several,
        })
    }
}

/// The way to a capture with several ports.
const WHAT_TO_DO: &str = "each interface of a capture is a port; `mergecap -I none -w all.pcapng A.pcap B.pcap` gives each of several captures its own";
