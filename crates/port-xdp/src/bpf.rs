//! The system call bpf(2), as far as one XDP program needs it. Layouts: `union bpf_attr` of `linux/bpf.h`.

use std::ffi::{CString, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use interface::Area;

const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const LINK_UPDATE: c_int = 29;
const LINK_DETACH: c_int = 34;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// The program runs in the network stack.
pub(crate) const GENERIC: u32 = 1 << 1;
/// The program runs in the driver.
pub(crate) const NATIVE: u32 = 1 << 2;

/// Kinds of maps that the program uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    /// Interfaces that packets can be redirected to.
    Interfaces = 14,
    Sockets = 17,
}

/// Calls bpf(2) and returns what it returned.
fn call<T>(command: c_int, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: the attributes are a prefix of `union bpf_attr`, of the length given, and each caller's pointers in them are to memory of
    // the length that the command reads or writes.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_mut(attributes), size_of::<T>() as c_long)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls bpf(2) for a command that returns a new descriptor.
fn descriptor<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let number = call(command, attributes)?;
    // SAFETY: the kernel has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number as c_int) })
}

/// Up to 15 characters of a name, as the kernel shows it.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (byte, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *byte = from;
    }
    bytes
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    file: OwnedFd,
    key_len: usize,
    value_len: usize,
}

impl Map {
    /// Makes a map with keys of 4 bytes.
    pub(crate) fn new(kind: MapKind, name: &str, value_len: usize, entries: u32) -> io::Result<Self> {
        Self::with_flags(kind, name, (4, value_len), entries, 0)
    }

    /// Makes a table from keys of this length to numbers.
    pub(crate) fn table(name: &str, key_len: usize, entries: u32) -> io::Result<Self> {
        Self::with_flags(MapKind::Hash, name, (key_len, 4), entries, 0)
    }

    /// Makes an array whose values this process and the program both reach, one behind another, and maps it. Values are multiples of 8
    /// bytes.
    pub(crate) fn shared(name: &str, value_len: usize, entries: u32) -> io::Result<(Self, Area)> {
        const MAPPABLE: u32 = 1 << 10;
        assert!(value_len.is_multiple_of(8), "values lie side by side");
        let map = Self::with_flags(MapKind::Array, name, (4, value_len), entries, MAPPABLE)?;
        let area = Area::of_file(map.file.as_raw_fd(), value_len * entries as usize, 0)?;
        Ok((map, area))
    }

    fn with_flags(
        kind: MapKind,
        name: &str,
        (key_len, value_len): (usize, usize),
        entries: u32,
        flags: u32,
    ) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_len: u32,
            value_len: u32,
            entries: u32,
            flags: u32,
            inner_map: u32,
            numa_node: u32,
            name: [u8; 16],
        }
        let mut attributes = Attributes {
            kind: kind as u32,
            key_len: key_len as u32,
            value_len: value_len as u32,
            entries,
            flags,
            inner_map: 0,
            numa_node: 0,
            name: object_name(name),
        };
        Ok(Self { file: descriptor(MAP_CREATE, &mut attributes)?, key_len, value_len })
    }

    /// Sets a value.
    pub(crate) fn set(&self, key: u32, value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_len, "the kernel reads as much as the map's values have");
        self.element(MAP_UPDATE, &key.to_ne_bytes(), value.as_ptr() as u64)
    }

    /// Puts a number into a table.
    pub(crate) fn insert(&self, key: &[u8], number: u32) -> io::Result<()> {
        assert_eq!(self.value_len, 4, "the kernel reads as much as the map's values have");
        self.element(MAP_UPDATE, key, std::ptr::from_ref(&number) as u64)
    }

    /// Takes a key out of a table.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.element(MAP_DELETE, key, 0)
    }

    /// Returns the sum of a counter over all processors, of a map with a counter for each.
    pub(crate) fn sum(&self, key: u32) -> io::Result<u64> {
        assert_eq!(self.value_len, 8, "a counter has 8 bytes");
        // The kernel writes a value for each processor that may ever be there.
        let mut values = vec![0_u64; possible_processors()];
        self.element(MAP_LOOKUP, &key.to_ne_bytes(), values.as_mut_ptr() as u64)?;
        Ok(values.iter().sum())
    }

    fn element(&self, command: c_int, key: &[u8], value: u64) -> io::Result<()> {
        assert_eq!(key.len(), self.key_len, "the kernel reads as much as the map's keys have");
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let map = self.file.as_raw_fd() as u32;
        let key = key.as_ptr() as u64;
        call(command, &mut Attributes { map, padding: 0, key, value, flags: 0 }).map(drop)
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> c_int {
        self.file.as_raw_fd()
    }
}

/// The number of processors that the kernel has made room for, as in `0-3,8-11`.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    // More than any kernel is built for: too large a buffer does no harm, too small a one would be overrun.
    last.map_or(8192, |last| last + 1)
}

/// Loads an XDP program. The error has the end of the verifier's log.
pub(crate) fn load(
    instructions: &[u8],
    license: &str,
    name: &str,
    has_frags: bool,
) -> Result<OwnedFd, (io::Error, String)> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_len: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    let license = CString::new(license).expect("a license is text");
    let attempt = |log: &mut [u8]| {
        let mut attributes = Attributes {
            kind: PROG_TYPE_XDP,
            count: (instructions.len() / 8) as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_len: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: if has_frags { XDP_HAS_FRAGS } else { 0 },
            name: object_name(name),
        };
        descriptor(PROG_LOAD, &mut attributes)
    };
    attempt(&mut []).map_err(|error| {
        if error.raw_os_error() == Some(libc::EPERM) {
            return (error, String::new());
        }
        let mut log = vec![0; 1 << 20];
        // Only for its log.
        let _ = attempt(&mut log);
        let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        (error, lines[lines.len().saturating_sub(8)..].join("\n"))
    })
}

/// A program's attachment to an interface. It ends with the value, and however the process ends.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Attaches a program to an interface.
    pub(crate) fn new(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            kind: u32,
            flags: u32,
        }
        let program = program.as_raw_fd() as u32;
        descriptor(LINK_CREATE, &mut Attributes { program, interface, kind: ATTACH_XDP, flags }).map(Self)
    }

    /// Puts another program in the place of the attached one, between two packets.
    pub(crate) fn exchange(&self, program: &OwnedFd) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            link: u32,
            program: u32,
            flags: u32,
            old_program: u32,
        }
        let (link, program) = (self.0.as_raw_fd() as u32, program.as_raw_fd() as u32);
        call(LINK_UPDATE, &mut Attributes { link, program, flags: 0, old_program: 0 }).map(drop)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closing alone would not do: a process that is just being forked has the descriptor as well, until it runs another program.
        // Refused only where the interface is gone, and the attachment with it.
        let _ = call(LINK_DETACH, &mut self.0.as_raw_fd());
    }
}

/// Runs a program on a frame, for tests. Returns its action.
#[cfg(test)]
pub(crate) fn test_run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    const PROG_TEST_RUN: c_int = 10;
    #[repr(C)]
    struct Attributes {
        program: u32,
        action: u32,
        frame_len: u32,
        out_len: u32,
        frame: u64,
        out: u64,
        repeat: u32,
        duration: u32,
    }
    let program = program.as_raw_fd() as u32;
    let (frame, frame_len) = (frame.as_ptr() as u64, frame.len() as u32);
    let mut attributes =
        Attributes { program, action: 0, frame_len, out_len: 0, frame, out: 0, repeat: 1, duration: 0 };
    call(PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.action)
}
