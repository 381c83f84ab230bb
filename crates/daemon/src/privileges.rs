//! Dropping rights: user, groups and capabilities that a run doesn't need after its set-up (capabilities(7)).

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{DumpableBehavior, Gid, Uid, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::error::DaemonError;

/// A capability that a run may go on to need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// CAP_NET_ADMIN: attach XDP programs, set interfaces up.
    NetAdmin,
    /// CAP_NET_RAW: open sockets of AF_XDP and AF_PACKET.
    NetRaw,
    /// CAP_BPF: load XDP programs.
    Bpf,
    /// CAP_PERFMON: load XDP programs that add a header's length to an address in the packet. The verifier's guard against speculative
    /// execution refuses them without it.
    PerfMon,
    /// CAP_IPC_LOCK: lock more memory than RLIMIT_MEMLOCK allows.
    IpcLock,
}

impl Capability {
    /// What a run on interfaces needs to open its sockets again after an interface has gone and come back.
    pub const FOR_INTERFACES: [Self; 5] = [Self::NetAdmin, Self::NetRaw, Self::Bpf, Self::PerfMon, Self::IpcLock];

    fn bit(self) -> CapabilitySet {
        match self {
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::Bpf => CapabilitySet::BPF,
            Self::PerfMon => CapabilitySet::PERFMON,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
        }
    }
}

/// The rights that a process has kept. Displays as a line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    user: u32,
    group: u32,
    /// Wanted, and there.
    kept: Vec<Capability>,
    /// Wanted, but the process never had them.
    absent: Vec<Capability>,
}

/// Gives up all rights but those in `keep`, for good. Becomes `user`, a name or a number, if the process is root's.
///
/// - A new user takes its group of /etc/passwd and loses all supplementary groups. A number that is not in /etc/passwd is its own group.
///   Without a user, a process of root stays root, who owns most files: name a user, or let the service manager choose one.
/// - The permitted and effective capabilities are those of `keep` that the process has. The inheritable and ambient sets are empty. The
///   bounding set loses all others, too, if the process has CAP_SETPCAP.
/// - The process can gain no privileges by starting programs (no_new_privs), whatever the bounding set has. Other processes of the user can
///   neither trace it nor read its memory.
///
/// Capabilities belong to a thread, and new threads get those of their parent. So the call must come before the second thread starts; it is
/// refused later. Files that only root may remove stay, such as a control socket in /run.
///
/// # Errors
/// There are several threads, no such user, or the system refuses. If the system refuses, a part of the rights may be gone: end the process.
pub fn drop_rights(user: Option<&str>, keep: &[Capability]) -> Result<Rights, DaemonError> {
    match threads()? {
        1 => {}
        threads => return Err(DaemonError::Threads(threads)),
    }
    let account = user.map(account).transpose()?.filter(|account| *account != current());
    if let (Some(user), Some(_), false) = (user, account, geteuid().is_root()) {
        return Err(DaemonError::NotRoot(user.to_owned()));
    }
    let permitted = capabilities(None).map_err(refused("capabilities can't be read"))?.permitted;
    let (kept, absent): (Vec<Capability>, Vec<Capability>) =
        keep.iter().partition(|wanted| permitted.contains(wanted.bit()));
    let wanted = kept.iter().fold(CapabilitySet::empty(), |set, capability| set | capability.bit());

    // What follows needs capabilities that are permitted but may not be in effect.
    set(permitted, permitted)?;
    if permitted.contains(CapabilitySet::SETPCAP) {
        bound(wanted)?;
    }
    if let Some(account) = account {
        become_user(account)?;
    }
    set(wanted, wanted)?;
    set_no_new_privs(true).map_err(refused("new privileges can't be ruled out"))?;
    // Last, because a change of the user sets it as well.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(refused("memory can't be hidden"))?;
    let (user, group) = current();
    Ok(Rights { user, group, kept, absent })
}

/// The number of threads of this process.
fn threads() -> Result<usize, DaemonError> {
    let path = Path::new("/proc/self/task");
    let failed = |source| DaemonError::Io { path: path.to_owned(), action: "threads can't be counted", source };
    Ok(fs::read_dir(path).map_err(failed)?.count())
}

fn current() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Sets the permitted and effective capabilities. None stay inheritable, so the kernel clears the ambient ones, too.
fn set(permitted: CapabilitySet, effective: CapabilitySet) -> Result<(), DaemonError> {
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(refused("capabilities can't be set"))
}

/// Takes all capabilities but these from the bounding set, also those that this program doesn't know.
fn bound(wanted: CapabilitySet) -> Result<(), DaemonError> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            // Past the last one of this kernel.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(refused("the bounding set can't be read")(error)),
            Ok(true) if !wanted.contains(capability) => {
                remove_capability_from_bounding_set(capability)
                    .map_err(refused("the bounding set can't be reduced"))?;
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Changes the user of the only thread. Permitted capabilities stay until they are set.
fn become_user((user, group): (u32, u32)) -> Result<(), DaemonError> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    set_keep_capabilities(true).map_err(refused("capabilities can't be kept over a change of the user"))?;
    set_thread_groups(&[]).map_err(refused("supplementary groups can't be cleared"))?;
    set_thread_res_gid(gid, gid, gid).map_err(refused("the group can't be changed"))?;
    set_thread_res_uid(uid, uid, uid).map_err(refused("the user can't be changed"))?;
    set_keep_capabilities(false).map_err(refused("capabilities can't be kept over a change of the user"))
}

fn refused(action: &'static str) -> impl Fn(rustix::io::Errno) -> DaemonError {
    move |error| DaemonError::Rights { action, source: io::Error::from(error) }
}

/// The numbers of a user and of its group.
fn account(user: &str) -> Result<(u32, u32), DaemonError> {
    let path = Path::new("/etc/passwd");
    let failed = |source| DaemonError::Io { path: path.to_owned(), action: "users can't be read", source };
    // A container without users still has their numbers.
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(failed)?,
    };
    match find(&String::from_utf8_lossy(&text), user) {
        None => Err(DaemonError::NoUser(user.to_owned())),
        Some((0, _) | (_, 0)) => Err(DaemonError::PrivilegedUser(user.to_owned())),
        Some(account) => Ok(account),
    }
}

/// Finds a user by name or number in text of the form of passwd(5). A number need not be there.
fn find(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let entries = || {
        passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (user, group) = (fields.nth(1)?, fields.next()?);
            Some((name, user.parse::<u32>().ok()?, group.parse::<u32>().ok()?))
        })
    };
    if let Some((_, user, group)) = entries().find(|(name, ..)| *name == user) {
        return Some((user, group));
    }
    // The system takes the highest number for "no change".
    let number = user.parse::<u32>().ok().filter(|number| *number != u32::MAX)?;
    let group = entries().find(|(_, user, _)| *user == number).map_or(number, |(.., group)| group);
    Some((number, group))
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::Bpf => "CAP_BPF",
            Self::PerfMon => "CAP_PERFMON",
            Self::IpcLock => "CAP_IPC_LOCK",
        })
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |list: &[Capability]| list.iter().map(Capability::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "user {}, group {}, ", self.user, self.group)?;
        match self.kept.as_slice() {
            [] => f.write_str("no capabilities")?,
            kept => f.write_str(&list(kept))?,
        }
        match self.absent.as_slice() {
            [] => Ok(()),
            absent => write!(f, "; the process never had {}", list(absent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\n# a comment\nbad:x\nnet:x:101:204::/:/bin/false\n\n77:x:500:600::/:\n+::::::\n";

    #[test]
    fn a_user_is_found_by_name_and_number() {
        assert_eq!(find(PASSWD, "net"), Some((101, 204)));
        assert_eq!(find(PASSWD, "101"), Some((101, 204)));
        assert_eq!(find(PASSWD, "4000"), Some((4000, 4000)), "a number need not be there");
        assert_eq!(find(PASSWD, "77"), Some((500, 600)), "a name may look like a number");
        for nobody in ["", "bad", "ne", "net:x", "-1", "4294967295", "4294967296", "# a comment"] {
            assert_eq!(find(PASSWD, nobody), None, "{nobody}");
        }
    }

    #[test]
    fn root_is_no_unprivileged_user() {
        for user in ["0", "root", "00"] {
            assert!(matches!(account(user), Err(DaemonError::PrivilegedUser(_))), "{user}");
        }
        assert!(matches!(account("no such user"), Err(DaemonError::NoUser(_))));
    }

    #[test]
    fn the_log_line_names_what_was_kept() {
        let (kept, absent) = Capability::FOR_INTERFACES.split_at(2);
        let rights = Rights { user: 101, group: 204, kept: kept.to_vec(), absent: absent.to_vec() };
        let absent = "the process never had CAP_BPF, CAP_PERFMON, CAP_IPC_LOCK";
        let line = format!("user 101, group 204, CAP_NET_ADMIN, CAP_NET_RAW; {absent}");
        assert_eq!(rights.to_string(), line);
        let none = Rights { user: 0, group: 0, kept: vec![], absent: vec![] };
        assert_eq!(none.to_string(), "user 0, group 0, no capabilities");
    }
}
