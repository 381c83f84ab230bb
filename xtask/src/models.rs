//! Searches the models in `docs/models` with spin, in several configurations. Mutants with one step left out must fail.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::root;
use crate::packages::exists;
use crate::tests::Totals;

const LOSS_RECOVERY: &str = "loss-recovery.pml";

/// Configurations of the loss recovery model that must hold.
const SHAPES: &[(&str, &[&str])] = &[
    ("any loss, one slot each", &["PACKETS=5"]),
    ("a sequencer that waits for every packet", &["PACKETS=5", "BURST=1", "WINDOW=1"]),
    ("a core that may stall, and one that may be fenced", &["PACKETS=4", "FENCES=1", "STALL=1"]),
];

/// Mutants that the search must find, each in a configuration in which it matters.
const MUTANTS: &[(&str, &[&str])] = &[
    ("NO_ROOM", &["PACKETS=5"]),
    ("EAGER", &["PACKETS=5", "BURST=1", "WINDOW=1"]),
    ("BLIND_MARK", &["PACKETS=4", "FENCES=1"]),
    ("APPLIES_FIRST", &["PACKETS=4", "FENCES=1"]),
    ("UNCHECKED", &["PACKETS=4", "FENCES=1"]),
];

/// Searches the model in all its configurations, and its mutants.
pub(crate) fn loss_recovery(totals: &mut Totals) -> Result<()> {
    if let Some(missing) = ["spin", "gcc"].into_iter().find(|program| !exists(program)) {
        println!("   SKIPPED ({missing} is not installed): the model of loss recovery");
        totals.skipped += 1;
        return Ok(());
    }
    let folder = root().join("target/models");
    std::fs::create_dir_all(&folder).with_context(|| format!("{}: can't be made", folder.display()))?;
    for (name, settings) in SHAPES {
        let found = search(&folder, settings)?;
        let Some(states) = found.states.filter(|_| found.is_clean()) else {
            bail!("{LOSS_RECOVERY}, {name} ({}): {}", settings.join(", "), found.text);
        };
        println!("   {name}: {states} states");
        totals.passed += 1;
    }
    for (mutant, settings) in MUTANTS {
        let found = search(&folder, &[*settings, &[mutant]].concat())?;
        if !found.text.contains("pan:1: ") || found.is_clean() {
            bail!("{LOSS_RECOVERY}: the search does not find the mutant {mutant}: {}", found.text);
        }
        totals.passed += 1;
    }
    println!("   {} mutants found", MUTANTS.len());
    Ok(())
}

/// The result of a search.
struct Found {
    text: String,
    states: Option<u64>,
}

impl Found {
    /// True if the search was complete and found no error.
    fn is_clean(&self) -> bool {
        self.text.contains("errors: 0") && !self.text.contains("Search not completed")
    }
}

fn search(folder: &Path, settings: &[&str]) -> Result<Found> {
    let model = root().join("docs/models").join(LOSS_RECOVERY);
    let defines = settings.iter().map(|setting| format!("-D{setting}"));
    output(Command::new("spin").args(defines).arg("-a").arg(&model).current_dir(folder))?;
    // The C code that spin generates causes warnings.
    let flags = ["-w", "-O2", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"];
    output(Command::new("gcc").args(flags).current_dir(folder))?;
    // Enough depth for the longest schedule. A search that needs more reports that it was not completed.
    let text = output(Command::new(folder.join("pan")).args(["-m100000", "-w22"]).current_dir(folder))?;
    let states = text.lines().find(|line| line.ends_with("states, stored"));
    let states = states.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok());
    Ok(Found { text, states })
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} can't be run"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{name} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}
