//! Waiting for several sockets.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use crate::INTERFACES_MAX;

/// Waits until one of the sockets can be read, or for `at_most`. Calls `broken` with each socket that has an error.
///
/// # Errors
/// The kernel's error. A signal is none: the wait is over early.
///
/// # Panics
/// There are more sockets than [`INTERFACES_MAX`].
pub fn wait(sockets: impl Iterator<Item = RawFd>, at_most: Duration, mut broken: impl FnMut(RawFd)) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; INTERFACES_MAX];
    let mut count = 0;
    for fd in sockets {
        polled[count].fd = fd;
        count += 1;
    }
    let time =
        libc::timespec { tv_sec: at_most.as_secs().min(3600) as libc::time_t, tv_nsec: at_most.subsec_nanos() as _ };
    // SAFETY: the first `count` entries are set, and the time lives.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count as libc::nfds_t, &raw const time, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    let usual = libc::POLLIN | libc::POLLOUT;
    polled[..count].iter().filter(|one| one.revents & !usual != 0).for_each(|one| broken(one.fd));
    Ok(())
}
