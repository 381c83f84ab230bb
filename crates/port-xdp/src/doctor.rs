//! The doctor: says what this machine and its interfaces can do for a port, and what to change.
//!
//! First facts are asked of the kernel (`machine`, `interface`), then they are judged. Facts are plain data, so that judging is tested
//! without a machine.

mod ethtool;
mod holders;
mod interface;
mod judge;
mod machine;
mod namespaces;
mod trial;

use crate::error::XdpError;
use crate::options::Options;
use ::interface::{Probe, names};

/// The subjects of an examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// Names of interfaces. If there are none: all that are up and carry Ethernet, without the loopback.
    pub interfaces: Vec<String>,
    /// Cores of the run that is planned.
    pub cores: u32,
    /// Opens each interface that is named, for a moment, to see whether it works. Its packets are lost meanwhile.
    pub try_out: bool,
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing has to be changed.
    Good,
    /// A run works. It may be slower than it could be, or something can't be seen.
    Note,
    /// A run is refused, or packets are spoilt.
    Problem,
}

impl State {
    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One fact, and what it means for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The interface that it is about; `None` if it is about the machine.
    pub interface: Option<String>,
    /// What it is about, in a word or two.
    pub subject: &'static str,
    /// How it bears on runs.
    pub state: State,
    /// What is so.
    pub says: String,
    /// What to do. Only a good finding has none.
    pub advice: Option<String>,
}

impl Finding {
    fn new(subject: &'static str, state: State, says: impl Into<String>, advice: Option<String>) -> Self {
        let says = says.into();
        debug_assert_eq!(state == State::Good, advice.is_none(), "{says}: what isn't good has advice");
        Self { interface: None, subject, state, says, advice }
    }

    fn good(subject: &'static str, says: impl Into<String>) -> Self {
        Self::new(subject, State::Good, says, None)
    }

    fn note(subject: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(subject, State::Note, says, Some(advice.into()))
    }

    fn problem(subject: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(subject, State::Problem, says, Some(advice.into()))
    }
}

/// The wishes of the planned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    cores: u32,
    interfaces: u32,
    /// Bytes that a run with one queue locks, with the default options.
    locked: u64,
    /// MTU that fits in a frame, with the default options.
    mtu_max: u32,
}

impl Plan {
    fn new(cores: u32, interfaces: &[String]) -> Self {
        // At least one interface, also where there is none to be seen.
        let options = Options::new(if interfaces.is_empty() { vec![String::new()] } else { interfaces.to_vec() });
        Self {
            cores,
            interfaces: options.interfaces.len() as u32,
            locked: options.locked_memory(),
            mtu_max: crate::socket::mtu_max(options.frame_len),
        }
    }
}

/// Examines the machine, then each interface, in the network namespace of the calling thread. Nothing is changed, except that `try_out` takes
/// the packets of the named interfaces for a moment. It needs no privileges: what can't be seen without them is a note that says so.
///
/// # Errors
/// There is no interface of a name, or there is nothing to ask the kernel with.
pub fn examine(examination: &Examination) -> Result<Vec<Finding>, XdpError> {
    let probe = Probe::new().map_err(|error| XdpError::system("doctor", "make a socket", error))?;
    let named = &examination.interfaces;
    let interfaces = if named.is_empty() { usual(&probe) } else { named.clone() };
    let plan = Plan::new(examination.cores, if named.is_empty() { &[] } else { named });
    let machine = machine::Machine::look();
    let mut findings = judge::machine::findings(&machine, &plan);
    if interfaces.is_empty() {
        findings.push(Finding::note(
            "interfaces",
            "no interface but the loopback is up and carries Ethernet",
            "bring one up: `ip link set dev NAME up`, or name one with --interface",
        ));
    }
    for name in &interfaces {
        let found = interface::Interface::look(&probe, name, examination.try_out && !named.is_empty())?;
        let about = judge::interface::findings(&found, &plan, machine.version());
        findings.extend(about.into_iter().map(|finding| Finding { interface: Some(name.clone()), ..finding }));
    }
    Ok(findings)
}

/// The interfaces that a run could take: up, of Ethernet, and not the loopback.
fn usual(probe: &Probe) -> Vec<String> {
    let is_usual = |name: &String| {
        let is_up = probe.flags(name).is_ok_and(|flags| flags & libc::IFF_UP != 0);
        let link = probe.index(name).and_then(|index| ::interface::netlink::link(index).ok());
        is_up && link.is_some_and(|link| link.hardware == libc::ARPHRD_ETHER)
    };
    names().into_iter().filter(is_usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_refused_with_the_names_that_there_are() {
        let about = |name: &str| Examination { interfaces: vec![name.to_owned()], cores: 1, try_out: false };
        let error = examine(&about("nosuch0")).expect_err("there is none").to_string();
        assert!(error.starts_with("there is no interface nosuch0;") && error.contains("lo"), "{error}");
    }

    #[test]
    fn every_finding_that_is_not_good_has_advice() {
        let about = |interfaces| Examination { interfaces, cores: 2, try_out: false };
        for interfaces in [Vec::new(), vec!["lo".to_owned()]] {
            let findings = examine(&about(interfaces.clone())).expect("it needs no privileges");
            assert!(findings.iter().any(|finding| finding.subject == "kernel"));
            for finding in &findings {
                assert_eq!(finding.advice.is_none(), finding.state == State::Good, "{finding:?}");
                assert!(!finding.says.is_empty() && finding.advice.as_deref() != Some(""), "{finding:?}");
            }
            let about_lo = findings.iter().any(|finding| finding.interface.as_deref() == Some("lo"));
            assert_eq!(about_lo, !interfaces.is_empty());
        }
    }

    #[test]
    fn a_plan_counts_memory_once_for_each_interface() {
        let names = |count: usize| vec!["a".to_owned(); count];
        assert_eq!(Plan::new(2, &names(0)).locked, 8 << 20);
        assert_eq!(Plan::new(2, &names(1)), Plan { cores: 2, interfaces: 1, locked: 8 << 20, mtu_max: 1770 });
        assert_eq!(Plan::new(1, &names(2)).locked, 32 << 20);
    }
}
