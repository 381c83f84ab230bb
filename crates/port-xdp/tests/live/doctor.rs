//! The doctor on veth pairs: its findings, and their end once one has typed what it says.

use millrace_port_xdp::{Examination, Finding, State, examine};
use testkit::row::{Row, eventually};

use crate::bench::{Forwards, across, both};
use crate::refusals::without;

/// The findings about these interfaces of the middle.
fn found(row: &Row, interfaces: &[&str], cores: u32, try_out: bool) -> Vec<Finding> {
    let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
    let about = Examination { interfaces, cores, try_out };
    row.middle.enter(|| examine(&about).expect("the interfaces are there"))
}

/// The finding about a subject of a0.
fn about_a0(row: &Row, subject: &str, cores: u32) -> Finding {
    one(&found(row, &["a0"], cores, false), subject)
}

fn one(findings: &[Finding], subject: &str) -> Finding {
    let mut fitting = findings.iter().filter(|finding| finding.subject == subject);
    let finding = fitting.next().unwrap_or_else(|| panic!("nothing about {subject}: {findings:#?}")).clone();
    assert_eq!(fitting.next(), None, "one finding about {subject}");
    finding
}

/// The first command in backquotes of the advice, which is typed in the middle.
fn type_it(row: &Row, finding: &Finding) {
    let advice = finding.advice.as_ref().expect("it isn't good");
    let command = advice.split('`').nth(1).unwrap_or_else(|| panic!("no command in {advice}"));
    let words: Vec<&str> = command.split_whitespace().collect();
    row.middle.run(words[0], &words[1..]).expect("it says what can be typed");
}

#[test]
fn queues_are_held_against_cores() {
    let Some(row) = Row::new("doc-queues", 1500) else { return };
    assert_eq!(about_a0(&row, "queues", 1).state, State::Good);
    let finding = about_a0(&row, "queues", 2);
    assert!(finding.state == State::Note && finding.says.contains("feeds all 2 cores"), "{finding:?}");
    type_it(&row, &finding);
    let finding = about_a0(&row, "queues", 2);
    assert!(finding.state == State::Note && finding.says.contains("2 queues, one for each core"), "{finding:?}");
    let finding = about_a0(&row, "queues", 1);
    assert!(finding.state == State::Problem && finding.says.contains("it has 2 queues"), "{finding:?}");
    type_it(&row, &finding);
    assert_eq!(about_a0(&row, "queues", 1).state, State::Good);
}

#[test]
fn the_other_end_is_looked_at_in_its_namespace() {
    let Some(row) = Row::new("doc-ends", 1500) else { return };
    let finding = about_a0(&row, "other end", 1);
    assert!(finding.state == State::Note && finding.says.contains("h0, is on: VLAN tags"), "{finding:?}");
    type_it(&row, &finding);
    assert_eq!(about_a0(&row, "other end", 1).state, State::Good);
    row.left.run("ethtool", &["-K", "h0", "tx", "on"]).expect("a veth has offloads");
    let finding = about_a0(&row, "other end", 1);
    assert!(finding.state == State::Problem && finding.says.contains("h0, is on: TCP and UDP"), "{finding:?}");
    type_it(&row, &finding);
    assert_eq!(about_a0(&row, "other end", 1).state, State::Good);
    // Both ends here.
    row.middle.ip(&["link", "add", "p0", "type", "veth", "peer", "name", "p1"]).expect("root may");
    let findings = found(&row, &["p0"], 1, false);
    let ends: Vec<State> =
        findings.iter().filter(|finding| finding.subject == "other end").map(|finding| finding.state).collect();
    assert_eq!(ends, [State::Problem, State::Note]);
    let advice = findings.iter().filter_map(|finding| finding.advice.as_deref());
    assert_eq!(advice.filter(|advice| advice.contains("`ethtool -K p1 tx off`")).count(), 1, "{findings:#?}");
}

#[test]
fn an_interface_that_is_down_is_a_problem_until_it_is_up() {
    let Some(row) = Row::new("doc-down", 1500) else { return };
    row.middle.ip(&["link", "set", "dev", "a0", "down"]).expect("the end is there");
    let finding = about_a0(&row, "link", 1);
    assert!(finding.state == State::Problem && finding.says == "it is down", "{finding:?}");
    // Its neighbour is the only one that is looked at by itself, and what is down is not tried.
    let findings = found(&row, &[], 1, true);
    let names: Vec<&str> = findings.iter().filter_map(|finding| finding.interface.as_deref()).collect();
    assert!(names.contains(&"a1") && !names.contains(&"a0") && !names.contains(&"lo"), "{names:?}");
    type_it(&row, &finding);
    // The kernel tells of the carrier a little later.
    eventually("it is up", || about_a0(&row, "link", 1).state == State::Good);
    row.left.ip(&["link", "set", "dev", "h0", "down"]).expect("the end is there");
    eventually("the carrier is gone", || about_a0(&row, "link", 1).state == State::Problem);
    assert_eq!(about_a0(&row, "link", 1).says, "it is up, but has no carrier");
}

#[test]
fn jumbo_frames_need_a_driver_that_spreads_them() {
    let Some(row) = Row::new("doc-jumbo", 9000) else { return };
    let finding = about_a0(&row, "MTU", 1);
    assert!(finding.says.starts_with("packets of MTU 9000 don't fit in a frame, which holds 1770"), "{finding:?}");
    let spreads = one(&found(&row, &["a0"], 1, false), "kernel").state == State::Good;
    assert_eq!(finding.state == State::Good, spreads, "{finding:?}");
    row.middle.ip(&["link", "set", "dev", "a0", "mtu", "1770"]).expect("the end is there");
    assert_eq!(about_a0(&row, "MTU", 1).state, State::Good);
}

#[test]
fn a_program_that_is_attached_is_named_with_its_process() {
    let Some(row) = Row::new("doc-held", 1500) else { return };
    assert_eq!(about_a0(&row, "program", 1).state, State::Good);
    let forwarder = row.forward(both(), across);
    let finding = one(&found(&row, &["a0"], 1, true), "program");
    assert_eq!(finding.state, State::Problem);
    let process = std::process::id();
    assert!(
        finding.says.contains("runs on it in the driver") && finding.says.contains(&format!("(process {process})"))
    );
    assert_eq!(finding.advice, Some(format!("end that process: `kill {process}`")));
    assert!(forwarder.stop().balance.adds_up());
    assert_eq!(about_a0(&row, "program", 1).state, State::Good);
}

#[test]
fn a_trial_opens_an_interface_and_lets_it_go() {
    let Some(row) = Row::new("doc-try", 1500) else { return };
    let findings = found(&row, &["a0"], 1, true);
    let native = one(&findings, "native XDP");
    assert!(native.state == State::Good && native.says == "its driver, veth, ran the XDP program when it was tried");
    let copies = one(&findings, "zero-copy");
    assert!(copies.state == State::Note && copies.says.contains("veth, has no zero-copy ("), "{copies:?}");
    assert_eq!(about_a0(&row, "program", 1).state, State::Good, "nothing is left behind");
    // The loopback's driver runs none.
    let native = one(&found(&row, &["lo"], 1, true), "native XDP");
    assert!(
        native.state == State::Note && native.says.starts_with("when it was tried, its driver ran no XDP program ("),
        "{native:?}"
    );
    // More transmit queues at the other end than receive queues here.
    row.left.run("ethtool", &["-L", "h0", "tx", "2"]).expect("a veth has queues");
    let native = about_a0(&row, "native XDP", 1);
    assert!(native.state == State::Note && native.says.contains("runs no XDP program"), "{native:?}");
}

#[test]
fn without_rights_it_says_so_and_what_it_cannot_see() {
    let Some(row) = Row::new("doc-rights", 1500) else { return };
    let about = Examination { interfaces: vec!["a0".into()], cores: 1, try_out: true };
    let findings = row.middle.enter(|| without(None, || examine(&about).expect("it needs no privileges")));
    let rights = one(&findings, "rights");
    assert_eq!(rights.state, State::Problem);
    assert!(rights.says.contains("lacks cap_net_admin, cap_net_raw, cap_bpf"), "{rights:?}");
    let native = one(&findings, "native XDP");
    assert!(native.state == State::Problem && native.says.contains("not permitted"), "{native:?}");
    let end = one(&findings, "other end");
    assert!(end.state == State::Note && end.says.contains("is in another network namespace"), "{end:?}");
}
