//! Forbidding system calls that a running data path doesn't need, by a filter of seccomp(2).

use std::env::consts::ARCH;
use std::fmt;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use crate::error::DaemonError;

/// Forbids the system calls by which a taken-over process would go on to take over the machine, in all threads and for good: they fail
/// with EPERM.
///
/// Forbidden are: starting programs and processes; reading and writing other processes; mounts, namespaces and changes of the root folder;
/// changes of users and groups; kernel modules, other kernels, reboots, swap; clocks; key rings, performance counters, io_uring and other wide
/// interfaces to the kernel. Threads, files, sockets and bpf(2) work as before: a run starts threads and may open its sockets again.
///
/// The list names what is forbidden, not what is allowed. A list of allowed calls would depend on the C library and its version, and
/// a missing call that is needed once a month would end the traffic then.
///
/// The filter knows this program's architecture, x86_64 or aarch64. A system call of another one, such as a 32-bit call on x86_64, ends the
/// process. Calls of x32 are forbidden like those of x86_64.
///
/// To be called after [`drop_rights`](crate::drop_rights), whose calls are among the forbidden ones. It also sets no_new_privs.
///
/// # Errors
/// The kernel has no such filters, another thread has filters of its own, or the architecture is another one.
pub fn restrict_system_calls() -> Result<(), DaemonError> {
    if FORBIDDEN.is_empty() {
        return Err(DaemonError::Filter(format!("there is no list of system calls for {ARCH}")));
    }
    let mut forbidden: Vec<Call> = FORBIDDEN.iter().map(|number| (*number, vec![])).collect();
    forbidden.push((libc::SYS_clone, vec![without_thread()?]));
    // The C library takes clone instead, whose flags a filter can read.
    let absent = vec![(libc::SYS_clone3, vec![])];
    for (calls, error) in [(forbidden, libc::EPERM), (absent, libc::ENOSYS)] {
        apply_filter_all_threads(&program(calls, error)?).map_err(failed)?;
    }
    Ok(())
}

/// Number of a system call, and rules of which one must fit; none for any call.
type Call = (c_long, Vec<SeccompRule>);

/// Compiles a filter in which these calls fail with `error`.
fn program(calls: Vec<Call>, error: i32) -> Result<BpfProgram, DaemonError> {
    let aliases = |(number, rules): Call| {
        let x32 = (cfg!(target_arch = "x86_64")).then(|| (number | X32, rules.clone()));
        std::iter::once((number, rules)).chain(x32)
    };
    let calls = calls.into_iter().flat_map(aliases).collect();
    let arch = TargetArch::try_from(ARCH).map_err(failed)?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch);
    filter.and_then(BpfProgram::try_from).map_err(failed)
}

/// A rule for clone(2) of a process instead of a thread.
fn without_thread() -> Result<SeccompRule, DaemonError> {
    let flag = libc::CLONE_THREAD as u64;
    let unset = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), 0);
    unset.and_then(|unset| SeccompRule::new(vec![unset])).map_err(failed)
}

fn failed(error: impl fmt::Display) -> DaemonError {
    DaemonError::Filter(error.to_string())
}

/// The bit of a number that makes it one of x32.
const X32: c_long = 0x4000_0000;

/// Numbers of the forbidden system calls; none on architectures that nobody has tried.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FORBIDDEN: &[c_long] = &[];

/// Numbers of the forbidden system calls.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const FORBIDDEN: &[c_long] = &[
    // Programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts, namespaces and the root folder.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Users and groups.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(not(all(target_arch = "aarch64", target_env = "musl")))]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    // Clocks.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Wide interfaces to the kernel.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    // Numbers that only x32 has, of execve, ptrace, kexec_load, process_vm_readv, process_vm_writev and execveat. Kernels before 5.4 take
    // them without the bit, too.
    #[cfg(target_arch = "x86_64")]
    520,
    #[cfg(target_arch = "x86_64")]
    521,
    #[cfg(target_arch = "x86_64")]
    528,
    #[cfg(target_arch = "x86_64")]
    539,
    #[cfg(target_arch = "x86_64")]
    540,
    #[cfg(target_arch = "x86_64")]
    545,
];
