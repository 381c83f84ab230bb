//! A folder to type commands in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Every engine that takes a function whose packet sets share nothing.
pub(crate) const ENGINES: [&str; 8] = [
    "--engine sequential",
    "--engine rss --cores 2",
    "--engine rss++ --cores 3",
    "--engine scr --cores 2",
    "--engine hybrid --cores 2",
    "--engine shared --cores 2",
    "--engine transactional --cores 4",
    "--engine pipeline --cores 3 --ways 2",
];

/// A folder that is gone when the test ends.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// A folder with the demo's capture in it.
    pub(crate) fn new() -> Self {
        let folder = Self::empty();
        fs::write(folder.path("demo.pcap.zst"), millrace::DEMO_CAPTURE).unwrap();
        folder
    }

    /// A folder with nothing in it.
    pub(crate) fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The command, to be run in the folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.current_dir(self.root()).args(line.split_whitespace());
        command
    }

    /// The same, to be given an input or to be held to an outcome.
    pub(crate) fn millrace(&self, line: &str) -> assert_cmd::Command {
        self.command(line).into()
    }

    /// Runs the command: exit code, standard output, standard error.
    pub(crate) fn run(&self, line: &str) -> (i32, Vec<u8>, String) {
        let Output { status, stdout, stderr } = self.command(line).output().unwrap();
        (status.code().expect("it ends by itself"), stdout, String::from_utf8(stderr).unwrap())
    }

    /// Runs a command that ends well: standard output.
    pub(crate) fn stdout(&self, line: &str) -> String {
        let (code, stdout, stderr) = self.run(line);
        assert_eq!(code, 0, "{line}: {stderr}");
        String::from_utf8(stdout).unwrap()
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.stdout(line)).unwrap()
    }

    /// Runs a command that fails: exit code and standard error.
    pub(crate) fn fails(&self, line: &str) -> (i32, String) {
        let (code, _, stderr) = self.run(line);
        assert_ne!(code, 0, "{line}");
        (code, stderr)
    }
}
