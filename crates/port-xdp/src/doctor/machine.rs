//! Facts about the machine and this process.

use std::{env, fs, io, mem, thread};

/// A fact, or why it can't be seen.
pub(super) type Seen<T> = Result<T, String>;

/// Facts about the machine and this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// As `uname -r` prints it.
    pub(super) release: String,
    /// True if the kernel has AF_XDP sockets.
    pub(super) has_sockets: Seen<bool>,
    pub(super) has_types: bool,
    /// The effective capabilities of the calling thread, a bit each.
    pub(super) capabilities: Seen<u64>,
    /// True if the process is in the machine's first user namespace: elsewhere capabilities don't count for XDP.
    pub(super) is_in_first_user_namespace: bool,
    /// Bytes that may be locked; `None` if there is no limit.
    pub(super) locked_limit: Option<u64>,
    /// Processors that this process may use.
    pub(super) processors: u32,
    /// Whether the kernel compiles programs: 0 if not.
    pub(super) compiles: Seen<u32>,
    /// Whether the kernel forwards IPv4, and IPv6.
    pub(super) forwards: [Seen<bool>; 2],
    /// The file of this program.
    pub(super) program: String,
}

impl Machine {
    /// Asks the kernel.
    pub(super) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(why);
        let number = |path| read(path).and_then(|text| text.parse::<u32>().map_err(|_| format!("it says {text}")));
        let is_on = |path| number(path).map(|number| number != 0);
        // Rights are a thread's own; older kernels don't know the first path.
        let status = read("/proc/thread-self/status").or_else(|_| read("/proc/self/status"));
        let program = env::current_exe().ok().map(|path| path.display().to_string());
        Self {
            release: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            has_sockets: has_sockets(),
            has_types: fs::exists("/sys/kernel/btf/vmlinux").unwrap_or_default(),
            capabilities: status.and_then(|text| effective(&text).ok_or_else(|| "it is not told".to_owned())),
            is_in_first_user_namespace: read("/proc/self/uid_map").map_or(true, |map| is_whole(&map)),
            locked_limit: locked_limit(),
            processors: thread::available_parallelism().map_or(1, |number| number.get() as u32),
            compiles: number("/proc/sys/net/core/bpf_jit_enable"),
            forwards: [is_on("/proc/sys/net/ipv4/ip_forward"), is_on("/proc/sys/net/ipv6/conf/all/forwarding")],
            program: program.unwrap_or_else(|| "FILE".to_owned()),
        }
    }

    /// The kernel's version, if it can be told.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// True if this process has a capability, as far as can be seen.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities.as_ref().is_ok_and(|set| set & (1 << capability) != 0)
    }
}

/// Why the kernel doesn't tell something.
pub(super) fn why(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not look".to_owned(),
        io::ErrorKind::NotFound => "it is not shown here".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns whether the kernel has AF_XDP sockets, which it tells also those who may not make any.
fn has_sockets() -> Seen<bool> {
    // SAFETY: no memory is involved.
    let file = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if file >= 0 {
        // SAFETY: the kernel has just made it for us.
        unsafe { libc::close(file) };
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => Ok(false),
        Some(libc::EPERM) => Ok(true),
        _ => Err(error.to_string()),
    }
}

/// The effective capabilities in `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// True if a map of users maps each to itself, as in the machine's first user namespace.
fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Bytes that this process may lock.
fn locked_limit() -> Option<u64> {
    // SAFETY: zeroes are a valid limit, and the kernel writes one.
    let limit = unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) < 0 {
            return Some(0);
        }
        limit.rlim_cur
    };
    (limit != libc::RLIM_INFINITY).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = Machine::look();
        assert!(machine.version().is_some_and(|version| version > (3, 0)), "{machine:?}");
        assert!(machine.processors >= 1 && machine.capabilities.is_ok(), "{machine:?}");
        assert!(machine.program.contains("port_xdp"), "{machine:?}");
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(effective("Name:\tx\nCapInh:\t0000000000000000\nCapEff:\t00000000a80425fb\n"), Some(0xa804_25fb));
        assert_eq!(effective("Name:\tx\n"), None);
        assert!(is_whole("         0          0 4294967295"));
        assert!(!is_whole("         0       1000          1"));
        let version = |release: &str| Machine { release: release.to_owned(), ..Machine::look() }.version();
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("new"), None);
    }
}
