//! The committed bytecode is what the compiler makes of its source.
#![allow(clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// The version that made the committed file; another one makes other instructions.
const CLANG: &str = "clang version 14.";

/// The part of an object file that runs.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    programs: [Program; 3],
    license: Vec<u8>,
}

/// A program's instructions, and the names that it uses with their places.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    instructions: Vec<u8>,
    names: Vec<(u64, String)>,
}

fn parts(file: &Path) -> Parts {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*bytes).expect("it is an object file");
    let section = |name| file.section_by_name(name).expect("it has the section");
    let program = |name| {
        let names = section(name).relocations().map(|(offset, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { panic!("only symbols are named") };
            (offset, file.symbol_by_index(index).and_then(|symbol| symbol.name()).expect("it has a name").to_owned())
        });
        let names = names.collect();
        Program { instructions: section(name).data().expect("it is there").to_vec(), names }
    };
    Parts {
        programs: ["xdp.frags", "xdp.frags/sequence", "xdp.frags/offload"].map(program),
        license: section("license").data().expect("it is there").to_vec(),
    }
}

#[test]
fn the_bytecode_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let version = |clang: &str| {
        let output = Command::new(clang).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    };
    let found: Vec<(&str, String)> =
        ["clang-14", "clang"].into_iter().filter_map(|clang| Some((clang, version(clang)?))).collect();
    let Some((clang, _)) = found.iter().find(|(_, version)| version.contains(CLANG)) else {
        let instead = found.first().map_or("clang is not installed", |(_, version)| version);
        eprintln!("SKIPPED (needs {CLANG}x: {instead}): the bytecode of bpf/xsk.c");
        return;
    };
    let made = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("xsk.o");
    // As the head of the source says.
    let output = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-nostdinc", "-Wall", "-Werror", "-c"])
        .arg(folder.join("xsk.c"))
        .arg("-o")
        .arg(&made)
        .output()
        .expect("it has just told its version");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (made, committed) = (parts(&made), parts(&folder.join("xsk.o")));
    assert!(made == committed, "bpf/xsk.o is not what {clang} makes of bpf/xsk.c; its head says how to make it again");
    assert_eq!(committed.license, b"MIT\0");
    let ours = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/xsk.o")).expect("it is in the crate");
    assert_eq!(ours, fs::read(folder.join("xsk.o")).expect("it is there"), "the crate's copy is the same file");
}
