//! Compiles the built-in patterns to automata, which takes longer than a short capture does.
#![allow(dead_code, reason = "the modules are the crate's own, and only parts of them are needed here")]
#![allow(unreachable_pub, missing_docs)]

extern crate alloc;

#[path = "src/answer.rs"]
mod answer;
#[path = "src/automaton.rs"]
mod automaton;
#[path = "src/built_in.rs"]
mod built_in;
#[path = "src/file.rs"]
mod file;

use std::env;
use std::fs;
use std::path::PathBuf;

use automaton::Automaton;
use built_in::Reads;

fn main() {
    for part in ["answer.rs", "automaton.rs", "built_in.rs", "file.rs"] {
        println!("cargo::rerun-if-changed=src/{part}");
    }
    println!("cargo::rerun-if-changed=signatures");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let is_big_endian = env::var_os("CARGO_CFG_TARGET_ENDIAN").is_some_and(|endian| endian == "big");
    let files = built_in::files().unwrap_or_else(|error| panic!("signatures/{error}"));
    for reads in Reads::ALL {
        let automaton =
            Automaton::new(&built_in::regexes(&files, reads), built_in::SIZE_MAX).expect("the built-in patterns fit");
        let [states, later] = automaton.to_bytes(is_big_endian);
        let name = format!("{reads:?}").to_lowercase();
        fs::write(out.join(&name).with_extension("states"), states).expect("cargo made the folder");
        fs::write(out.join(&name).with_extension("later"), later).expect("cargo made the folder");
    }
}
