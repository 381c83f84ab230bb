//! Dropped rights, as /proc tells them of every thread.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::id;
use std::sync::{Arc, Barrier};
use std::thread;

use millrace_daemon::{Capability, DaemonError, drop_rights};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use crate::Case;

pub(crate) const CASES: &[Case] = &[
    ("root becomes a user who keeps two capabilities", a_user),
    ("root without a user keeps one capability", root),
    ("an ordinary user drops what it was given", ordinary),
    ("nothing is dropped beside another thread", threads),
];

/// A user that no system has.
const NUMBER: &str = "48151";
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

/// True if this process may do what the case needs; tells otherwise.
fn is_root() -> bool {
    let wanted = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP | CapabilitySet::NET_RAW;
    let has_all = capabilities(None).is_ok_and(|sets| sets.permitted.contains(wanted | CapabilitySet::NET_ADMIN));
    if !has_all {
        println!("SKIPPED (needs root with its capabilities): dropping rights");
    }
    has_all
}

/// The lines of /proc/PID/task/TID/status that tell rights, of each thread of this process.
fn statuses() -> Vec<Status> {
    let tasks = fs::read_dir(format!("/proc/{}/task", id())).expect("/proc is there");
    tasks
        .map(|task| {
            let path = task.expect("it goes on").path().join("status");
            Status(fs::read_to_string(path).expect("all threads wait"))
        })
        .collect()
}

struct Status(String);

impl Status {
    fn field(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("this kernel tells it").trim()
    }

    fn set(&self, name: &str) -> u64 {
        u64::from_str_radix(self.field(name), 16).expect("it is a number")
    }
}

/// Reads the statuses while three more threads are there.
fn with_threads(look: impl FnOnce(&[Status])) {
    let gates = (Arc::new(Barrier::new(4)), Arc::new(Barrier::new(4)));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let gates = gates.clone();
            thread::spawn(move || {
                gates.0.wait();
                gates.1.wait();
            })
        })
        .collect();
    gates.0.wait();
    let statuses = statuses();
    gates.1.wait();
    for thread in threads {
        thread.join().expect("it only waits");
    }
    assert_eq!(statuses.len(), 4);
    look(&statuses);
}

/// Asserts that all threads have these capabilities and no others, and can gain none.
fn assert_dropped(capabilities: u64, bounding: u64, user: &str) {
    with_threads(|statuses| {
        for status in statuses {
            for (name, set) in [("CapEff", capabilities), ("CapPrm", capabilities), ("CapBnd", bounding)] {
                assert_eq!(status.set(name), set, "{name}");
            }
            assert_eq!((status.set("CapInh"), status.set("CapAmb")), (0, 0));
            assert_eq!(status.field("NoNewPrivs"), "1");
            let four = [user; 4].join("\t");
            assert_eq!(status.field("Uid"), four);
            assert_eq!(status.field("Gid"), four);
            assert_eq!(status.field("Groups"), "");
        }
    });
    let dumpable = rustix::process::dumpable_behavior().expect("it is known");
    assert_eq!(dumpable, rustix::process::DumpableBehavior::NotDumpable);
}

/// True if a socket of AF_PACKET opens, for which CAP_NET_RAW is needed.
fn opens_packet_socket() -> bool {
    socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).is_ok()
}

fn a_user() {
    if !is_root() {
        return;
    }
    // Rights that a careless service manager might have left.
    let sets = capabilities(None).expect("it is known");
    set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::CHOWN, ..sets }).expect("root may");
    configure_capability_in_ambient_set(CapabilitySet::CHOWN, true).expect("root may");
    rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(27)]).expect("root may");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("roots");
    fs::write(&file, "").expect("there is room");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    fs::read(&file).expect("it is ours");

    let rights = drop_rights(Some(NUMBER), &[Capability::NetAdmin, Capability::NetRaw]).expect("root may");
    assert_eq!(rights.to_string(), format!("user {NUMBER}, group {NUMBER}, CAP_NET_ADMIN, CAP_NET_RAW"));
    assert_dropped(NET_ADMIN | NET_RAW, NET_ADMIN | NET_RAW, NUMBER);
    assert!(opens_packet_socket());
    assert!(fs::read(&file).is_err(), "it is root's");
    assert!(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_err(), "root is gone for good");
    UdpSocket::bind("127.0.0.1:0").expect("ordinary sockets stay");

    // Again: nothing is left to lose but what isn't named.
    let again = drop_rights(Some(NUMBER), &Capability::FOR_INTERFACES).expect("it is that user");
    assert!(again.to_string().ends_with("; the process never had CAP_BPF, CAP_PERFMON, CAP_IPC_LOCK"), "{again}");
    let other = drop_rights(Some("48152"), &[]).expect_err("it is no longer root");
    assert!(matches!(other, DaemonError::NotRoot(_)), "{other}");
    drop_rights(None, &[]).expect("it may always lose rights");
    assert!(!opens_packet_socket());
}

fn root() {
    if !is_root() {
        return;
    }
    rustix::thread::set_thread_groups(&[]).expect("root may");
    drop_rights(None, &[Capability::NetRaw]).expect("root may");
    assert_dropped(NET_RAW, NET_RAW, "0");
    assert!(opens_packet_socket());
}

/// Without CAP_SETPCAP the bounding set stays.
fn ordinary() {
    if !is_root() {
        return;
    }
    let sets = capabilities(None).expect("it is known");
    let bounding = statuses()[0].set("CapBnd");
    let given = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    rustix::thread::set_keep_capabilities(true).expect("it may");
    rustix::thread::set_thread_groups(&[]).expect("root may");
    let (uid, gid) = (rustix::process::Uid::from_raw(48151), rustix::process::Gid::from_raw(48151));
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root may");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
    // As a service manager gives them: inheritable and ambient.
    let sets = CapabilitySets { effective: given, permitted: given, inheritable: given & sets.permitted };
    set_capabilities(None, sets).expect("they are permitted");
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true).expect("it is inheritable");
    let rights = drop_rights(None, &[Capability::NetAdmin]).expect("it may always lose rights");
    assert_eq!(rights.to_string(), format!("user {NUMBER}, group {NUMBER}, CAP_NET_ADMIN"));
    assert_dropped(NET_ADMIN, bounding, NUMBER);
}

fn threads() {
    let before = statuses()[0].0.lines().filter(|line| line.starts_with("Cap")).map(str::to_owned).collect::<Vec<_>>();
    let barrier = Arc::new(Barrier::new(2));
    let other = Arc::clone(&barrier);
    let thread = thread::spawn(move || other.wait());
    let error = drop_rights(None, &[]).expect_err("there are two threads");
    assert!(matches!(error, DaemonError::Threads(2)), "{error}");
    barrier.wait();
    thread.join().expect("it only waits");
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    assert!(before.iter().all(|line| status.contains(line.as_str())), "{status}");
}
