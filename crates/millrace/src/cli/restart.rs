//! Flows that outlive a run: `--restore`, `--snapshot` and `millrace ctl snapshot`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use catalogue::{CatalogueEntry, Program, Restart, Runs, Snapshot, SnapshotError};
use engine::{Control, EngineError, EngineKind, Options, Outcome};
use port::{Port, pcap};

use super::failure::Failed;
use super::{Configuration, files};
use crate::print::number::{bytes as in_bytes, counted};
use crate::print::output::{note, remark};
use crate::print::style::Style;

/// A run that has ended, and whether its snapshot was written.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) saved: Result<(), Failed>,
}

impl Ended {
    /// A run without a snapshot.
    pub(super) const fn unsaved(outcome: Outcome) -> Self {
        Self { outcome, saved: Ok(()) }
    }
}

/// A run's configuration as text, and the arguments and the function by which another one is read.
pub(super) struct Configured<'a> {
    pub(super) entry: &'a CatalogueEntry,
    pub(super) configuration: &'a Configuration,
    /// The settings that the run has now, as text.
    pub(super) settings: Arc<Mutex<String>>,
}

/// Options of runs whose flows outlive them.
#[derive(clap::Args)]
pub(super) struct RestartOptions {
    /// Begin with the flows of this snapshot, of the same function under any engine. They count as opened. A configuration that has changed
    /// since takes over before the first packet, as by `millrace ctl reload`
    #[arg(long, value_name = "FILE", value_parser = file)]
    restore: Option<PathBuf>,
    /// Write the flows to this file at the end, for --restore; `millrace ctl snapshot` does it meanwhile. A link is followed
    #[arg(long, value_name = "FILE", value_parser = file)]
    snapshot: Option<PathBuf>,
    /// Begin without flows if the file of --restore doesn't exist, as at the first start of a service
    #[arg(long, requires = "restore")]
    if_exists: bool,
}

impl RestartOptions {
    /// The file that the flows go to.
    pub(super) fn snapshot(&self) -> Option<&Path> {
        self.snapshot.as_deref()
    }

    /// The file that flows come from.
    pub(super) fn restored(&self) -> Option<&Path> {
        self.restore.as_deref()
    }

    /// The snapshot to begin with.
    pub(super) fn read(&self) -> Result<Option<Snapshot>, Failed> {
        let Some(path) = &self.restore else { return Ok(None) };
        let name = path.display();
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if self.if_exists && error.kind() == io::ErrorKind::NotFound => {
                remark(&format!("{name} doesn't exist; the run begins without flows\n"));
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failed::input(format_args!(
                    "{name} doesn't exist; add --if-exists to begin without flows in this case"
                )));
            }
            Err(error) => return Err(Failed::input(format_args!("{name}: can't be read: {error}"))),
        };
        let snapshot = Snapshot::read(&bytes);
        let wrong = |error| Failed::input(format_args!("{name}: {error}; leave --restore out to begin without flows"));
        Ok(Some(snapshot.map_err(wrong)?))
    }

    /// Refuses a file that can't be written at the end, before anything runs.
    fn check_place(&self) -> Result<(), Failed> {
        let Some(path) = &self.snapshot else { return Ok(()) };
        let checked = replaceable(path).and_then(|target| {
            tempfile_in(target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
        });
        checked.map_err(|error| {
            Failed::input(format_args!("--snapshot {}: can't be written at the end: {error}", path.display()))
        })
    }

    /// Runs a program over a port, with the flows of the snapshot, and writes those that it leaves behind.
    #[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
    pub(super) fn over(
        &self,
        program: &dyn Program,
        (kind, cores): (EngineKind, usize),
        options: Options,
        port: &mut (dyn Port + Send),
        control: &Control,
        configured: Configured<'_>,
        wait: impl FnOnce(Box<dyn Runs + '_>) -> Result<Outcome, EngineError>,
    ) -> Result<Ended, Failed> {
        let snapshot = self.read()?;
        self.check_place()?;
        let name = self.restore.as_ref().or(self.snapshot.as_ref()).map(|path| path.display());
        let refused = |error: SnapshotError| match &name {
            Some(name) => Failed::usage(format_args!("{name}: {error}")),
            None => Failed::usage(error),
        };
        let Configured { entry, configuration, settings } = configured;
        let now = settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let before =
            snapshot.as_ref().map(|snapshot| entry.of_snapshot(snapshot, &now)).transpose().map_err(refused)?;
        let (mut program, mut successor) = (program, None);
        let before = before.flatten();
        if let Some(before) = &before {
            program = &**before;
            successor = Some(entry.load(&configuration.settings()?)?);
        }
        let (left_behind, at_end) = self.snapshot.as_ref().map(|_| channel()).unzip();
        let (send, receive) = (left_behind, at_end);
        let outcome = thread::scope(|scope| {
            if snapshot.is_none() && send.is_none() {
                return Ok(wait(program.start(scope, kind, cores, options, port, control)));
            }
            let restart = Restart { from: snapshot.as_ref(), successor, configuration: settings, at_end: send };
            let running = program.start_from(restart, scope, kind, cores, options, port, control)?;
            if let (Some(snapshot), Some(path)) = (&snapshot, &self.restore) {
                remark(&format!("{}: {} to go on with\n", path.display(), content(snapshot)));
            }
            Ok(wait(running))
        });
        let outcome = match outcome {
            Ok(outcome) => outcome.map_err(|error| match error {
                EngineError::Port(error) => Failed::usage(error),
                error => Failed::from(error),
            })?,
            Err(error) => return Err(refused(error)),
        };
        let saved = match (receive, &self.snapshot) {
            (Some(receive), Some(path)) => write_at_end(&receive, path),
            _ => Ok(()),
        };
        Ok(Ended { outcome, saved })
    }

    /// Refuses to restore where the card steers: nobody knows which core gets a flow's packets.
    pub(super) fn refuse_with_card(&self, kind: EngineKind, cores: usize) -> Result<(), Failed> {
        match self.restore {
            Some(_) if cores > 1 && kind != EngineKind::Shared => Err(Failed::usage(
                "--restore needs to know which core gets a flow's packets, but the card steers; leave --card-steers out, or take \
                 --engine shared",
            )),
            _ => Ok(()),
        }
    }
}

/// Reads the name of a snapshot's file, which has to be one.
pub(super) fn file(name: &str) -> Result<PathBuf, &'static str> {
    if files::is_standard(Path::new(name)) {
        return Err("a snapshot is no stream; name a file");
    }
    Ok(PathBuf::from(name))
}

/// Describes the content of a snapshot.
pub(super) fn content(snapshot: &Snapshot) -> String {
    let flows = counted(snapshot.len(), "flow", "flows");
    match snapshot.shared_bytes() {
        0 => flows,
        bytes => format!("{flows}, and what packet sets share ({})", in_bytes(bytes)),
    }
}

/// Writes a snapshot under a name that it gets when it is whole, and is on the disk. Only its owner may read it: it has a configuration.
pub(super) fn write(snapshot: &Snapshot, path: &Path) -> io::Result<()> {
    write_with(path, |file| snapshot.write(file))
}

/// The file that a name leads to, if a snapshot may take its place: there is none yet, or it is a snapshot, of whatever format, or empty.
/// A device, or a file that was named by mistake, may not be lost.
fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let target = pcap::followed(path)?;
    let there = match fs::metadata(&target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
        there => there?,
    };
    if !there.is_file() {
        return Err(io::Error::other("this is no regular file"));
    }
    let mut head = Vec::new();
    File::open(&target)?.take(8).read_to_end(&mut head)?;
    if !head.is_empty() && matches!(Snapshot::read(&head), Err(SnapshotError::NoSnapshot)) {
        return Err(io::Error::other("this file is no snapshot, and would be lost; remove it, or take another name"));
    }
    Ok(target)
}

/// Writes a file that gets its name when it is whole, in place of what [may be replaced](replaceable).
fn write_with(path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let target = replaceable(path)?;
    let path = target.as_path();
    let mut name = path.file_name().ok_or_else(|| io::Error::other("this is no name of a file"))?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let unfinished = path.with_file_name(name);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        content(&mut file)?;
        file.flush()?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        // Nothing can be done about a file that stays, and the error is told.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Makes and removes a file in a folder.
fn tempfile_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".millrace-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)
}

/// Writes the snapshot that a run leaves behind.
fn write_at_end(snapshot: &Receiver<Snapshot>, path: &Path) -> Result<(), Failed> {
    let name = path.display();
    let Ok(snapshot) = snapshot.recv() else {
        note(&format!("{} {name}: a run that fails leaves no snapshot\n", Style::stderr().bad("error:")));
        return Ok(());
    };
    write(&snapshot, path).map_err(|error| Failed::input(format_args!("{name}: can't be written: {error}")))?;
    remark(&format!("{name}: {}\n", content(&snapshot)));
    Ok(())
}
