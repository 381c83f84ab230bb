//! Tests of all signatures together.

use std::string::String;
use std::vec::Vec;

use crate::Signatures;
use crate::file::SignatureFile;
use crate::signatures::FILES;

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
