//! Opens captures to read and to write. Mistakes that would destroy a file are refused before anything is opened.

use std::io::{self, IsTerminal, Read, stdout};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::ValueEnum;
use port::pcap::{Capture, Container, Progress, Writer, same_file};

use super::captures::{Captures, Tap};
use super::failure::Failed;

/// The capture formats that can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// Classic pcap: one link type for the whole file
    Pcap,
    /// pcapng: several interfaces, each with its link type
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

/// True if the name stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The bytes of standard input. It is read once; all options that name it get the same text.
static STANDARD: OnceLock<Vec<u8>> = OnceLock::new();

/// Reads standard input, at most `bytes_max` bytes and one more.
pub(super) fn read_standard(bytes_max: u64) -> io::Result<&'static [u8]> {
    if let Some(bytes) = STANDARD.get() {
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(STANDARD.get_or_init(|| bytes))
}

/// True if standard input was read as a file of text, so that no capture can come from it.
pub(super) fn is_standard_read() -> bool {
    STANDARD.get().is_some()
}

/// Opens captures and, if given, an output for packets that grow by `growth` bytes. Calls `tap` for each packet taken.
pub(super) fn open(
    captures: &Captures,
    packets: Option<u64>,
    tap: Option<Tap>,
    output: Option<&Path>,
    format: Option<Format>,
    growth: u32,
) -> Result<(Capture, Progress), Failed> {
    if let Some(output) = output {
        refuse_output(output, format)?;
        captures.refuse_output(output)?;
    }
    let reader = captures.open_with(tap)?.limited(packets.unwrap_or(u64::MAX));
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

/// Refuses to write binary data to a terminal, or a capture with the extension of another format.
pub(super) fn refuse_output(output: &Path, format: Option<Format>) -> Result<(), Failed> {
    if let Some(extension) = unknown(output).filter(|_| format.is_none()) {
        return Err(Failed::usage(format_args!(
            "{}: `.{extension}` is not a capture format; use .pcap or .pcapng, with or without .gz or .zst, or give \
             --format pcap or --format pcapng",
            output.display()
        )));
    }
    if is_standard(output) && stdout().is_terminal() {
        return Err(Failed::usage(
            "refusing to write a capture to the terminal; redirect standard output to a file or a program",
        ));
    }
    Ok(())
}

/// Refuses an output file that has another use in the same run.
pub(super) fn refuse_same(file: &Path, others: &[(&str, Option<&Path>)]) -> Result<(), Failed> {
    // A file that isn't there yet has a folder that is.
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((folder.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    let is_same = |other: &Path| {
        other == file || same_file(file, other) || place(file).is_some_and(|here| Some(here) == place(other))
    };
    match others.iter().find(|(_, other)| other.is_some_and(is_same)) {
        Some((what, _)) => {
            let name = file.display();
            Err(Failed::usage(format_args!("{name} is also {what}; write to another file")))
        }
        None => Ok(()),
    }
}

/// Returns true if the file name has the extension of a capture.
pub(super) fn is_capture(path: &Path) -> bool {
    Container::named(path).is_some()
}

/// The extension of a file name, if it is not that of a capture.
pub(super) fn unknown(output: &Path) -> Option<String> {
    let name = output.file_name()?.to_string_lossy().to_lowercase();
    let stem = [".gz", ".zst"].into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    // A leading dot does not start an extension.
    let (before, ending) = stem.rsplit_once('.')?;
    let is_known = ["pcap", "pcapng", "cap", "dmp", "ntar"].contains(&ending);
    (!before.is_empty() && !is_known).then(|| ending.to_owned())
}

/// The name for messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    if is_standard(path) { PathBuf::from("standard input") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::unknown;

    #[test]
    fn endings_are_those_of_captures_or_none() {
        for good in ["a.pcap", "a.PcapNG.zst", "x.y/a.cap.gz", "-", "/dev/null", "out", "out.zst", ".hidden", "a.dmp"] {
            assert_eq!(unknown(Path::new(good)), None, "{good}");
        }
        for (bad, ending) in
            [("a.csv", "csv"), ("a.csv.gz", "csv"), ("a.pcap.xz", "xz"), ("a.b.", ""), ("a.json", "json")]
        {
            assert_eq!(unknown(Path::new(bad)).as_deref(), Some(ending), "{bad}");
        }
    }
}
