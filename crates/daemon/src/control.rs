//! The control socket of a run.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::error::DaemonError;
use crate::line;
use crate::message::{Reply, Request};

/// Time for a client to send its request, and to take its answer. Clients are served one after the other, and the run's other chores wait
/// meanwhile.
const WITHIN: Duration = Duration::from_secs(1);
/// Interval at which a waiting socket checks whether the run has ended.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A control socket. The file is removed on drop.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
    /// Device and number of the file, to remove no other.
    file: (u64, u64),
}

impl ControlSocket {
    /// Listens at `path`, with mode 0600. A socket that an ended run left there is replaced. The process must not create files on other
    /// threads meanwhile, since they would get the same mode.
    ///
    /// # Errors
    /// Another run listens there; another file is there; the system refuses.
    pub fn bind(path: &Path) -> Result<Self, DaemonError> {
        let failed = |action| move |source| DaemonError::Io { path: path.to_owned(), action, source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("can't be looked at")(error)),
            Ok(there) if !there.file_type().is_socket() => return Err(DaemonError::NoSocket(path.to_owned())),
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(DaemonError::InUse(path.to_owned())),
            Ok(_) => fs::remove_file(path).map_err(failed("the socket of an ended run can't be removed"))?,
        }
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let listener = bound.map_err(failed("can't listen there"))?;
        listener.set_nonblocking(true).map_err(failed("can't listen there"))?;
        let there = fs::symlink_metadata(path).map_err(failed("can't be looked at"))?;
        Ok(Self { path: path.to_owned(), listener, file: (there.dev(), there.ino()) })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers requests, one after the other, until `is_over` returns true. A client that is too slow, or writes what is no request, is told
    /// so and let go.
    pub fn serve(&self, is_over: impl Fn() -> bool, mut answer: impl FnMut(Request) -> Reply) {
        while !is_over() {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            // A signal ends the wait early, which does no harm.
            let _ = poll(&mut waiting, Some(&LOOK));
            while let Ok((client, _)) = self.listener.accept() {
                // A client that has gone hears nothing.
                let _ = converse(client, &mut answer);
                if is_over() {
                    return;
                }
            }
        }
    }
}

/// Answers one client.
fn converse(mut client: UnixStream, answer: &mut impl FnMut(Request) -> Reply) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let reply = match line::read(&mut client, WITHIN) {
        Ok(line) => match serde_json::from_slice::<Request>(&line) {
            Ok(request) => answer(request),
            Err(error) => Reply::Error(format!("this is no request: {error}")),
        },
        Err(error) => Reply::Error(format!("the request can't be read: {error}")),
    };
    let reply = serde_json::to_vec(&reply).map_err(io::Error::other)?;
    line::write(&mut client, &reply, WITHIN)
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.file) {
            // Nothing can be done about a file that stays: the next run replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}
