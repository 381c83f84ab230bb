//! Tells the command which commit it is built from.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=MILLRACE_COMMIT={}", commit().unwrap_or_else(|| "unknown".to_owned()));
}

/// The commit: of a package that cargo has made from it, or of the checkout. Of a debug build nothing is told: it would be built anew
/// after each commit.
fn commit() -> Option<String> {
    let folder = env::var("CARGO_MANIFEST_DIR").ok()?;
    if let Ok(text) = fs::read_to_string(Path::new(&folder).join(".cargo_vcs_info.json")) {
        let (_, rest) = text.split_once("\"sha1\": \"")?;
        return rest.get(..12).map(str::to_owned);
    }
    if env::var("PROFILE").as_deref() != Ok("release") {
        return Some("debug".to_owned());
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&folder).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A folder within somebody else's checkout says nothing of this one.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--absolute-git-dir"])? + "/logs/HEAD");
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| if is_changed { commit + "-changed" } else { commit })
}
