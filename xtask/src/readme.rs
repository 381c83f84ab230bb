//! The README's own commands, run word for word in a folder with nothing but what ships as data.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::{cargo, root};

/// Runs every command of the README's `sh` blocks, in order, and says how many there were. `cargo xtask` itself is left
/// out, and `cargo run --release --` is the program that it builds.
pub(crate) fn run() -> Result<usize> {
    cargo(&["build", "--release", "--quiet", "--package", "millrace-net"])?;
    let readme = fs::read_to_string(root().join("README.md")).context("README.md can't be read")?;
    let folder = std::env::temp_dir().join(format!("millrace-readme-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(root().join("testdata"), folder.join("testdata"))?;
    let result = commands(&readme).try_fold(0, |count, command| {
        execute(command, &folder).with_context(|| format!("the README's command failed: {command}"))?;
        Ok(count + 1)
    });
    fs::remove_dir_all(&folder)?;
    result
}

/// The command lines of all `sh` blocks.
fn commands(readme: &str) -> impl Iterator<Item = &str> {
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn execute(command: &str, folder: &std::path::Path) -> Result<()> {
    if command.starts_with("cargo xtask") || command.starts_with("git clone") || command.starts_with("cd ") {
        return Ok(());
    }
    let release = root().join("target/release");
    let path = format!("{}:{}", release.display(), std::env::var("PATH").unwrap_or_default());
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
    Ok(())
}
