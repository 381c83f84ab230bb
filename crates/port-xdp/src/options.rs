//! Options of an AF_XDP port.

use interface::{INTERFACES_MAX, check_names};

use crate::error::XdpError;
use crate::filter::Filter;

/// Options of a port on live interfaces.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces. With 2, 4, ... the first is paired with the second, and so on.
    pub interfaces: Vec<String>,
    /// Where the XDP program runs.
    pub mode: Mode,
    /// Whether the kernel copies packets.
    pub copying: Copying,
    /// What passes to the kernel, and what goes across.
    pub filter: Filter,
    /// Bytes of a frame: 2048 or 4096.
    pub frame_len: u32,
    /// Frames of each core for each interface: a power of two.
    pub frames: u32,
    /// Entries of each ring: a power of two.
    pub ring_len: u32,
    /// Packets of a batch, at most.
    pub burst: usize,
    /// Lets the kernel say when a system call is needed.
    pub need_wakeup: bool,
    /// Polls the card from the receiving thread, without interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// Packets that the kernel sends in one system call, in copy mode. Kernels that don't know the option send 32.
    pub transmit_budget: u32,
    /// The way in which packets are spread over cores.
    pub spread: Spread,
    /// Connections that the XDP programs may have, over all cores, to forward or drop their packets themselves
    /// ([`port::Receive::take_cards`]); 0: none.
    pub offload: u32,
}

impl Options {
    /// The defaults for these interfaces. Link traffic goes across if the interfaces are paired, and to the kernel otherwise.
    #[must_use]
    pub fn new<S: Into<String>>(interfaces: impl IntoIterator<Item = S>) -> Self {
        let interfaces: Vec<String> = interfaces.into_iter().map(Into::into).collect();
        Self {
            filter: Filter::for_interfaces(interfaces.len()),
            interfaces,
            mode: Mode::default(),
            copying: Copying::default(),
            frame_len: 2048,
            frames: 4096,
            ring_len: 2048,
            burst: 64,
            need_wakeup: true,
            busy_poll: None,
            transmit_budget: 256,
            spread: Spread::default(),
            offload: 0,
        }
    }

    /// Checks each option and how they go together.
    pub(crate) fn check(&self) -> Result<(), XdpError> {
        let refuse = |text: String| Err(XdpError::Option(text));
        check_names(&self.interfaces).or_else(refuse)?;
        if ![2048, 4096].contains(&self.frame_len) {
            return refuse(format!("frames of {} bytes: the kernel takes 2048 or 4096", self.frame_len));
        }
        for (value, what, range) in
            [(self.frames, "frames", 256..=1 << 18), (self.ring_len, "entries of a ring", 64..=1 << 15)]
        {
            if !value.is_power_of_two() || !range.contains(&value) {
                let (start, end) = range.into_inner();
                return refuse(format!("{value} {what}: take a power of two from {start} to {end}"));
            }
        }
        self.frames_for(1)?;
        if self.burst == 0 || self.burst > self.frames as usize / 4 {
            return refuse(format!("bursts of {}: take 1 to {}, a quarter of the frames", self.burst, self.frames / 4));
        }
        if self.mode == Mode::Generic && self.copying == Copying::ZeroCopy {
            return refuse("generic mode always copies; use native mode for zero-copy".into());
        }
        if self.offload > 0 && !self.interfaces.len().is_multiple_of(2) {
            return refuse(format!(
                "offload: the XDP program sends packets from one interface of a pair to the other, and here is an odd number of \
                 them, {}; name both interfaces of each pair, or leave offload out",
                self.interfaces.len()
            ));
        }
        if self.offload > OFFLOAD_MAX {
            return refuse(format!("{} offloaded connections: at most {OFFLOAD_MAX}", self.offload));
        }
        if self.offload > 0 && self.spread == Spread::Sequencer {
            return refuse(
                "offload: the sequencer has to number all packets, so the XDP program can't take some".into(),
            );
        }
        self.filter.check(self.interfaces.len())
    }

    /// Frames of so many cores that share a queue.
    pub(crate) fn frames_for(&self, cores: u32) -> Result<u32, XdpError> {
        let bytes = self.memory() * u64::from(cores);
        if bytes > u64::from(u32::MAX) {
            let of = if cores == 1 { "a core".to_owned() } else { format!("{cores} cores together") };
            return Err(XdpError::Option(format!(
                "{bytes} bytes of frames for {of}: at most 4 GiB; take fewer frames"
            )));
        }
        Ok(self.frames * self.interfaces.len() as u32 * cores)
    }

    /// Records in the history of a sequencer for so many cores: no more than their receive rings hold packets, as it would only be cold.
    pub(crate) fn records(&self, cores: u32) -> u32 {
        (self.ring_len * cores * self.interfaces.len() as u32).next_power_of_two().max(8192)
    }

    /// Bytes that a run with one queue locks. Memory counts once for each interface that it is registered with.
    pub(crate) fn locked_memory(&self) -> u64 {
        self.memory() * self.interfaces.len() as u64
    }

    /// Bytes of all frames of a core.
    fn memory(&self) -> u64 {
        u64::from(self.frames) * u64::from(self.frame_len) * self.interfaces.len() as u64
    }
}

// The ledger of frames has four bits for the interface.
const _: () = assert!(INTERFACES_MAX <= 16);

/// The most connections that XDP programs have.
const OFFLOAD_MAX: u32 = 16 << 20;

/// A way to spread the packets of a port's interfaces over cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By hardware queues: each core has one.
    #[default]
    Queues,
    /// By the engine: all cores share one hardware queue as a stream.
    Stream,
    /// By the XDP program: it numbers the packets of one hardware queue of each interface and hands them to cores in turn, with a
    /// [history](port::History) for all.
    Sequencer,
}

impl Spread {
    /// True if a run takes one hardware queue, however many cores it has.
    pub(crate) fn is_single_queue(self) -> bool {
        self != Self::Queues
    }
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the network stack, for drivers without XDP; three times slower.
    Generic,
    /// In the driver if it can; otherwise in the network stack, which [`describe`](crate::XdpPort::describe) tells, with the reason.
    #[default]
    Best,
}

/// The choice between copies by the kernel and frames that the card writes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// It copies.
    Copy,
    /// The card writes into the frames.
    ZeroCopy,
    /// No copy if the driver can; otherwise a copy, which [`describe`](crate::XdpPort::describe) tells, with the reason.
    #[default]
    Best,
}

/// Busy polling: the receiving thread runs the driver's receive loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a system call polls, in microseconds.
    pub time_us: u32,
    /// Packets of one poll, at most.
    pub budget: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { time_us: 20, budget: 64 }
    }
}
