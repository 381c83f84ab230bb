//! The client's end of a control socket.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::DaemonError;
use crate::line;
use crate::message::{Reply, Request};

/// Time for a run to take a request and to answer: it may compile a large rule set.
const WITHIN: Duration = Duration::from_secs(120);

/// Asks the run that listens at `path`.
///
/// # Errors
/// Nobody listens there, the socket is another user's, or no reply comes.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, DaemonError> {
    let failed = |action| move |source| DaemonError::Io { path: path.to_owned(), action, source };
    let mut run = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => DaemonError::Nobody(path.to_owned()),
        ErrorKind::PermissionDenied => DaemonError::NotAllowed(path.to_owned()),
        _ => failed("can't be asked")(error),
    })?;
    let request = serde_json::to_vec(request).map_err(|error| failed("can't be asked")(io::Error::other(error)))?;
    // A run that refuses to read on says why, so look for its answer first.
    let written = line::write(&mut run, &request, WITHIN);
    let reply = line::read(&mut run, WITHIN).map_err(failed("doesn't answer"))?;
    if reply.is_empty() {
        written.map_err(failed("can't be asked"))?;
    }
    let no_reply = |error: serde_json::Error| {
        let reason = if reply.is_empty() { "the run has ended meanwhile".to_owned() } else { error.to_string() };
        DaemonError::NoReply { path: path.to_owned(), reason }
    };
    serde_json::from_slice(&reply).map_err(no_reply)
}
