//! Models of what cores do with each other (`docs/models`), searched by spin: each in several shapes, and with one thing left
//! out at a time, which the search has to notice.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::root;
use crate::packages::exists;
use crate::tests::Totals;

const LOSS_RECOVERY: &str = "loss-recovery.pml";

/// The shapes of the model of loss recovery in which all must hold.
const SHAPES: &[(&str, &[&str])] = &[
    ("any loss, one slot each", &["PACKETS=5"]),
    ("a sequencer that waits for every packet", &["PACKETS=5", "BURST=1", "WINDOW=1"]),
    ("a core that may stall, and one that may be fenced", &["PACKETS=4", "FENCES=1", "STALL=1"]),
];

/// What the search must notice, in a shape in which it matters.
const MUTANTS: &[(&str, &[&str])] = &[
    ("NO_ROOM", &["PACKETS=5"]),
    ("EAGER", &["PACKETS=5", "BURST=1", "WINDOW=1"]),
    ("BLIND_MARK", &["PACKETS=4", "FENCES=1"]),
    ("APPLIES_FIRST", &["PACKETS=4", "FENCES=1"]),
    ("UNCHECKED", &["PACKETS=4", "FENCES=1"]),
];

/// Searches the model in all its shapes, and its mutants.
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
            bail!("{LOSS_RECOVERY}: with {mutant} the search finds nothing wrong: {}", found.text);
        }
        totals.passed += 1;
    }
    println!("   {} mutants noticed", MUTANTS.len());
    Ok(())
}

/// What a search said.
struct Found {
    text: String,
    states: Option<u64>,
}

impl Found {
    /// Whether the search came to its end and found nothing.
    fn is_clean(&self) -> bool {
        self.text.contains("errors: 0") && !self.text.contains("Search not completed")
    }
}

fn search(folder: &Path, settings: &[&str]) -> Result<Found> {
    let model = root().join("docs/models").join(LOSS_RECOVERY);
    let defines = settings.iter().map(|setting| format!("-D{setting}"));
    output(Command::new("spin").args(defines).arg("-a").arg(&model).current_dir(folder))?;
    // The verifier that spin writes is C that warns.
    let flags = ["-w", "-O2", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"];
    output(Command::new("gcc").args(flags).current_dir(folder))?;
    // Enough depth for the longest schedule; a search that needs more says that it was not completed.
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
