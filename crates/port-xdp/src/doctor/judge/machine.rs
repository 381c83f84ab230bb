//! Findings from the facts about the machine.

use crate::doctor::machine::Machine;
use crate::doctor::{Finding, Plan};

/// Capabilities, as `linux/capability.h` numbers them.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// All findings, in the order in which a user mends them.
pub(in crate::doctor) fn findings(machine: &Machine, plan: &Plan) -> Vec<Finding> {
    let mut findings = vec![
        kernel(machine, plan),
        sockets(machine),
        types(machine),
        rights(machine),
        memory(machine, plan),
        processors(machine, plan),
        compiler(machine),
    ];
    findings.extend(forwarding(machine));
    findings
}

fn kernel(machine: &Machine, plan: &Plan) -> Finding {
    const NEWER: &str = "install Linux 5.11 or later; 6.6 or later if packets are longer than a frame";
    let Some((major, minor)) = machine.version() else {
        let says = format!("the kernel's release is `{}`, which has no version number", machine.release);
        return Finding::note("kernel", says, "see to it that it is Linux 5.11 or later");
    };
    let about = |text: &str| format!("Linux {major}.{minor} {text}");
    let mtu = plan.mtu_max;
    let version = (major, minor);
    let larger = "install Linux 6.6 or later if you need a larger MTU";
    if version < (4, 18) {
        Finding::problem("kernel", about("has no AF_XDP, which came with Linux 4.18"), NEWER)
    } else if version < (5, 11) {
        Finding::problem("kernel", about("has AF_XDP, but a run needs Linux 5.11"), NEWER)
    } else if version < (5, 18) {
        let lacks = "runs no XDP program on packets of several buffers (frags)";
        Finding::note("kernel", about(&format!("{lacks}, so an MTU over {mtu} is refused")), larger)
    } else if version < (6, 6) {
        let lacks = "spreads no packet over several frames";
        Finding::note("kernel", about(&format!("{lacks}, so an MTU over {mtu} is refused")), larger)
    } else {
        Finding::good("kernel", about("has AF_XDP, and spreads long packets over several frames (frags)"))
    }
}

fn sockets(machine: &Machine) -> Finding {
    match &machine.has_sockets {
        Ok(true) => Finding::good("sockets", "the kernel has AF_XDP sockets"),
        Ok(false) => Finding::problem(
            "sockets",
            "the kernel was built without AF_XDP sockets",
            "use a kernel with CONFIG_XDP_SOCKETS=y",
        ),
        Err(why) => Finding::note(
            "sockets",
            format!("whether the kernel has AF_XDP sockets can't be seen: {why}"),
            "look for CONFIG_XDP_SOCKETS=y: `grep XDP_SOCKETS /boot/config-$(uname -r)`",
        ),
    }
}

fn types(machine: &Machine) -> Finding {
    match machine.has_types {
        true => Finding::good("BTF", "the kernel describes its types in /sys/kernel/btf/vmlinux"),
        false => Finding::note(
            "BTF",
            "the kernel doesn't describe its types; Millrace doesn't need that, but bpftool and others do",
            "for such tools, use a kernel with CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

/// The sentence that says how the program gets its rights.
fn grant(machine: &Machine) -> String {
    let program = &machine.program;
    format!(
        "run it with `sudo`, or type `sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock+ep {program}` once"
    )
}

fn rights(machine: &Machine) -> Finding {
    if let Err(why) = &machine.capabilities {
        return Finding::note(
            "rights",
            format!("the capabilities of this process can't be seen: {why}"),
            grant(machine),
        );
    }
    let needed = [
        ("cap_net_admin", machine.has(NET_ADMIN)),
        ("cap_net_raw", machine.has(NET_RAW)),
        ("cap_bpf", machine.has(BPF) || machine.has(SYS_ADMIN)),
        // Without it the verifier guards against speculation, and refuses the program's arithmetic on addresses.
        ("cap_perfmon", machine.has(PERFMON) || machine.has(SYS_ADMIN)),
    ];
    let missing: Vec<&str> = needed.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let says = format!("this process lacks {}, so it may not open interfaces", missing.join(", "));
        return Finding::problem("rights", says, grant(machine));
    }
    if !machine.is_in_first_user_namespace {
        return Finding::problem(
            "rights",
            "this process has its capabilities only in a user namespace (of a container), where the kernel loads no XDP program",
            "run it outside of that, or in a container with the machine's own root",
        );
    }
    Finding::good("rights", "this process has cap_net_admin, cap_net_raw, cap_bpf and cap_perfmon")
}

fn memory(machine: &Machine, plan: &Plan) -> Finding {
    let Some(limit) = machine.locked_limit.filter(|_| !machine.has(IPC_LOCK)) else {
        let why = if machine.has(IPC_LOCK) { "this process has cap_ipc_lock" } else { "there is no limit" };
        return Finding::good("locked memory", format!("any amount of memory may be locked: {why}"));
    };
    let (each, limit_text) = (plan.locked, mebibytes(limit));
    let on = if plan.interfaces == 1 { "one interface".to_owned() } else { format!("{} interfaces", plan.interfaces) };
    let advice = format!("type `ulimit -l unlimited` as root first, or {}", grant(machine));
    if limit < each {
        let says = format!(
            "{limit_text} of memory may be locked and cap_ipc_lock is missing, but a run on {on} locks {}",
            mebibytes(each)
        );
        return Finding::problem("locked memory", says, advice);
    }
    let all = each * u64::from(plan.cores);
    if limit < all {
        let says = format!(
            "{limit_text} of memory may be locked and cap_ipc_lock is missing; a run on {on} locks {}, but one with --card-steers or --sequencer xdp {}",
            mebibytes(each),
            mebibytes(all)
        );
        return Finding::note("locked memory", says, advice);
    }
    Finding::good(
        "locked memory",
        format!("{limit_text} may be locked; a run on {on} locks {} at most", mebibytes(all)),
    )
}

/// A number of bytes, for people.
fn mebibytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
        bytes => format!("{} MiB", bytes >> 20),
    }
}

fn processors(machine: &Machine, plan: &Plan) -> Finding {
    let (have, want) = (machine.processors, plan.cores);
    let plural = |number, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let processors = plural(have, "processor");
    match have >= want {
        true => Finding::good("processors", format!("this process may use {processors}, for {}", plural(want, "core"))),
        false => Finding::note(
            "processors",
            format!("this process may use {processors}, so {} would share them and be slow", plural(want, "core")),
            format!("use `--cores {have}`, or let it use more processors (taskset, or the container's cpuset)"),
        ),
    }
}

fn compiler(machine: &Machine) -> Finding {
    match &machine.compiles {
        Ok(0) => Finding::note(
            "JIT",
            "the kernel interprets XDP programs instead of compiling them, which costs time for each packet",
            "type `sudo sysctl -w net.core.bpf_jit_enable=1`",
        ),
        Ok(_) => Finding::good("JIT", "the kernel compiles XDP programs"),
        Err(why) => Finding::note(
            "JIT",
            format!("whether the kernel compiles XDP programs can't be seen: {why}"),
            "type `sudo nsenter -t 1 -n sysctl net.core.bpf_jit_enable`; it should be 1",
        ),
    }
}

fn forwarding(machine: &Machine) -> Option<Finding> {
    let names = [("IPv4", "net.ipv4.ip_forward"), ("IPv6", "net.ipv6.conf.all.forwarding")];
    let on: Vec<_> = names.iter().zip(&machine.forwards).filter(|(_, is_on)| **is_on == Ok(true)).collect();
    if on.is_empty() {
        // A kernel without IPv6 shows nothing of it, and forwards none.
        let says = "the kernel forwards no IP packets, so nothing goes past the function while no run goes on";
        return machine.forwards[0].is_ok().then(|| Finding::good("forwarding", says));
    }
    let protocols: Vec<&str> = on.iter().map(|((protocol, _), _)| *protocol).collect();
    let settings: Vec<String> = on.iter().map(|((_, setting), _)| format!("{setting}=0")).collect();
    Some(Finding::note(
        "forwarding",
        format!("the kernel forwards {} itself while no run goes on, past the function", protocols.join(" and ")),
        format!("if that must not be, type `sudo sysctl -w {}`", settings.join(" ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    /// A machine without a fault.
    fn machine() -> Machine {
        Machine {
            release: "6.18.1".into(),
            has_sockets: Ok(true),
            has_types: true,
            capabilities: Ok(1 << NET_ADMIN | 1 << NET_RAW | 1 << IPC_LOCK | 1 << BPF | 1 << PERFMON),
            is_in_first_user_namespace: true,
            locked_limit: Some(8 << 20),
            processors: 4,
            compiles: Ok(1),
            forwards: [Ok(false), Ok(false)],
            program: "/opt/millrace".into(),
        }
    }

    const PLAN: Plan = Plan { cores: 4, interfaces: 2, locked: 32 << 20, mtu_max: 1770 };

    #[test]
    fn a_machine_without_a_fault_is_good() {
        let findings = findings(&machine(), &PLAN);
        assert!(findings.iter().all(|finding| finding.state == State::Good), "{findings:?}");
        assert_eq!(findings.len(), 8);
    }

    #[test]
    fn a_kernel_is_judged_by_its_version() {
        for (release, state, word) in [
            ("4.14.9", State::Problem, "has no AF_XDP"),
            ("5.4.0-150-generic", State::Problem, "needs Linux 5.11"),
            ("5.15.2", State::Note, "several buffers"),
            ("6.1.0-18-amd64", State::Note, "several frames, so an MTU over 1770 is refused"),
            ("6.6.0", State::Good, "Linux 6.6 has AF_XDP"),
            ("10.0", State::Good, "Linux 10.0 has AF_XDP"),
            ("next", State::Note, "`next`"),
        ] {
            let finding = kernel(&Machine { release: release.into(), ..machine() }, &PLAN);
            assert!(finding.state == state && finding.says.contains(word), "{release}: {finding:?}");
        }
    }

    #[test]
    fn a_kernel_without_sockets_or_types_is_told() {
        assert_eq!(sockets(&Machine { has_sockets: Ok(false), ..machine() }).state, State::Problem);
        let unseen = sockets(&Machine { has_sockets: Err("no room".into()), ..machine() });
        assert!(unseen.state == State::Note && unseen.says.ends_with("can't be seen: no room"), "{unseen:?}");
        assert_eq!(types(&Machine { has_types: false, ..machine() }).state, State::Note);
    }

    #[test]
    fn missing_rights_are_named() {
        let with = |set: u64| rights(&Machine { capabilities: Ok(set), ..machine() });
        let finding = with(1 << NET_RAW);
        assert_eq!(
            finding.says,
            "this process lacks cap_net_admin, cap_bpf, cap_perfmon, so it may not open interfaces"
        );
        assert!(finding.advice.expect("it is a problem").contains("cap_ipc_lock+ep /opt/millrace`"));
        assert_eq!(with(1 << NET_ADMIN | 1 << NET_RAW | 1 << SYS_ADMIN).state, State::Good);
        let contained = rights(&Machine { is_in_first_user_namespace: false, ..machine() });
        assert!(contained.state == State::Problem && contained.says.contains("user namespace"), "{contained:?}");
        let unseen = rights(&Machine { capabilities: Err("it is not shown here".into()), ..machine() });
        assert_eq!(unseen.state, State::Note);
    }

    #[test]
    fn locked_memory_is_held_against_what_a_run_locks() {
        let with = |limit| memory(&Machine { capabilities: Ok(0), locked_limit: limit, ..machine() }, &PLAN);
        let finding = with(Some(8 << 20));
        assert_eq!(finding.state, State::Problem);
        assert!(finding.says.starts_with("8 MiB of memory") && finding.says.ends_with("2 interfaces locks 32 MiB"));
        assert_eq!(with(Some(64 << 10)).says.split(" of").next(), Some("64 KiB"));
        let finding = with(Some(64 << 20));
        assert!(finding.state == State::Note && finding.says.ends_with("--sequencer xdp 128 MiB"), "{finding:?}");
        assert_eq!(with(Some(128 << 20)).state, State::Good);
        assert_eq!(with(None).says, "any amount of memory may be locked: there is no limit");
        assert_eq!(memory(&machine(), &PLAN).state, State::Good);
    }

    #[test]
    fn too_few_processors_are_told() {
        let finding = processors(&Machine { processors: 1, ..machine() }, &PLAN);
        assert_eq!(finding.state, State::Note);
        assert_eq!(finding.says, "this process may use 1 processor, so 4 cores would share them and be slow");
        assert!(finding.advice.expect("it is a note").starts_with("use `--cores 1`"));
    }

    #[test]
    fn a_kernel_that_interprets_or_forwards_is_told() {
        let finding = compiler(&Machine { compiles: Ok(0), ..machine() });
        assert!(finding.advice.expect("it is a note").contains("bpf_jit_enable=1"));
        assert_eq!(
            compiler(&Machine { compiles: Err("this user may not look".into()), ..machine() }).state,
            State::Note
        );
        let with = |v4, v6| forwarding(&Machine { forwards: [v4, v6], ..machine() });
        let hidden = || Err("it is not shown here".to_owned());
        assert_eq!(with(hidden(), hidden()), None);
        assert_eq!(with(Ok(false), hidden()).expect("IPv4 is seen").state, State::Good);
        let finding = with(Ok(true), Ok(true)).expect("both are on");
        assert!(finding.says.contains("IPv4 and IPv6"), "{finding:?}");
        let advice = finding.advice.expect("it is a note");
        assert!(advice.ends_with("-w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0`"), "{advice}");
        assert!(with(Ok(true), hidden()).is_some_and(|finding| finding.says.contains("IPv4 itself")));
    }
}
