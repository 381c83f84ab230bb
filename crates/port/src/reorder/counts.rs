//! Counts of packets that were held and of those that were not: [`ReorderCounts`].

use std::sync::{Arc, Mutex, PoisonError};

/// Reason for which a packet was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheld {
    /// No packet of its connection came within the delay before it.
    First,
    /// The packet that left last is of its connection, which holds none: the two are together already.
    Follows,
    /// It is a TCP segment with SYN, FIN or RST.
    TcpControl,
    /// It is a TCP segment without payload.
    Acknowledgement,
    /// Its differentiated services code point is 44 or more: VOICE-ADMIT, EF, CS6, CS7.
    Priority,
    /// It is ICMP or ICMPv6.
    Icmp,
    /// It is an IP fragment.
    Fragment,
    /// It is no IP, or its headers can't be read.
    NoConnection,
    /// It is longer than all memory for held packets.
    TooLong,
}

impl Unheld {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::First,
        Self::Follows,
        Self::TcpControl,
        Self::Acknowledgement,
        Self::Priority,
        Self::Icmp,
        Self::Fragment,
        Self::NoConnection,
        Self::TooLong,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Follows => "follows",
            Self::TcpControl => "tcp-control",
            Self::Acknowledgement => "ack",
            Self::Priority => "priority",
            Self::Icmp => "icmp",
            Self::Fragment => "fragment",
            Self::NoConnection => "no-connection",
            Self::TooLong => "too-long",
        }
    }
}

/// Reason for which held packets of a connection were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The first of them was held for the whole delay.
    Delay,
    /// They were as many as a burst has at most.
    FullBurst,
    /// A packet that is not held must not overtake them.
    Order,
    /// There was no more room for packets or connections, and they were held for the longest time.
    Limit,
    /// The input has ended.
    End,
}

impl Release {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Delay, Self::FullBurst, Self::Order, Self::Limit, Self::End];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::FullBurst => "full-burst",
            Self::Order => "order",
            Self::Limit => "limit",
            Self::End => "end",
        }
    }
}

/// Counts of a queue, or of all queues of a port. At the end `received` is the sum of `unheld`, `released` and `left`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderCounts {
    /// Packets that came.
    pub received: u64,
    /// Packets that were not held, by the number of the reason in [`Unheld::ALL`].
    pub unheld: [u64; Unheld::ALL.len()],
    /// Packets that were held and released, by the number of the cause in [`Release::ALL`].
    pub released: [u64; Release::ALL.len()],
    /// Bursts that were released.
    pub bursts: u64,
    /// Packets of the largest burst.
    pub burst_max: u64,
    /// Sum of the times that released packets were held for, in nanoseconds.
    pub held_ns: u64,
    /// The longest of these times, in nanoseconds.
    pub held_ns_max: u64,
    /// Runs of packets of one connection, in the order in which they came. A packet without a connection is a run of its own.
    pub runs_before: u64,
    /// Such runs in the order in which they left.
    pub runs_after: u64,
    /// Packets that were still held when the run was stopped; nobody has seen them.
    pub left: u64,
}

impl ReorderCounts {
    /// Packets that were held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.released.iter().sum::<u64>() + self.left
    }

    /// Packets that were not held, by reason; those that there are.
    pub fn unheld(&self) -> impl Iterator<Item = (Unheld, u64)> + '_ {
        Unheld::ALL.into_iter().zip(self.unheld).filter(|(_, count)| *count > 0)
    }

    /// Packets that were released, by cause; those that there are.
    pub fn released(&self) -> impl Iterator<Item = (Release, u64)> + '_ {
        Release::ALL.into_iter().zip(self.released).filter(|(_, count)| *count > 0)
    }

    /// Adds another queue's.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.unheld.iter_mut().zip(other.unheld).for_each(|(own, other)| *own += other);
        self.released.iter_mut().zip(other.released).for_each(|(own, other)| *own += other);
        self.bursts += other.bursts;
        self.burst_max = self.burst_max.max(other.burst_max);
        self.held_ns += other.held_ns;
        self.held_ns_max = self.held_ns_max.max(other.held_ns_max);
        self.runs_before += other.runs_before;
        self.runs_after += other.runs_after;
        self.left += other.left;
    }
}

/// Counts of all queues of a port, which can be read while they are in use and afterwards.
#[derive(Clone, Debug, Default)]
pub struct ReorderTotals(Arc<Mutex<Vec<ReorderCounts>>>);

impl ReorderTotals {
    /// The counts so far. A queue tells its counts each time that it is asked for packets.
    #[must_use]
    pub fn get(&self) -> ReorderCounts {
        let mut sum = ReorderCounts::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|counts| sum.add(counts));
        sum
    }

    /// Makes room for the counts of one more queue. Returns its number.
    pub(super) fn join(&self) -> usize {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.push(ReorderCounts::default());
        queues.len() - 1
    }

    /// Replaces the counts of a queue.
    pub(super) fn set(&self, queue: usize, counts: &ReorderCounts) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[queue] = *counts;
    }
}
