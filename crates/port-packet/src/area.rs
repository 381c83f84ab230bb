//! The receive ring of a socket, mapped into this process.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

/// A mapping that the kernel writes too. It is reached by pointers alone.
#[derive(Debug)]
pub(crate) struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Who reads and writes what in it is settled where its pointers are used.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Maps the first `len` bytes of a socket's ring.
    pub(crate) fn of_socket(socket: RawFd, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory that there is.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, socket, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { start, len })
    }

    /// A part of the mapping.
    ///
    /// # Panics
    /// It exceeds the mapping.
    pub(crate) fn part(&self, start: usize, len: usize) -> NonNull<[u8]> {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "offset {start} exceeds a mapping of {} bytes", self.len);
        // SAFETY: within the mapping, as just checked.
        NonNull::slice_from_raw_parts(unsafe { self.start.add(start) }, len)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `of_socket`, and whoever has pointers into it holds it too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
