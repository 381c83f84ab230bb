//! Lines over a socket, bounded in bytes and in time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest line in bytes, without its end: a large rule set as JSON.
pub const LINE_MAX: usize = 32 << 20;

/// Reads a line, without its end, within a time. The end of the stream ends a line, too.
pub(crate) fn read(stream: &mut UnixStream, within: Duration) -> io::Result<Vec<u8>> {
    let end = Instant::now() + within;
    let mut line = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        let len = match stream.read(&mut part) {
            Ok(0) => return Ok(line),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(timely(error)),
        };
        let part = &part[..len];
        let stop = part.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..stop.unwrap_or(len)]);
        if line.len() > LINE_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("a line is longer than {} MiB", LINE_MAX >> 20),
            ));
        }
        if stop.is_some() {
            return Ok(line);
        }
    }
}

/// Writes a line and its end within a time.
pub(crate) fn write(stream: &mut UnixStream, line: &[u8], within: Duration) -> io::Result<()> {
    let end = Instant::now() + within;
    for mut part in [line, b"\n"] {
        while !part.is_empty() {
            stream.set_write_timeout(Some(left(end)?))?;
            match stream.write(part) {
                Ok(len) => part = &part[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(timely(error)),
            }
        }
    }
    Ok(())
}

/// The time that is left, at least a moment: the system takes zero for ever.
pub(crate) fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A timeout of a socket is told as if a call would block.
pub(crate) fn timely(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}
