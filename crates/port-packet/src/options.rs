//! Options of an AF_PACKET port.

use interface::check_names;
use port::Sides;

use crate::error::PacketError;

/// Options of a port on live interfaces.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces. With 2, 4, ... the first is paired with the second, and so on.
    pub interfaces: Vec<String>,
    /// The role of a port: to watch or to forward.
    pub role: Role,
    /// Which packets of an interface are received.
    pub traffic: Traffic,
    /// What becomes of link traffic: what is not IP, such as ARP, and IPv6 neighbour discovery.
    pub link: LinkPolicy,
    /// Lets the card receive frames for other hosts too, as long as the port is open.
    pub promiscuous: bool,
    /// Lets the kernel gather the fragments of IPv4 datagrams before it chooses a core, so that they go where the rest of their flow goes.
    pub defragment: bool,
    /// Bytes of a block, in which the kernel hands over packets: a power of two from 16 KiB to 4 MiB.
    pub block_len: u32,
    /// Blocks of each core for each interface.
    pub blocks: u32,
    /// How long the kernel keeps a block that isn't full, in milliseconds: what a packet waits at most.
    pub block_timeout_ms: u32,
    /// Bytes of a packet that are received; the rest is cut off.
    pub snap_len: u32,
    /// Packets of a batch, at most.
    pub burst: usize,
    /// Sends past the interface's queueing discipline: faster, but without its limits, and other taps don't see the packets.
    pub bypass_qdisc: bool,
    /// Opens a single socket for each interface, as a stream that all cores share, for engines that need one order.
    pub single_queue: bool,
}

/// The role of a port: to watch or to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Packets are copies. Nothing is sent, whatever the verdict.
    Observe,
    /// Packets are sent as the verdict says. The kernel has copies, and must not forward them itself.
    Forward,
}

/// Which packets of an interface are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Those that arrive at it.
    Arriving,
    /// Those that arrive at it, and those that this machine sends through it. The loopback has each of its packets twice.
    Both,
}

/// Destination of link traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// The function has it, as all other packets.
    Function,
    /// It is sent to the paired interface, and the function doesn't see it.
    Across,
}

impl Options {
    /// The defaults for a passive tap on these interfaces.
    #[must_use]
    pub fn observe<S: Into<String>>(interfaces: impl IntoIterator<Item = S>) -> Self {
        Self {
            interfaces: interfaces.into_iter().map(Into::into).collect(),
            role: Role::Observe,
            traffic: Traffic::Both,
            link: LinkPolicy::Function,
            promiscuous: true,
            defragment: false,
            block_len: 128 << 10,
            blocks: 128,
            block_timeout_ms: 2,
            snap_len: SNAP_LEN_MAX,
            burst: 64,
            bypass_qdisc: false,
            single_queue: false,
        }
    }

    /// The defaults for forwarding between these interfaces. Link traffic goes across if they are paired.
    #[must_use]
    pub fn forward<S: Into<String>>(interfaces: impl IntoIterator<Item = S>) -> Self {
        let base = Self::observe(interfaces);
        let link = if base.are_paired() { LinkPolicy::Across } else { LinkPolicy::Function };
        Self { role: Role::Forward, traffic: Traffic::Arriving, link, block_timeout_ms: 1, ..base }
    }

    /// True if each interface has another one on the other side.
    pub(crate) const fn are_paired(&self) -> bool {
        matches!(Sides::of(self.interfaces.len()), Sides::Pairs)
    }

    /// Checks each option and how they go together.
    pub(crate) fn check(&self) -> Result<(), PacketError> {
        let refuse = |text: String| Err(PacketError::Option(text));
        check_names(&self.interfaces).or_else(refuse)?;
        if !self.block_len.is_power_of_two() || !(16 << 10..=4 << 20).contains(&self.block_len) {
            return refuse(format!("blocks of {} bytes: take a power of two from 16384 to 4194304", self.block_len));
        }
        if !(2..=BLOCKS_MAX).contains(&self.blocks) {
            return refuse(format!("{} blocks: take 2 to {BLOCKS_MAX}", self.blocks));
        }
        if u64::from(self.blocks) * u64::from(self.block_len) > RING_MAX {
            return refuse(format!("{} blocks of {} bytes: a ring has 1 GiB at most", self.blocks, self.block_len));
        }
        if !(1..=1000).contains(&self.block_timeout_ms) {
            return refuse(format!("a block timeout of {} ms: take 1 to 1000", self.block_timeout_ms));
        }
        if !(64..=SNAP_LEN_MAX).contains(&self.snap_len) {
            return refuse(format!("{} bytes of a packet: take 64 to {SNAP_LEN_MAX}", self.snap_len));
        }
        if !(1..=BURST_MAX).contains(&self.burst) {
            return refuse(format!("bursts of {}: take 1 to {BURST_MAX}", self.burst));
        }
        if self.link == LinkPolicy::Across && !(self.role == Role::Forward && self.are_paired()) {
            return refuse(
                "link traffic goes across between paired interfaces that forward; leave it to the function".into(),
            );
        }
        match self.role {
            Role::Forward if self.traffic == Traffic::Both => {
                refuse("a port that forwards would receive what it has sent; take arriving packets alone".into())
            }
            Role::Forward if self.snap_len < SNAP_LEN_MAX => {
                refuse("a port that forwards needs whole packets; leave the snap length alone".into())
            }
            Role::Forward | Role::Observe => Ok(()),
        }
    }

    /// Bytes of a ring.
    pub(crate) const fn ring_len(&self) -> usize {
        self.blocks as usize * self.block_len as usize
    }
}

const BLOCKS_MAX: u32 = 1 << 16;
const RING_MAX: u64 = 1 << 30;
const BURST_MAX: usize = 4096;
/// Longer than any packet.
pub(crate) const SNAP_LEN_MAX: u32 = 0x4_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_with_the_range() {
        let tap = || Options::observe(["a"]);
        let told = |options: Options| options.check().map_err(|error| error.to_string());
        assert_eq!(told(tap()), Ok(()));
        assert_eq!(told(Options::forward(["a", "b"])), Ok(()));
        let refused = [
            (Options::observe(Vec::<String>::new()), "1 to 16 interfaces, not 0"),
            (Options::observe(["a", "a"]), "a is named twice"),
            (Options { block_len: 10_000, ..tap() }, "blocks of 10000 bytes"),
            (Options { blocks: 1, ..tap() }, "1 blocks: take 2"),
            (Options { blocks: 1 << 16, ..tap() }, "1 GiB at most"),
            (Options { block_timeout_ms: 0, ..tap() }, "take 1 to 1000"),
            (Options { snap_len: 20, ..tap() }, "take 64 to"),
            (Options { burst: 0, ..tap() }, "bursts of 0"),
            (Options { link: LinkPolicy::Across, ..tap() }, "leave it to the function"),
            (Options { link: LinkPolicy::Across, ..Options::forward(["a"]) }, "leave it to the function"),
            (Options { traffic: Traffic::Both, ..Options::forward(["a"]) }, "what it has sent"),
            (Options { snap_len: 100, ..Options::forward(["a"]) }, "whole packets"),
        ];
        for (options, reason) in refused {
            let error = told(options).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }
}
