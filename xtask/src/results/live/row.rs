//! Three network namespaces in a row, a generator of packets on the left, and what is measured in the middle.
//!
//! ```text
//! left [h0] --- [a0] middle [a1] --- [h1] right
//! ```

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The destination of the generator's frames, so that a kernel in the middle forwards them.
const MIDDLE_MAC: &str = "02:00:00:00:00:02";
/// The neighbour on the right, which nobody is: its packets end where they arrive, as those of the programs do.
const RIGHT_MAC: &str = "02:00:00:00:00:03";
/// Source and destination of the generator's packets.
const SOURCE: &str = "10.9.0.1";
const DESTINATION: &str = "10.9.0.2";

/// How long a program may take to begin. The machine may be busy.
const BEGIN: Duration = Duration::from_secs(30);
/// How long what is in the rings may take to be worked off.
const DRAIN: Duration = Duration::from_millis(20);

/// Namespaces and wires. They are removed on drop.
pub(super) struct Row {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

/// What forwards in the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Routing alone.
    Forwarding,
    /// Routing, and a rule of iptables that tracks connections.
    Tracking,
}

/// The two processors: one for the generator, and with it the driver's receive work; one for what is measured.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    pub(super) generator: usize,
    pub(super) function: usize,
}

/// What was counted while the generator ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Packets that the generator sent, and how long it took.
    pub(super) offered: u64,
    pub(super) took_s: f64,
    /// Packets that arrived on the right.
    pub(super) arrived: u64,
    /// Processor time of the program, in user and kernel mode.
    pub(super) processor_s: Option<(f64, f64)>,
}

struct Namespace(String);

impl Row {
    pub(super) fn new(label: &str) -> Result<Self> {
        let make = |side: &str| Namespace::new(&format!("mr-{}-{label}-{side}", std::process::id()));
        let row = Self { left: make("l")?, middle: make("m")?, right: make("r")? };
        for (near, other, far) in [("a0", &row.left, "h0"), ("a1", &row.right, "h1")] {
            let pair = ["link", "add", near, "type", "veth", "peer", "name", far, "netns", &other.0];
            row.middle.ip(&pair)?;
            for (namespace, end) in [(&row.middle, near), (other, far)] {
                namespace.run("ethtool", &["-K", end, "tx", "off"])?;
                namespace.ip(&["link", "set", end, "addrgenmode", "none", "arp", "off", "up"])?;
            }
        }
        row.middle.ip(&["link", "set", "a0", "address", MIDDLE_MAC])?;
        Ok(row)
    }

    /// Lets the kernel in the middle forward. The packets of `a0` go to the processor of what is measured as soon as the driver has them.
    pub(super) fn forward(&self, kernel: Kernel, placement: Placement) -> Result<()> {
        let middle = &self.middle;
        for setting in ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.a0.rp_filter=0"] {
            middle.run("sysctl", &["-qw", setting])?;
        }
        middle.ip(&["addr", "add", "10.9.1.1/24", "dev", "a0"])?;
        middle.ip(&["addr", "add", "10.9.2.1/24", "dev", "a1"])?;
        middle.ip(&["route", "add", SOURCE, "dev", "a0"])?;
        middle.ip(&["route", "add", DESTINATION, "dev", "a1"])?;
        middle.ip(&["neigh", "add", DESTINATION, "lladdr", RIGHT_MAC, "dev", "a1", "nud", "permanent"])?;
        // Without it a veth end receives no frames that were redirected to its peer.
        middle.run("ethtool", &["-K", "a0", "gro", "on"])?;
        let mask = format!("echo {:x} > /sys/class/net/a0/queues/rx-0/rps_cpus", 1_u64 << placement.function);
        middle.run("sh", &["-c", &mask])?;
        if kernel == Kernel::Tracking {
            let rule = ["-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW,ESTABLISHED", "-j", "ACCEPT"];
            middle.run("iptables", &rule)?;
            middle.run("iptables", &["-P", "FORWARD", "DROP"])?;
        }
        Ok(())
    }

    /// Starts a program in the middle, and waits until it has attached its XDP program to the last of its interfaces.
    pub(super) fn start(
        &self,
        program: &Path,
        arguments: &[String],
        last: &str,
        placement: Placement,
    ) -> Result<Running> {
        let mut command = self.middle.pinned(placement.function, program);
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = Running(Some(child.with_context(|| format!("{} can't be run", program.display()))?));
        let end = Instant::now() + BEGIN;
        // The verbose form tells of the program that is attached.
        while !self.middle.ip(&["-d", "link", "show", "dev", last])?.contains("prog/xdp") {
            if running.has_ended()? || Instant::now() >= end {
                bail!("{} {} did not begin: {}", program.display(), arguments.join(" "), running.complaint());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// Runs the generator, and takes a program's processor time meanwhile.
    pub(super) fn flood(
        &self,
        flood: &Path,
        seconds: u64,
        running: Option<&Running>,
        placement: Placement,
    ) -> Result<Window> {
        let time = || running.map(Running::processor_time).transpose();
        let (before, arrived) = (time()?, self.arrived()?);
        let mut command = self.left.pinned(placement.generator, flood);
        let printed = output(command.args(["h0", "--seconds", &seconds.to_string(), "--flows", "64"]))?;
        thread::sleep(DRAIN);
        let (after, arrived) = (time()?, self.arrived()? - arrived);
        let words: Vec<&str> = printed.split_whitespace().collect();
        let (Some(offered), Some(took_s)) =
            (words.first().and_then(|word| word.parse().ok()), words.get(3).and_then(|word| word.parse().ok()))
        else {
            bail!("the generator printed {printed:?}");
        };
        let processor_s = after.zip(before).map(|(after, before)| (after.0 - before.0, after.1 - before.1));
        Ok(Window { offered, took_s, arrived, processor_s })
    }

    /// Packets that have arrived on the right.
    fn arrived(&self) -> Result<u64> {
        let printed = self.right.run("cat", &["/proc/net/dev"])?;
        let line = printed.lines().find_map(|line| line.trim().strip_prefix("h1:"));
        let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.context("/proc/net/dev has no packets of h1")
    }
}

/// A program in the middle. It is ended on drop.
pub(super) struct Running(Option<Child>);

impl Running {
    fn child(&self) -> &Child {
        self.0.as_ref().expect("it is taken at the end")
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.as_mut().expect("it is taken at the end").try_wait()?.is_some())
    }

    /// Ends it, and returns what it has complained of.
    fn complaint(mut self) -> String {
        let Some(mut child) = self.0.take() else { return String::new() };
        let _ = child.kill();
        let output = child.wait_with_output();
        output.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned()).unwrap_or_default()
    }

    /// Seconds of processor time of all its threads, in user and kernel mode. The scheduler's clock has the sum; the shares are told in
    /// hundredths of a second.
    fn processor_time(&self) -> Result<(f64, f64)> {
        let process = format!("/proc/{}", self.child().id());
        let mut sum_s = 0.0;
        for thread in fs::read_dir(format!("{process}/task")).context("the program has ended too early")? {
            let path = thread?.path().join("schedstat");
            let text = fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
            let on_processor_ns: f64 = text.split(' ').next().unwrap_or_default().parse()?;
            sum_s += on_processor_ns / 1e9;
        }
        let stat = fs::read_to_string(format!("{process}/stat"))?;
        // The name in parentheses may have spaces.
        let rest: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let (user, system): (f64, f64) = (rest[11].parse()?, rest[12].parse()?);
        let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        Ok((sum_s * share, sum_s * (1.0 - share)))
    }

    /// Waits for its end. Returns what it has printed.
    pub(super) fn end(mut self) -> Result<String> {
        let output = self.0.take().expect("it is taken once").wait_with_output()?;
        ensure!(output.status.success(), "the program failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Namespace {
    fn new(name: &str) -> Result<Self> {
        output(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Self(name.to_owned());
        // Its interfaces send nothing of their own.
        for which in ["all", "default"] {
            namespace.run("sysctl", &["-qw", &format!("net.ipv6.conf.{which}.disable_ipv6=1")])?;
        }
        Ok(namespace)
    }

    fn ip(&self, arguments: &[&str]) -> Result<String> {
        output(Command::new("ip").args(["-n", &self.0]).args(arguments))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        output(Command::new("ip").args(["netns", "exec", &self.0, program]).args(arguments))
    }

    /// A command in the namespace on one processor. Each program replaces the one before, so the process is the last one's.
    fn pinned(&self, processor: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, "taskset", "-c", &processor.to_string()]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Interfaces are removed with their namespace.
        let _ = output(Command::new("ip").args(["netns", "del", &self.0]));
    }
}

/// Runs a command to its end.
fn output(command: &mut Command) -> Result<String> {
    let made = command.output().with_context(|| format!("{:?} can't be run; install it", command.get_program()))?;
    ensure!(made.status.success(), "{command:?}: {}", String::from_utf8_lossy(&made.stderr).trim());
    Ok(String::from_utf8_lossy(&made.stdout).into_owned())
}
