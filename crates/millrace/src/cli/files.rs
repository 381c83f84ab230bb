//! Captures in and captures out, with the slips that would destroy something refused before anything is opened.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use port::pcap::{Capture, Container, Progress, Reader, Writer, same_file};

use super::failure::Failed;

/// The capture formats that can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// Classic pcap: one link type.
    Pcap,
    /// pcapng: any interfaces.
    Pcapng,
}

impl From<Format> for Container {
    fn from(format: Format) -> Self {
        match format {
            Format::Pcap => Self::Pcap,
            Format::Pcapng => Self::PcapNg,
        }
    }
}

/// Whether the name stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens an input and, where there is one, an output of packets that grow by so many bytes on their way through.
pub(super) fn open(
    input: &Path,
    output: Option<&Path>,
    format: Option<Format>,
    growth: u32,
) -> Result<(Capture, Progress), Failed> {
    if let Some(output) = output {
        refuse_output(output)?;
        if same_file(input, output) {
            let (input, output) = (input.display(), output.display());
            return Err(Failed::usage(format_args!("{output} is the input {input} itself; write to another file")));
        }
    }
    let reader = Reader::open(input)?;
    let progress = reader.progress();
    let writer = match output {
        Some(output) => {
            let writer = Writer::create(output, format.map(Container::from), Some(&reader.format()))?;
            Some(writer.growing(growth))
        }
        None => None,
    };
    Ok((Capture::new(reader, writer), progress))
}

/// Refuses to write bytes to a screen.
pub(super) fn refuse_output(output: &Path) -> Result<(), Failed> {
    if is_standard(output) && stdout().is_terminal() {
        return Err(Failed::usage("a capture on the screen helps nobody; send standard output to a file or a program"));
    }
    Ok(())
}

/// The name in messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    if is_standard(path) { PathBuf::from(STANDARD_INPUT) } else { path.to_owned() }
}

/// What standard input is called where names are shown.
const STANDARD_INPUT: &str = "standard input";

/// A name as a shell takes it back: quoted where it must be, and `-` for standard input.
pub(super) fn for_shell(name: &str) -> String {
    if name == STANDARD_INPUT {
        return "-".to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if name.bytes().all(plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::for_shell;

    #[test]
    fn names_come_back_from_a_shell() {
        assert_eq!(for_shell("a/b-1.pcap"), "a/b-1.pcap");
        assert_eq!(for_shell("a b's.pcap"), "'a b'\\''s.pcap'");
        assert_eq!(for_shell("standard input"), "-");
    }
}
