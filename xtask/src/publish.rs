//! Checks the package of each crate as the registry would have it: complete, self-contained, and under a name of ours.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::check::{cargo, root};

/// A crate without dependencies in the workspace, so it builds from its package alone.
const BUILT: &str = "millrace-packet";

/// Packages every crate except `xtask`, checks the packages and builds one of them.
pub(crate) fn check() -> Result<()> {
    cargo(&["package", "--quiet", "--workspace", "--exclude", "xtask", "--no-verify", "--allow-dirty"])?;
    cargo(&["package", "--quiet", "--package", BUILT, "--allow-dirty"])?;
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .context("cargo metadata can't be run")?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("the output of cargo metadata can't be parsed")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names no target folder")?;
    for package in packages.iter().filter(|package| package["name"] != "xtask") {
        let name = package["name"].as_str().unwrap_or_default();
        described(package).with_context(|| format!("{name} can't be published"))?;
        let version = package["version"].as_str().unwrap_or_default();
        whole(&Path::new(folder).join("package"), &format!("{name}-{version}"))
            .with_context(|| format!("the package of {name}"))?;
    }
    Ok(())
}

/// Refuses a crate that lacks a field of its manifest, or whose library name lacks our prefix.
fn described(package: &Value) -> Result<()> {
    for field in ["description", "license", "readme"] {
        if package[field].as_str().is_none_or(str::is_empty) {
            bail!("it has no {field}");
        }
    }
    for list in ["keywords", "categories"] {
        if package[list].as_array().is_none_or(Vec::is_empty) {
            bail!("it has no {list}");
        }
    }
    let name = package["name"].as_str().unwrap_or_default();
    if name == "millrace" || !name.starts_with("millrace-") {
        bail!("its name must begin with `millrace-`; other names may be taken on the public registry");
    }
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let of_ours = !dependency["path"].is_null() && dependency["kind"] != "dev";
        if of_ours && dependency["req"] == "*" {
            bail!("its dependency {} has a path and no version", dependency["name"]);
        }
    }
    let library =
        |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib"));
    let libraries = package["targets"].as_array().into_iter().flatten().filter(library);
    for library in libraries {
        let library = library["name"].as_str().unwrap_or_default();
        if library != "millrace" && !library.starts_with("millrace_") {
            bail!("its library is called `{library}`; the name must begin with `millrace_`");
        }
    }
    Ok(())
}

/// Refuses a package that lacks a file.
fn whole(folder: &Path, name: &str) -> Result<()> {
    let unpacked = folder.join(name);
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    let tar = Command::new("tar").arg("-xzf").arg(format!("{name}.crate")).current_dir(folder).status();
    if !tar.context("tar can't be run")?.success() {
        bail!("{name}.crate can't be unpacked");
    }
    let mut files = HashSet::new();
    gather(&unpacked, "", &mut files)?;
    for file in ["Cargo.toml", "LICENSE", "README.md", "src/lib.rs"] {
        if !files.contains(file) {
            bail!("it has no {file}");
        }
    }
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(unpacked.join(file))?;
        for place in included(&text) {
            let Some(inside) = resolved(file, place) else { bail!("{file} includes {place}, which lies outside") };
            if !files.contains(&inside) {
                bail!("{file} includes {place}, which is not in the package");
            }
        }
    }
    Ok(())
}

/// Collects the paths of all files below a folder.
fn gather(folder: &Path, place: &str, files: &mut HashSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{place}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            gather(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.insert(name);
        }
    }
    Ok(())
}

/// The paths that a source file includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    ["include_str!(\"", "include_bytes!(\"", "include!(\""].into_iter().flat_map(move |mark| {
        text.match_indices(mark).filter_map(move |(at, _)| text[at + mark.len()..].split('"').next())
    })
}

/// Resolves a path that `file` includes to a path in the package; `None` outside of it.
fn resolved(file: &str, place: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in place.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_included_lies_inside() {
        let text = "const A: &str = include_str!(\"../data/a\"); const B: &[u8] = include_bytes!(\"b\");";
        assert_eq!(included(text).collect::<Vec<_>>(), ["../data/a", "b"]);
        assert_eq!(resolved("src/cli/new.rs", "../../skeleton/lib.rs"), Some("skeleton/lib.rs".to_owned()));
        assert_eq!(resolved("src/lib.rs", "./a"), Some("src/a".to_owned()));
        assert_eq!(resolved("src/lib.rs", "../../b"), None);
    }

    #[test]
    fn a_crate_says_what_it_is_by_a_name_of_ours() {
        let package = |name: &str, library: &str, keywords: &[&str], req: &str| {
            json!({
                "name": name, "description": "d", "license": "MIT", "readme": "README.md", "keywords": keywords,
                "categories": ["network-programming"], "targets": [{ "kind": ["lib"], "name": library }],
                "dependencies": [{ "name": "millrace-flow", "path": "/p", "req": req, "kind": null }],
            })
        };
        assert!(described(&package("millrace-flow", "millrace_flow", &["flow"], "^0.1.0")).is_ok());
        for (name, library, keywords, req) in [
            ("millrace", "millrace", ["flow"].as_slice(), "^0.1.0"),
            ("flow", "millrace_flow", &["flow"], "^0.1.0"),
            ("millrace-flow", "flow", &["flow"], "^0.1.0"),
            ("millrace-flow", "millrace_flow", &[], "^0.1.0"),
            ("millrace-flow", "millrace_flow", &["flow"], "*"),
        ] {
            assert!(described(&package(name, library, keywords, req)).is_err(), "{name} {library} {keywords:?} {req}");
        }
    }
}
