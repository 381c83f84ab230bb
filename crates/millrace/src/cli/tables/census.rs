//! Counts the flows of a capture like a connection tracker with one idle timeout, in packet time.

use flow::{Plan, Slot, Table};
use packet::{FiveTuple4, FiveTuple6, Key, Nanos};

use super::capture::Seen;

/// Counts the flows of both families.
pub(super) struct Census {
    pub(super) v4: Family<FiveTuple4>,
    pub(super) v6: Family<FiveTuple6>,
    pub(super) flows: FlowStats,
    /// The most flows of each family, and of both together, that were alive at once.
    pub(super) peak: Peak,
    second: Second,
}

/// Statistics of the flows of both families.
#[derive(Default)]
pub(super) struct FlowStats {
    pub(super) opened: u64,
    pub(super) packets: u64,
    /// Flows that were never answered.
    pub(super) unanswered: u64,
    /// Sum of the times from first to last packet.
    lives: f64,
    /// Packets of each flow.
    sizes: Vec<u32>,
}

/// Number of flows alive at the maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) v4: usize,
    pub(super) v6: usize,
    pub(super) all: usize,
    /// Those of `all` that were not answered by then.
    pub(super) unanswered: usize,
}

/// The flows of one family, in a table that grows.
pub(super) struct Family<K> {
    table: Table<K, Flow>,
    unanswered: usize,
    /// Packets of flows that did not fit, because more than [`FLOWS_MAX`] were alive.
    pub(super) uncounted: u64,
}

#[derive(Clone, Copy)]
struct Flow {
    first: Nanos,
    last: Nanos,
    packets: u32,
    /// True if the first endpoint opened it.
    opener_first: bool,
    answered: bool,
}

/// Openings in the busiest second.
#[derive(Default)]
struct Second {
    began: Nanos,
    opened: u64,
    most: u64,
}

/// Maximum number of flows of a family; they need about a gigabyte.
const FLOWS_MAX: usize = 16 << 20;
/// Maximum number of flows with a recorded size.
const SIZES_MAX: usize = 64 << 20;
/// Units of ageing for each packet: far more than one new flow per packet needs, so that no flow is counted long after its expiry.
const WORK: usize = 16;

impl Census {
    pub(super) fn new() -> Self {
        Self {
            v4: Family::new(),
            v6: Family::new(),
            flows: FlowStats::default(),
            peak: Peak::default(),
            second: Second::default(),
        }
    }

    pub(super) fn see(&mut self, seen: &Seen, timeout: Nanos) {
        self.v4.age(seen.time, &mut self.flows);
        self.v6.age(seen.time, &mut self.flows);
        let opened = match seen.flow {
            packet::FiveTuple::V4(key) => self.v4.see(key, seen, timeout, &mut self.flows),
            packet::FiveTuple::V6(key) => self.v6.see(key, seen, timeout, &mut self.flows),
        };
        self.flows.packets += 1;
        if opened {
            self.flows.opened += 1;
            self.second.open(seen.time);
            let (v4, v6) = (self.v4.table.len(), self.v6.table.len());
            self.peak.v4 = self.peak.v4.max(v4);
            self.peak.v6 = self.peak.v6.max(v6);
            if v4 + v6 > self.peak.all {
                self.peak.all = v4 + v6;
                self.peak.unanswered = self.v4.unanswered + self.v6.unanswered;
            }
        }
    }

    /// Ends the count; flows that are alive count as they are.
    pub(super) fn finish(&mut self) {
        for (_, flow, _) in self.v4.table.iter() {
            self.flows.end(flow);
        }
        for (_, flow, _) in self.v6.table.iter() {
            self.flows.end(flow);
        }
        self.flows.sizes.sort_unstable();
    }

    /// The most openings within a second of packet time.
    pub(super) fn busiest_second(&self) -> u64 {
        self.second.most.max(self.second.opened)
    }
}

impl Second {
    fn open(&mut self, time: Nanos) {
        if time.since(self.began) >= Nanos::from_secs(1) {
            self.most = self.most.max(self.opened);
            (self.began, self.opened) = (time, 0);
        }
        self.opened += 1;
    }
}

impl FlowStats {
    fn end(&mut self, flow: &Flow) {
        self.unanswered += u64::from(!flow.answered);
        self.lives += flow.last.since(flow.first).as_secs_f64();
        if self.sizes.len() < SIZES_MAX {
            self.sizes.push(flow.packets);
        }
    }

    /// Mean time from the first to the last packet of a flow, in seconds.
    pub(super) fn mean_life(&self) -> f64 {
        self.lives / self.opened.max(1) as f64
    }

    /// The largest flow's packets.
    pub(super) fn largest(&self) -> u64 {
        self.sizes.last().map_or(0, |packets| u64::from(*packets))
    }

    /// The packets of the largest tenth of the flows.
    pub(super) fn tenth(&self) -> u64 {
        self.sizes.iter().rev().take(self.sizes.len().div_ceil(10)).map(|packets| u64::from(*packets)).sum()
    }
}

impl<K: Key> Family<K> {
    fn new() -> Self {
        Self { table: table(1 << 10), unanswered: 0, uncounted: 0 }
    }

    /// Removes expired flows.
    fn age(&mut self, now: Nanos, flows: &mut FlowStats) {
        for _ in 0..WORK {
            if let Some(slot) = self.table.reclaim(now) {
                self.end(slot, flows);
            }
        }
    }

    fn end(&mut self, slot: Slot, flows: &mut FlowStats) {
        let flow = self.table.remove(slot);
        self.unanswered -= usize::from(!flow.answered);
        flows.end(&flow);
    }

    /// True if the packet opens a flow.
    fn see(&mut self, key: K, seen: &Seen, timeout: Nanos, flows: &mut FlowStats) -> bool {
        let now = seen.time;
        let hash = self.table.hash(&key);
        if let Some(slot) = self.table.find(&key, hash) {
            if self.table.deadline(slot) > now {
                let flow = self.table.value_mut(slot);
                flow.packets = flow.packets.saturating_add(1);
                flow.last = now;
                if !flow.answered && flow.opener_first != seen.from_first {
                    flow.answered = true;
                    self.unanswered -= 1;
                }
                self.table.touch(slot, now + timeout);
                return false;
            }
            self.end(slot, flows);
        }
        if self.table.is_full() && !self.grow(now) {
            self.uncounted += 1;
            return false;
        }
        let flow = Flow { first: now, last: now, packets: 1, opener_first: seen.from_first, answered: false };
        let room = self.table.insert(key, self.table.hash(&key), flow, now + timeout, now);
        self.unanswered += usize::from(room.is_some());
        self.uncounted += u64::from(room.is_none());
        room.is_some()
    }

    /// Moves to a table twice as large; `false` if that would be too large.
    fn grow(&mut self, now: Nanos) -> bool {
        let capacity = self.table.capacity() * 2;
        if capacity > FLOWS_MAX {
            return false;
        }
        let mut larger = table(capacity);
        for (key, flow, deadline) in self.table.iter() {
            larger.insert(*key, larger.hash(key), *flow, deadline, now).expect("twice the room is enough");
        }
        self.table = larger;
        true
    }
}

fn table<K: Key>(capacity: usize) -> Table<K, Flow> {
    Table::planned(Plan { capacity, ..Plan::default() })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use packet::FiveTuple;

    use super::*;

    fn seen(host: u32, from_first: bool, millis: u64) -> Seen {
        let flow = FiveTuple::v4(Ipv4Addr::from_bits(host), Ipv4Addr::new(192, 0, 2, 1), 1, 2, 17);
        Seen { time: Nanos::from_millis(millis), flow, from_first }
    }

    #[test]
    fn flows_end_when_they_are_idle_for_too_long() {
        let mut census = Census::new();
        let timeout = Nanos::from_secs(10);
        for host in 0..5_000 {
            census.see(&seen(host, true, 1_000 + u64::from(host)), timeout);
        }
        // Half are answered; all but one of the others are over by the time of the last packets.
        for host in 0..2_500 {
            census.see(&seen(host, false, 9_000), timeout);
        }
        census.see(&seen(4_999, true, 12_000), timeout);
        for host in 0..3_000 {
            census.see(&seen(10_000 + host, true, 17_000), timeout);
        }
        assert_eq!((census.peak.all, census.peak.v6), (5_501, 0), "2,500, 3,000 and 1");
        census.finish();
        assert_eq!(census.flows.opened, 8_000);
        assert_eq!(census.flows.unanswered, 5_500);
        assert_eq!(census.flows.largest(), 2);
        assert!((3_000..=5_000).contains(&census.busiest_second()));
    }
}
