//! Tests of all signatures together.

use alloc::string::ToString;

use crate::file::SignatureFile;
use crate::signatures::FILES;
use crate::{Answer, Prefixes, Signatures};

#[test]
fn examples_of_the_built_in_files() {
    let signatures = Signatures::built_in();
    let mut examples = 0;
    for (name, text) in FILES {
        let read = SignatureFile::parse(text, name).expect("the file is well-formed");
        examples += read.vectors.len();
        let checked = signatures.check_examples(&read, name);
        assert!(checked.is_ok(), "{}", checked.unwrap_err());
    }
    assert!(examples > 100, "{examples}");
}

#[test]
fn prints() {
    let signatures = Signatures::built_in();
    std::println!("{} protocols, {} KiB", signatures.protocols().count(), signatures.memory() / 1024);
    let _ = ("".to_string(), Answer::More, Prefixes::default());
}
