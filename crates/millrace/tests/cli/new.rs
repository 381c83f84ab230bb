//! `millrace new` as a user types it. That what it writes compiles and holds is `skeleton_test`'s.

use std::fs;

use crate::folder::Folder;

/// Where this crate's sources are.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The public registry has a crate `millrace` of somebody else: no version is ever written.
#[test]
fn millrace_is_taken_from_where_it_is_told_to_be_and_from_nowhere_else() {
    let folder = Folder::empty();
    let dependency = |name: &str| {
        let manifest = fs::read_to_string(folder.path(name).join("Cargo.toml")).unwrap();
        manifest.lines().find(|line| line.starts_with("millrace = ")).unwrap().to_owned()
    };
    folder.stdout("new one --git https://example.com/m.git");
    assert_eq!(dependency("one"), "millrace = { package = \"millrace-net\", git = \"https://example.com/m.git\" }");
    folder.stdout("new two --git git@example.com:m.git --rev v0.1.0");
    assert_eq!(
        dependency("two"),
        "millrace = { package = \"millrace-net\", git = \"git@example.com:m.git\", rev = \"v0.1.0\" }"
    );
    folder.stdout(&format!("new three --path {CRATE}/../.."));
    assert!(dependency("three").contains("path = \"/") && !dependency("three").contains("version"));
    for (line, said) in [
        ("new four", "--path <FOLDER>|--git <URL>"),
        ("new four --path a --git b:c", "cannot be used with"),
        ("new four --git ../millrace", "use --path for a folder"),
        ("new four --git a:\"b", "not a valid git name"),
        ("new four --path . --rev main", "--git"),
    ] {
        let (code, error) = folder.fails(line);
        assert!(code == 2 && error.contains(said), "{line}: {error}");
    }
    assert!(!folder.path("four").exists());
}

#[test]
fn a_crate_is_written_under_the_name_that_was_asked_for() {
    let folder = Folder::empty();
    let said = folder.stdout(&format!("new my-guard --path {CRATE}"));
    assert!(said.contains("cd my-guard") && said.contains("functions my-guard"), "{said}");
    let read = |name: &str| fs::read_to_string(folder.path("my-guard").join(name)).unwrap();
    for name in
        ["Cargo.toml", "README.md", "src/lib.rs", "src/main.rs", "tests/engines.rs", "tests/cases.toml", "clippy.toml"]
    {
        assert!(!read(name).to_lowercase().contains("skeleton"), "{name}");
    }
    let manifest = read("Cargo.toml");
    for part in [
        "name = \"my-guard\"",
        "millrace = { package = \"millrace-net\", path = \"/",
        "crates/millrace\" }",
        "[profile.profiling]\ninherits = \"release\"\ndebug = \"line",
    ] {
        assert!(manifest.contains(part), "{part}: {manifest}");
    }
    assert!(
        read("src/lib.rs").contains("#![no_std]\n#![forbid(unsafe_code)]")
            && read("src/lib.rs").contains("pub struct MyGuard")
    );
    assert!(
        read("src/main.rs").contains("use my_guard::MyGuard;")
            && read("tests/engines.rs").contains("use my_guard::{Config, MyGuard};")
    );
    folder.stdout(&format!("new other --into deep/er --path {CRATE}/../.."));
    assert!(folder.path("deep/er/src/lib.rs").exists());
}

#[test]
fn nothing_is_written_over_and_slips_are_told() {
    let folder = Folder::empty();
    fs::create_dir(folder.path("taken")).unwrap();
    fs::write(folder.path("taken/file"), "mine").unwrap();
    for (line, said) in [
        ("new taken --git a:b", "exists and is not an empty folder"),
        ("new My_Function --git a:b", "lower case letters"),
        ("new ../away --git a:b", "lower case letters"),
        ("new core --git a:b", "is reserved"),
        ("new match --git a:b", "is reserved"),
        ("new config --git a:b", "is reserved"),
        ("new nat --git a:b", "the function `nat` exists already"),
        ("new fine --path taken", "has no crate `millrace-net`"),
    ] {
        let (code, out, error) = folder.run(line);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(out.is_empty() && error.contains(said), "{line}: {error}");
    }
    let names: Vec<_> = fs::read_dir(folder.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["taken"], "nothing else was written");
    fs::write(folder.path("file"), "mine").unwrap();
    assert_eq!(folder.run("new file --git a:b").0, 2);
}
