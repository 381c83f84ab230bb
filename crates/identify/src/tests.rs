//! Tests of all signatures together.

use std::string::String;
use std::vec::Vec;

use crate::Signatures;
use crate::automaton::Automaton;
use crate::built_in::{FILES, Reads, SIZE_MAX, files, regexes};
use crate::compiled;
use crate::file::SignatureFile;

#[test]
fn examples_of_the_built_in_files() {
    let signatures = Signatures::built_in();
    let mut wrong: Vec<String> = Vec::new();
    for (name, text) in FILES {
        let read = SignatureFile::parse(text, name).expect("the file is well-formed");
        for vector in &read.vectors {
            let alone = SignatureFile {
                protocols: read.protocols.clone(),
                patterns: Vec::new(),
                vectors: Vec::from([vector.clone()]),
            };
            if let Err(error) = signatures.check_examples(&alone, name) {
                wrong.push(std::string::ToString::to_string(&error));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the build script has written is what a user's signatures would be compiled to, in the order of the patterns' numbers.
#[test]
fn the_built_in_automata_are_those_of_the_files() {
    let signatures = Signatures::built_in();
    for reads in Reads::ALL {
        let files = files().expect("the files are well-formed");
        let regexes = regexes(&files, reads);
        assert_eq!(signatures.regexes(reads), regexes, "{reads:?}: the order");
        let compiled = Automaton::new(&regexes, SIZE_MAX).expect("it fits");
        let is_big_endian = cfg!(target_endian = "big");
        assert!(compiled.to_bytes(is_big_endian) == compiled::load(reads).to_bytes(is_big_endian), "{reads:?}");
    }
}
