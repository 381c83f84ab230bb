//! Forbidden system calls, and that what a run does goes on.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;

use libc::c_long;
use millrace_daemon::{drop_rights, restrict_system_calls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

use crate::Case;

pub(crate) const CASES: &[Case] = &[
    ("forbidden calls are refused, and only then", forbidden),
    ("no program starts", programs),
    ("threads, files and sockets work", work_goes_on),
    ("rights are dropped first", after_rights),
];

/// No user's memory.
const NOWHERE: i64 = 1;
/// No file, no process, and no flags that have a meaning.
const NONE: i64 = -1;

/// Forbidden calls with arguments that do nothing where they are allowed. Those of which none would do nothing are elsewhere.
const FORBIDDEN: &[(&str, c_long, [i64; 5])] = &[
    ("execve", libc::SYS_execve, [NOWHERE, 0, 0, 0, 0]),
    ("execveat", libc::SYS_execveat, [NONE, NOWHERE, 0, 0, NONE]),
    ("ptrace", libc::SYS_ptrace, [NONE, NONE, 0, 0, 0]),
    ("process_vm_readv", libc::SYS_process_vm_readv, [NONE, NOWHERE, 1, NOWHERE, 1]),
    ("process_vm_writev", libc::SYS_process_vm_writev, [NONE, NOWHERE, 1, NOWHERE, 1]),
    ("kexec_load", libc::SYS_kexec_load, [0, NONE, NOWHERE, NONE, 0]),
    ("init_module", libc::SYS_init_module, [NOWHERE, 1, NOWHERE, 0, 0]),
    ("finit_module", libc::SYS_finit_module, [NONE, NOWHERE, 0, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [NOWHERE, 0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, NOWHERE]),
    ("umount2", libc::SYS_umount2, [NOWHERE, 0, 0, 0, 0]),
    ("pivot_root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("chroot", libc::SYS_chroot, [NOWHERE, 0, 0, 0, 0]),
    ("move_mount", libc::SYS_move_mount, [NONE, NOWHERE, NONE, NOWHERE, NONE]),
    ("open_tree", libc::SYS_open_tree, [NONE, NOWHERE, NONE, 0, 0]),
    ("fsopen", libc::SYS_fsopen, [NOWHERE, NONE, 0, 0, 0]),
    ("setns", libc::SYS_setns, [NONE, 0, 0, 0, 0]),
    ("unshare", libc::SYS_unshare, [NONE, 0, 0, 0, 0]),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0]),
    ("swapon", libc::SYS_swapon, [NOWHERE, 0, 0, 0, 0]),
    ("swapoff", libc::SYS_swapoff, [NOWHERE, 0, 0, 0, 0]),
    ("keyctl", libc::SYS_keyctl, [NONE, 0, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [NOWHERE, 0, NONE, NONE, 0]),
    ("userfaultfd", libc::SYS_userfaultfd, [NONE, 0, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [0, NOWHERE, 0, 0, 0]),
    ("acct", libc::SYS_acct, [NOWHERE, 0, 0, 0, 0]),
    ("quotactl", libc::SYS_quotactl, [NONE, NOWHERE, 0, 0, 0]),
    ("settimeofday", libc::SYS_settimeofday, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("clock_settime", libc::SYS_clock_settime, [0, NOWHERE, 0, 0, 0]),
    ("adjtimex", libc::SYS_adjtimex, [NOWHERE, 0, 0, 0, 0]),
    ("personality", libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0]),
    ("setuid", libc::SYS_setuid, [NONE, 0, 0, 0, 0]),
    ("setgid", libc::SYS_setgid, [NONE, 0, 0, 0, 0]),
    ("setreuid", libc::SYS_setreuid, [NONE, NONE, 0, 0, 0]),
    ("setregid", libc::SYS_setregid, [NONE, NONE, 0, 0, 0]),
    ("setresuid", libc::SYS_setresuid, [NONE, NONE, NONE, 0, 0]),
    ("setresgid", libc::SYS_setresgid, [NONE, NONE, NONE, 0, 0]),
    ("setfsuid", libc::SYS_setfsuid, [NONE, 0, 0, 0, 0]),
    ("setfsgid", libc::SYS_setfsgid, [NONE, 0, 0, 0, 0]),
    ("setgroups", libc::SYS_setgroups, [NONE, NOWHERE, 0, 0, 0]),
    ("process_madvise", libc::SYS_process_madvise, [NONE, NOWHERE, 0, 0, NONE]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [NONE, NONE, NONE, 0, 0]),
    ("kcmp", libc::SYS_kcmp, [NONE, NONE, 0, 0, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [NONE, NOWHERE, NONE, NOWHERE, 0]),
    ("fspick", libc::SYS_fspick, [NONE, NOWHERE, NONE, 0, 0]),
    ("fsconfig", libc::SYS_fsconfig, [NONE, NONE, 0, 0, 0]),
    ("fsmount", libc::SYS_fsmount, [NONE, NONE, 0, 0, 0]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, NOWHERE, 0, 0, 0]),
    ("quotactl_fd", libc::SYS_quotactl_fd, [NONE, NONE, 0, 0, 0]),
    ("sethostname", libc::SYS_sethostname, [NOWHERE, NONE, 0, 0, 0]),
    ("setdomainname", libc::SYS_setdomainname, [NOWHERE, NONE, 0, 0, 0]),
    ("syslog", libc::SYS_syslog, [NONE, 0, 0, 0, 0]),
    ("clock_adjtime", libc::SYS_clock_adjtime, [0, NOWHERE, 0, 0, 0]),
    ("io_uring_enter", libc::SYS_io_uring_enter, [NONE, 0, 0, 0, 0]),
    ("io_uring_register", libc::SYS_io_uring_register, [NONE, NONE, 0, 0, 0]),
    #[cfg(not(all(target_arch = "aarch64", target_env = "musl")))]
    ("kexec_file_load", libc::SYS_kexec_file_load, [NONE, NONE, 0, 0, NONE]),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt, [99, 0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl, [NONE, 0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm, [NONE, 2, 1, 0, 0]),
    // Numbers of x32: execve by the one it shares with nobody, and a shared one.
    #[cfg(target_arch = "x86_64")]
    ("execve of x32", 0x4000_0000 + 520, [NOWHERE, 0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    ("mount of x32", 0x4000_0000 + libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, NOWHERE]),
];

/// The error of a raw call; 0 for none.
fn raw(number: c_long, arguments: [i64; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: no argument is an address that is mapped: the kernel looks at them, and writes nothing.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
}

/// The error of a call that starts a process.
fn new_process(number: c_long, flags: i64) -> i32 {
    // SAFETY: a process that should not be there ends at once.
    match unsafe { libc::syscall(number, flags, 0, 0, 0, 0) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        // SAFETY: it has no memory to tidy up.
        0 => unsafe { libc::_exit(0) },
        _ => 0,
    }
}

/// The line of this thread's status that begins with a name.
fn status(name: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").expect("/proc is there");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("this kernel tells it").trim().to_owned()
}

fn forbidden() {
    // Elsewhere the system itself may refuse some of them.
    let sys_admin = 1 << 21;
    let is_free = status("Seccomp") == "0"
        && u64::from_str_radix(&status("CapEff"), 16).expect("it is a number") & sys_admin != 0;
    for (name, number, arguments) in FORBIDDEN {
        if is_free || ["execve", "setreuid"].contains(name) {
            assert_ne!(raw(*number, *arguments), libc::EPERM, "{name} is not refused before");
        }
    }
    // The filter comes to threads that are there, too.
    let gates = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let others = gates.clone();
    let check = || {
        for (name, number, arguments) in FORBIDDEN {
            assert_eq!(raw(*number, *arguments), libc::EPERM, "{name}");
        }
        assert_eq!(status("Seccomp"), "2");
        assert_eq!(status("NoNewPrivs"), "1");
        assert_eq!(raw(libc::SYS_clone3, [NOWHERE, 0, 0, 0, 0]), libc::ENOSYS);
        for flags in [0, libc::SIGCHLD, libc::CLONE_FS | libc::CLONE_FILES] {
            assert_eq!(new_process(libc::SYS_clone, flags.into()), libc::EPERM);
        }
        #[cfg(target_arch = "x86_64")]
        for number in [libc::SYS_fork, libc::SYS_vfork] {
            assert_eq!(new_process(number, 0), libc::EPERM);
        }
        // A child of vfork shares the stack, so its parent may have been misled above.
        assert_eq!(wait(WaitOptions::NOHANG).expect_err("there is no child"), Errno::CHILD);
    };
    let thread = thread::spawn(move || {
        others[0].wait();
        others[1].wait();
        check();
    });
    gates[0].wait();
    restrict_system_calls().expect("this kernel has filters");
    gates[1].wait();
    check();
    thread.join().expect("calls are forbidden there, too");
    thread::spawn(check).join().expect("and in new threads");
}

fn programs() {
    let start =
        || Command::new("/proc/self/exe").env(crate::CASE, crate::NOTHING).status().map_err(|error| error.kind());
    assert!(start().is_ok(), "before, it starts");
    restrict_system_calls().expect("this kernel has filters");
    assert_eq!(start().expect_err("no process begins"), io::ErrorKind::PermissionDenied);
    restrict_system_calls().expect("a second time does no harm");
}

/// What a run does: threads, files, sockets, waiting, memory.
fn work_goes_on() {
    let no_command = [NONE, NOWHERE, 0, 0, 0];
    let bpf = raw(libc::SYS_bpf, no_command);
    restrict_system_calls().expect("this kernel has filters");
    let sums: Vec<_> = (0..4_u64).map(|number| thread::spawn(move || (0..=number).sum::<u64>())).collect();
    let sums: Vec<_> = sums.into_iter().map(|thread| thread.join().expect("it adds")).collect();
    assert_eq!(sums, [0, 1, 3, 6]);

    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("under-filter");
    fs::write(&file, "snapshot").expect("files are written");
    assert_eq!(fs::read_to_string(&file).expect("files are read"), "snapshot");
    fs::remove_file(&file).expect("files are removed");

    let (one, other) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (one, other) = (one.expect("sockets open"), other.expect("sockets open"));
    one.send_to(b"datagram", other.local_addr().expect("it is bound")).expect("it is sent");
    let mut waiting = [PollFd::new(&other, PollFlags::IN)];
    assert_eq!(poll(&mut waiting, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })), Ok(1));
    let mut bytes = [0; 16];
    assert_eq!(other.recv(&mut bytes).expect("it is there"), 8);

    let listener = TcpListener::bind("127.0.0.1:0").expect("sockets open");
    let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (mut server, _) = listener.accept().expect("a client is there");
    client.write_all(b"stream").expect("it is connected");
    server.read_exact(&mut bytes[..6]).expect("it is connected");
    let (mut near, mut far) = UnixStream::pair().expect("sockets open");
    near.write_all(b"control").expect("it is connected");
    far.read_exact(&mut bytes[..7]).expect("it is connected");

    // The kernel answers as before.
    assert_eq!(raw(libc::SYS_bpf, no_command), bpf);
    let memory = vec![1_u8; 64 << 20];
    assert_eq!(memory.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 64 << 20);
}

fn after_rights() {
    drop_rights(None, &[]).expect("it may always lose rights");
    restrict_system_calls().expect("no rights are needed for a filter");
    assert_eq!(raw(libc::SYS_execve, [NOWHERE, 0, 0, 0, 0]), libc::EPERM);
    thread::spawn(|| ()).join().expect("threads start");
}
