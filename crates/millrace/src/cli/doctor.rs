//! `millrace doctor` says what this machine can do for runs on live interfaces, and what to change.

use port_xdp::{Examination, Finding, State, examine};
use serde_json::json;

use super::engines;
use super::failure::{Failed, OUTCOME};
use crate::print::output::{print, print_json, remark};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Say what this machine can do for runs on live interfaces, and what to change
///
/// Looks at the kernel, the rights of this process and the interfaces, as `run --interface` will find them. A problem is what a run would
/// refuse, or what would spoil packets; a note is what makes it slower, or what can't be seen. Each has a line that says what to do. It
/// changes nothing and needs no root, though root sees more. The exit code is 1 if there is a problem.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace doctor
  millrace doctor --interface inside0 --interface outside0 --cores 2
  sudo millrace doctor --interface eth0 --try")]
pub(super) struct Args {
    /// Network interface to look at. May be repeated [default: all of Ethernet that are up]
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Number of cores of the planned run, or `all`
    #[arg(long, default_value = "1", value_name = "N", value_parser = engines::cores)]
    cores: usize,
    /// Also open each interface for a moment, in native mode and with zero-copy if it can. Its packets are lost meanwhile, and its queues
    /// may start anew
    #[arg(long = "try", requires = "interfaces")]
    try_out: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let mut interfaces: Vec<String> = Vec::new();
    for name in &args.interfaces {
        if !interfaces.contains(name) {
            interfaces.push(name.clone());
        }
    }
    if args.try_out {
        remark(&format!("trying {}: packets are lost for a moment\n", interfaces.join(", ")));
    }
    let examination = Examination { interfaces, cores: args.cores as u32, try_out: args.try_out };
    let findings = examine(&examination).map_err(Failed::usage)?;
    match args.json {
        true => print_json(&report(&findings))?,
        false => print(&text(&findings, Style::stdout()))?,
    }
    match count(&findings, State::Problem) {
        0 => Ok(()),
        _ => Err(Failed::Said(OUTCOME)),
    }
}

fn count(findings: &[Finding], state: State) -> usize {
    findings.iter().filter(|finding| finding.state == state).count()
}

fn report(findings: &[Finding]) -> serde_json::Value {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "interface": finding.interface, "subject": finding.subject, "state": finding.state.name(),
                "says": finding.says, "advice": finding.advice,
            })
        })
        .collect();
    let (problems, notes) = (count(findings, State::Problem), count(findings, State::Note));
    json!({ "problems": problems, "notes": notes, "findings": rows })
}

fn text(findings: &[Finding], style: Style) -> String {
    let mut out = String::new();
    for group in findings.chunk_by(|one, next| one.interface == next.interface) {
        let name = group[0].interface.as_deref().unwrap_or("this machine");
        out += &format!("{}\n{}\n", style.bold(name), listed(group, style));
    }
    let plural = |number, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let notes = plural(count(findings, State::Note), "note");
    out += &match count(findings, State::Problem) {
        0 => format!("{}, {notes}\n", style.good("no problem")),
        problems => format!("{}, {notes}\n", style.bad(plural(problems, "problem"))),
    };
    out
}

/// The findings about the machine, or about one interface.
fn listed(findings: &[Finding], style: Style) -> String {
    let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for finding in findings {
        let tone = match finding.state {
            State::Good => Tone::Good,
            State::Note => Tone::Warn,
            State::Problem => Tone::Bad,
        };
        let state = finding.state.name();
        sheet.toned([(state, tone), (finding.subject, Tone::Plain), (finding.says.as_str(), Tone::Plain)]);
        if let Some(advice) = &finding.advice {
            sheet.row(["", "", &format!("advice: {advice}")]);
        }
    }
    sheet.lines(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(interface: Option<&str>, state: State, advice: Option<&str>) -> Finding {
        let (interface, advice) = (interface.map(str::to_owned), advice.map(str::to_owned));
        Finding { interface, subject: "queues", state, says: "it has 2 queues".to_owned(), advice }
    }

    #[test]
    fn findings_are_grouped_and_counted() {
        let findings = [
            finding(None, State::Good, None),
            finding(Some("a"), State::Problem, Some("type this")),
            finding(Some("a"), State::Note, Some("type that")),
        ];
        let expected = "\
this machine
  good  queues  it has 2 queues

a
  problem  queues  it has 2 queues
                   advice: type this
  note     queues  it has 2 queues
                   advice: type that

1 problem, 1 note
";
        assert_eq!(text(&findings, Style { colour: false }), expected);
        assert!(text(&findings[..1], Style { colour: false }).ends_with("\nno problem, 0 notes\n"));
        let report = report(&findings);
        assert_eq!((&report["problems"], &report["notes"]), (&json!(1), &json!(1)));
        assert_eq!(report["findings"][1]["advice"], "type this");
        assert!(report["findings"][0]["interface"].is_null());
    }
}
