//! A function that uses a clock, a thread, a file, random numbers or unsafe code does not compile. Function crates are `no_std` and
//! forbid unsafe code: each case is a crate with the same two lines. Clippy refuses atomics and cells, and says what to use instead.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cases that don't compile: name, line in the step, and beginning of the compiler's message.
const CASES: [(&str, &str, &str); 8] = [
    ("nothing", "", ""),
    ("clock", "let _ = std::time::Instant::now();", NO_STD),
    ("wall_clock", "count.0 = ::std::time::SystemTime::now().elapsed().map_or(0, |age| age.as_secs());", NO_STD),
    ("thread", "std::thread::spawn(|| ());", NO_STD),
    ("file", "let _ = std::fs::read(\"/etc/hostname\");", NO_STD),
    ("random", "count.0 ^= std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);", NO_STD),
    ("lock", "let _ = std::sync::Mutex::new(0).lock();", NO_STD),
    // A string, not an unsafe block of this crate: the compiler must refuse it.
    ("raw", "let count = unsafe { &mut *core::ptr::from_mut(count) };", UNSAFE),
];

/// Cases that compile and clippy refuses: name, line, lint, and advice.
const DISALLOWED: [(&str, &str, &str, &str); 4] = [
    (
        "atomic",
        "static SEEN: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0); count.0 ^= SEEN.fetch_add(1, \
         core::sync::atomic::Ordering::Relaxed);",
        "disallowed type `core::sync::atomic::AtomicU64`",
        "keep it in the flow, or share it as `M::Vector` or `M::Distributed`",
    ),
    (
        "cell",
        "let cell = core::cell::Cell::new(1); cell.set(2); count.0 ^= cell.get();",
        "disallowed type `core::cell::Cell`",
        "a handler changes its flow, or what it shares by `cx.shared`, and nothing else",
    ),
    (
        "lazy",
        "let lazy = core::cell::LazyCell::new(|| 1); count.0 ^= *lazy;",
        "disallowed type `core::cell::LazyCell`",
        "where the function is built",
    ),
    (
        "spins",
        "core::hint::spin_loop();",
        "disallowed method `core::hint::spin_loop`",
        "there is nothing to wait for in a step",
    ),
];

const NO_STD: &str = "error[E0433]: ";
const UNSAFE: &str = "error: usage of an `unsafe` block";

#[test]
fn a_function_that_reaches_out_does_not_compile() {
    let folder = prepare("refused", &CASES.map(|(name, line, _)| (name, line)));
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--keep-going", "--examples", "--message-format", "short"])
        .args(["--target-dir".as_ref(), folder.join("target").as_os_str()])
        .current_dir(&folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "all of them compile: {said}");
    let here = line_of(&template(), "// REACHES");
    for (name, _, words) in CASES {
        let of_case: Vec<&str> =
            said.lines().filter(|line| line.starts_with(&format!("examples/{name}.rs:"))).collect();
        if words.is_empty() {
            assert!(!said.contains(name), "a function that reaches for nothing compiles: {said}");
            continue;
        }
        let right = of_case
            .iter()
            .find(|line| line.starts_with(&format!("examples/{name}.rs:{here}:")) && line.contains(words));
        let Some(line) = right else { panic!("{name} should fail at line {here} with `{words}`: {said}") };
        assert!(words != NO_STD || line.contains("`std`"), "{line}");
        println!("{line}");
        let errors = of_case.iter().filter(|line| line.contains(" error")).count();
        let expected = of_case.iter().filter(|line| line.contains(&format!(":{here}:"))).count();
        assert_eq!(errors, expected, "{name} fails for another reason too: {said}");
    }
}

/// State beside the flows: name, field, and the compiler's advice.
const STATE_BESIDE_FLOWS: [(&str, &str, &[&str]); 3] = [
    ("keeps_nothing", "pub struct Counter;", &[]),
    (
        "keeps_a_cell",
        "pub struct Counter(core::cell::Cell<u64>);",
        &[
            "`core::cell::Cell<u64>` cannot be shared",
            "no Cell: what changes from packet to packet goes into `type Flow`",
            "M::Vector",
        ],
    ),
    (
        "keeps_a_pointer",
        "extern crate alloc; pub struct Counter(alloc::rc::Rc<u64>);",
        &["cannot be sent", "no Rc: what changes from packet to packet goes into `type Flow`", "M::Vector"],
    ),
];

#[test]
fn the_compiler_says_where_state_belongs() {
    let folder = prepare("kept", &STATE_BESIDE_FLOWS.map(|(name, ..)| (name, "")));
    for (name, field, _) in STATE_BESIDE_FLOWS {
        let text = template().replace("pub struct Counter;", field);
        write(&folder.join("examples").join(format!("{name}.rs")), &text);
    }
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--keep-going", "--examples"])
        .args(["--target-dir".as_ref(), folder.join("target").as_os_str()])
        .current_dir(&folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (name, _, words) in STATE_BESIDE_FLOWS {
        let of_case = said.split("\nerror").filter(|message| message.contains(&format!("examples/{name}.rs:")));
        let of_case = of_case.collect::<String>();
        assert_eq!(of_case.is_empty(), words.is_empty(), "{name}: {said}");
        for word in words {
            assert!(of_case.contains(word), "{name} should be told `{word}`: {said}");
        }
    }
}

#[test]
fn what_compiles_and_is_not_to_be_is_clippys() {
    let cases = DISALLOWED.map(|(name, line, ..)| (name, line));
    let folder = prepare("disallowed", &[&[("nothing", "")], &cases[..]].concat());
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--quiet", "--keep-going", "--examples"])
        .args(["--target-dir".as_ref(), folder.join("target").as_os_str()])
        .args(["--", "-D", "clippy::disallowed_types", "-D", "clippy::disallowed_methods"])
        .current_dir(&folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "clippy has nothing against any of them: {said}");
    assert!(!said.contains("nothing.rs"), "a function that reaches for nothing is fine: {said}");
    let here = line_of(&template(), "// REACHES");
    for (name, _, what, instead) in DISALLOWED {
        let place = format!("examples/{name}.rs:{here}:");
        let message = said.split("\n\n").find(|message| message.contains(&place) && message.contains(what));
        let Some(message) = message else { panic!("{name} should be told `{what}`: {said}") };
        assert!(message.contains(instead), "{name}: {message}");
        println!("{message}");
    }
}

/// The functions crate has the two lines of the cases, and uses the standard library only in tests.
#[test]
fn the_function_crates_say_so_themselves() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    for root in [ours.to_path_buf(), ours.join("../nf"), ours.join("../packet")] {
        let text = fs::read_to_string(root.join("src/lib.rs")).expect("a crate has a root");
        for line in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(text.lines().any(|own| own == line), "{}: {line}", root.display());
            assert!(template().lines().any(|own| own == line), "the cases have {line}");
        }
    }
    let mut sources = Vec::new();
    gather(&ours.join("src"), &mut sources);
    assert!(sources.len() > 15, "{sources:?}");
    for path in sources {
        let text = fs::read_to_string(&path).expect("it can be read");
        let mut before = "";
        for line in text.lines() {
            let brings = line.trim_start().starts_with("extern crate") && !line.contains("extern crate alloc;");
            assert!(!brings || before == "#[cfg(test)]", "{}: {line}", path.display());
            before = line;
        }
    }
}

fn gather(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            gather(&path, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push(path);
        }
    }
}

fn template() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused/counter.rs");
    fs::read_to_string(path).expect("the template lies beside the test")
}

/// Returns the number of the line with these words.
fn line_of(text: &str, words: &str) -> usize {
    text.lines().position(|line| line.contains(words)).expect("it has such a line") + 1
}

/// Creates a package with the cases as examples. It uses the workspace's lock file, so nothing is downloaded, and the three crates that a
/// function needs.
fn prepare(package: &str, cases: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there");
    fs::create_dir_all(folder.join("examples")).expect("the target folder can be written");
    fs::create_dir_all(folder.join("src")).expect("the target folder can be written");
    let mut manifest =
        String::from("[package]\nname = \"refused\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n");
    for name in ["packet", "memory", "nf"] {
        let path = workspace.join("crates").join(name);
        manifest += &format!("{name} = {{ package = \"millrace-{name}\", path = {path:?} }}\n");
    }
    for (name, line) in cases {
        manifest += &format!("\n[[example]]\nname = \"{name}\"\ncrate-type = [\"lib\"]\n");
        write(&folder.join("examples").join(format!("{name}.rs")), &template().replace("// REACHES", line));
    }
    write(&folder.join("Cargo.toml"), &manifest);
    write(&folder.join("src/lib.rs"), "#![no_std]\n");
    let lints =
        fs::read_to_string(workspace.join("crates/functions/clippy.toml")).expect("the lints lie beside the functions");
    write(&folder.join("clippy.toml"), &lints);
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).expect("the workspace has a lock file");
    write(&folder.join("Cargo.lock"), &lock);
    folder
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the target folder can be written");
}
