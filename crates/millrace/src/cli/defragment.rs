//! `--defragment`: IP fragments are gathered before the function sees them.

use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use l7::defrag::{Limits, Policy, gather};
use port::Trace;

use super::failure::Failed;
use super::traffic::Traffic;
use crate::print::fragments::told;
use crate::print::number::count;
use crate::print::output::remark;

#[derive(clap::Args)]
pub(super) struct DefragmentOption {
    /// Gather the fragments of IP datagrams before the function sees them, and cut what it forwards into the same fragments again. The
    /// policy says which bytes win where IPv4 fragments overlap
    #[arg(long, value_name = "POLICY", default_value = AUTO, value_parser = choice())]
    defragment: Choice,
}

/// What the option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// As the function wants it.
    Auto,
    Off,
    On(Policy),
}

const AUTO: &str = "auto";
const OFF: &str = "off";

fn choice() -> impl TypedValueParser<Value = Choice> {
    let policies = Policy::ALL.map(|policy| {
        PossibleValue::new(policy.name()).help(match policy {
            Policy::Linux => "None: the datagram is dropped",
            Policy::First => "Those that came first",
            Policy::Last => "Those that came last",
            Policy::Bsd => "Those of the fragment that begins earlier, then the first",
            Policy::BsdRight => "Those of the fragment that begins later, then the last",
            Policy::Windows => "The first, unless a later fragment goes beyond it at both ends",
            Policy::Solaris => "The first, unless a later fragment begins before it and doesn't end before it",
        })
    });
    let auto = PossibleValue::new(AUTO).help(
        "linux if the function needs whole datagrams (rules that track connections, functions over streams), else off",
    );
    let off = PossibleValue::new(OFF).help("Fragments stay fragments");
    PossibleValuesParser::new([auto, off].into_iter().chain(policies)).map(|name| match name.as_str() {
        AUTO => Choice::Auto,
        OFF => Choice::Off,
        name => Choice::On(Policy::of_name(name).expect("the parser lets policies' names through alone")),
    })
}

impl DefragmentOption {
    /// The policy, if fragments are gathered. `wanted` says whether the function needs whole datagrams.
    pub(super) fn policy(&self, wanted: bool) -> Option<Policy> {
        match self.defragment {
            Choice::Auto => wanted.then(Policy::default),
            Choice::Off => None,
            Choice::On(policy) => Some(policy),
        }
    }

    /// Refuses a policy where fragments are never gathered.
    pub(super) fn refuse(&self, what: &str) -> Result<(), Failed> {
        match self.defragment {
            Choice::Auto | Choice::Off => Ok(()),
            Choice::On(_) => Err(Failed::usage(format_args!("{what} gathers no fragments; omit --defragment"))),
        }
    }

    /// Formats the option if it differs from its default, after a space.
    pub(super) fn again(&self) -> String {
        match self.defragment {
            Choice::Auto => String::new(),
            Choice::Off => format!(" --defragment {OFF}"),
            Choice::On(policy) => format!(" --defragment {}", policy.name()),
        }
    }

    /// Traffic whose fragments are gathered, if they are to be. Packets keep their numbers.
    pub(super) fn gathered(&self, wanted: bool, traffic: Traffic, quiet: bool) -> Traffic {
        let Some(policy) = self.policy(wanted) else { return traffic };
        let (trace, counts) = gather(&traffic.trace, policy, Limits::default());
        if counts.fragments == 0 {
            return traffic;
        }
        if !quiet {
            let (all, seen) = (count(traffic.trace.len() as u64), count(trace.len() as u64));
            remark(&format!("{all} packets in the capture, {seen} to the function; {}\n", told(&counts)));
        }
        Traffic { trace: Arc::new(trace), fragments: Some((policy, counts)), ..traffic }
    }

    /// The same for engines: packets are numbered without gaps.
    pub(super) fn renumbered(&self, wanted: bool, traffic: Traffic, quiet: bool) -> Traffic {
        let gathered = self.gathered(wanted, traffic, quiet);
        let packets = gathered.trace.packets();
        let has_gaps = packets.iter().enumerate().any(|(number, packet)| packet.seq.0 != number as u64);
        match has_gaps {
            true => Traffic { trace: Arc::new(Trace::clone(&gathered.trace).renumbered()), ..gathered },
            false => gathered,
        }
    }
}
