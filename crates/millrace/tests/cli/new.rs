//! `millrace new` as a user types it. That what it writes compiles and holds is `skeleton_test`'s.

use std::fs;

use crate::folder::Folder;

#[test]
fn a_crate_is_written_under_the_name_that_was_asked_for() {
    let folder = Folder::empty();
    let said = folder.stdout("new my-guard");
    assert!(said.contains("cd my-guard") && said.contains("functions my-guard"), "{said}");
    let read = |name: &str| fs::read_to_string(folder.path("my-guard").join(name)).unwrap();
    for name in
        ["Cargo.toml", "README.md", "src/lib.rs", "src/main.rs", "tests/engines.rs", "tests/cases.toml", "clippy.toml"]
    {
        assert!(!read(name).to_lowercase().contains("skeleton"), "{name}");
    }
    let manifest = read("Cargo.toml");
    for part in
        ["name = \"my-guard\"", "crates/millrace", "[profile.profiling]\ninherits = \"release\"\ndebug = \"line"]
    {
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
    folder.stdout("new other --into deep/er");
    assert!(folder.path("deep/er/src/lib.rs").exists());
}

#[test]
fn nothing_is_written_over_and_slips_are_told() {
    let folder = Folder::empty();
    fs::create_dir(folder.path("taken")).unwrap();
    fs::write(folder.path("taken/file"), "mine").unwrap();
    for (line, said) in [
        ("new taken", "is there already, and no empty folder"),
        ("new My_Function", "lower case letters"),
        ("new ../away", "lower case letters"),
        ("new core", "means something else"),
        ("new match", "means something else"),
        ("new config", "means something else"),
        ("new nat", "there is a function `nat` already"),
        ("new fine --millrace taken", "has no crate `millrace` in it"),
    ] {
        let (code, out, error) = folder.run(line);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(out.is_empty() && error.contains(said), "{line}: {error}");
    }
    let names: Vec<_> = fs::read_dir(folder.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["taken"], "nothing else was written");
    fs::write(folder.path("file"), "mine").unwrap();
    assert_eq!(folder.run("new file").0, 2);
}
