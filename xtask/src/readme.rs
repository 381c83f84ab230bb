//! Runs the README's commands word for word, in a folder with nothing but the shipped data, and compares their output.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::{cargo, root};

/// A command, and its output according to the README, if it shows any.
#[derive(Debug, PartialEq, Eq)]
struct Example<'a> {
    command: &'a str,
    prints: Option<&'a str>,
}

/// Tells if the tests have just built the program. Cargo would build it again for itself, with other features of its dependencies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Built {
    ByTests,
    No,
}

/// Runs every command of the README's `sh` blocks in order and returns how many there were. A `text` block behind a `sh` block is the
/// output of its last command: `...` matches anything, and on a line of its own any lines. `cargo xtask` is left out. `cargo run --release
/// --` runs the program that the tests have built, since a release build takes minutes.
pub(crate) fn run(built: Built) -> Result<usize> {
    if built == Built::No {
        cargo(&["build", "--quiet", "--package", "millrace-net"])?;
    }
    let readme = fs::read_to_string(root().join("README.md")).context("README.md can't be read")?;
    let folder = std::env::temp_dir().join(format!("millrace-readme-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(root().join("testdata"), folder.join("testdata"))?;
    let result = examples(&readme).into_iter().try_fold(0, |count, Example { command, prints }| {
        let printed = execute(command, &folder).with_context(|| format!("the README's command failed: {command}"))?;
        if let Some(wanted) = prints
            && !matches(wanted, &printed)
        {
            bail!("the README says that `{command}` prints\n{wanted}\nand it printed\n{printed}");
        }
        Ok(count + 1)
    });
    fs::remove_dir_all(&folder)?;
    result
}

/// The commands of all `sh` blocks.
fn examples(readme: &str) -> Vec<Example<'_>> {
    let mut all: Vec<Example<'_>> = Vec::new();
    let mut is_behind_commands = false;
    // Every second piece lies inside a fence.
    for (index, piece) in readme.split("```").enumerate() {
        match piece.split_once('\n') {
            Some(("sh", commands)) if index % 2 == 1 => {
                let lines = commands.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                all.extend(lines.map(|command| Example { command, prints: None }));
                is_behind_commands = true;
            }
            Some(("text", prints)) if index % 2 == 1 && is_behind_commands => {
                if let Some(last) = all.last_mut() {
                    last.prints = Some(prints);
                }
                is_behind_commands = false;
            }
            _ if index % 2 == 1 => is_behind_commands = false,
            _ => {}
        }
    }
    all
}

/// True if the output matches, except for blanks at the ends of lines.
fn matches(wanted: &str, printed: &str) -> bool {
    let wanted: Vec<&str> = wanted.trim_end().lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
    matches_lines(&wanted, &printed)
}

fn matches_lines(wanted: &[&str], printed: &[&str]) -> bool {
    match wanted.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=printed.len()).any(|skipped| matches_lines(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, printed)| matches_line(first, line) && matches_lines(rest, printed)),
    }
}

fn matches_line(wanted: &str, line: &str) -> bool {
    match wanted.split_once("...") {
        None => wanted == line,
        Some((before, behind)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            ends.into_iter().any(|at| matches_line(behind, &rest[at..]))
        }),
    }
}

/// Runs a command and returns its standard output.
fn execute(command: &str, folder: &std::path::Path) -> Result<String> {
    if command.starts_with("cargo xtask") || command.starts_with("git clone") || command.starts_with("cd ") {
        return Ok(String::new());
    }
    let built = root().join("target/debug");
    let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap_or_default());
    let command = command.replace("cargo run --release --", "millrace");
    let manifest = root().join("Cargo.toml");
    let command = command.replace("cargo run --", &format!("cargo run --manifest-path '{}' --", manifest.display()));
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &command])
        .env("PATH", path)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("bash can't be run")?;
    if !output.status.success() {
        bail!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_belongs_to_the_last_command() {
        let readme = "a\n```sh\nmillrace one\n# not this\nmillrace two\n```\nprints\n\n```text\nout\n```\n```toml\nx = 1\n```\n```text\nlost\n```\n```sh\nthree\n```\n";
        let found = examples(readme);
        let wanted = [("millrace one", None), ("millrace two", Some("out\n")), ("three", None)];
        assert_eq!(found, wanted.map(|(command, prints)| Example { command, prints }));
    }

    #[test]
    fn dots_stand_for_anything() {
        for (wanted, printed) in [
            ("a\nb\n", "a  \nb\n\n"),
            ("a ... c\n", "a 12.5 ms c\n"),
            ("first\n...\nlast", "first\n1\n2\nlast\n"),
            ("first\n...", "first\n"),
            ("...x...y", "axby"),
        ] {
            assert!(matches(wanted, printed), "{wanted} {printed}");
        }
        for (wanted, printed) in [("a\nb", "a\n"), ("a", "a\nb"), ("a ... c", "a b"), ("a\n...\nz", "a\nb"), ("1", "2")]
        {
            assert!(!matches(wanted, printed), "{wanted} {printed}");
        }
    }
}
