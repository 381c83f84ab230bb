//! `firewall` and `nat` against the kernel's own netfilter: the same packets in, the same verdicts and bytes out.
#![allow(clippy::print_stderr)]

mod craft;
mod kernel;
mod player;
mod script;

use kernel::Kernel;
use script::Scenario;

#[test]
fn firewall_decides_as_the_kernel_does() {
    compare("fw", include_str!("firewall.nft"), include_str!("firewall.txt"));
}

#[test]
fn nat_rewrites_as_the_kernel_does() {
    compare("nat", include_str!("nat.nft"), include_str!("nat.txt"));
}

fn compare(label: &str, ruleset: &str, scenarios: &str) {
    let Some(mut kernel) = kernel(label, ruleset) else { return };
    let scenarios = script::read(scenarios);
    let mut wrong = Vec::new();
    for scenario in &scenarios {
        let outcomes = player::play(&mut kernel, scenario);
        if std::env::var_os("MILLRACE_NETFILTER_SHOW").is_some() {
            show(scenario, &outcomes);
        }
        check_kernel(scenario, &outcomes, &mut wrong);
    }
    eprintln!("{label}: {} scenarios", scenarios.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn show(scenario: &Scenario, outcomes: &[player::Outcome]) {
    eprintln!("## {}", scenario.name);
    for (step, outcome) in scenario.steps.iter().zip(outcomes) {
        eprintln!("{}", step.line.1);
        for (side, packet) in &outcome.came_out {
            let seen = craft::view(packet);
            eprintln!("    {side:?} {:?} {:?} {}", seen.src, seen.dst, packet.len());
        }
    }
}

fn check_kernel(scenario: &Scenario, outcomes: &[player::Outcome], wrong: &mut Vec<String>) {
    for (step, outcome) in scenario.steps.iter().zip(outcomes) {
        let passed = !outcome.came_out.is_empty();
        if passed != step.expected.kernel || outcome.came_out.len() > 1 {
            let (number, line) = &step.line;
            wrong.push(format!("{}: line {number}: {line}: kernel {:?}", scenario.name, outcome.came_out.len()));
        }
        if let Some(complaint) = &outcome.complaint {
            wrong.push(format!("{}: line {}: kernel: {complaint}", scenario.name, step.line.0));
        }
    }
}

/// The kernel as a router, or none and one line that says why.
fn kernel(label: &str, ruleset: &str) -> Option<Kernel> {
    if let Some(missing) = testkit::netns::missing(&["ip", "nft", "ethtool"]) {
        eprintln!("SKIPPED (needs root / ip / nft / ethtool: no {missing})");
        return None;
    }
    let path = std::env::temp_dir().join(format!("mr-{}-{label}.nft", std::process::id()));
    std::fs::write(&path, ruleset).expect("the temporary directory is writable");
    let kernel = Kernel::new(label, &["-f", path.to_str().expect("it is UTF-8")]);
    let _ = std::fs::remove_file(&path);
    Some(kernel.unwrap_or_else(|error| panic!("the namespaces can't be set up: {error}")))
}
