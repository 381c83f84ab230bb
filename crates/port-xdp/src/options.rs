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
    /// Opens one hardware queue as a stream that all cores share, for engines that need one order.
    pub single_queue: bool,
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
            single_queue: false,
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
        if self.memory() > u64::from(u32::MAX) {
            return refuse(format!("{} bytes of frames for a core: at most 4 GiB; take fewer frames", self.memory()));
        }
        if self.burst == 0 || self.burst > self.frames as usize / 4 {
            return refuse(format!("bursts of {}: take 1 to {}, a quarter of the frames", self.burst, self.frames / 4));
        }
        if self.mode == Mode::Generic && self.copying == Copying::ZeroCopy {
            return refuse("generic mode always copies; use native mode for zero-copy".into());
        }
        self.filter.check(self.interfaces.len())
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
