//! Times from arrival to transmit, under an offered load.
//!
//! A packet arrives when its turn on the wire comes, whether or not a core is ready ([`Arrivals`]). So a core that falls behind has the wait
//! of all packets meanwhile in its figures, and no slow moment goes unseen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use port::{Arrivals, Batch, DESCRIPTORS, Load, PortError, Queue, Receive, Received, Transmit};

/// Plan of measuring times from arrival to transmit.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayPlan {
    /// Offered loads, as shares of each row's own throughput.
    pub loads: Vec<f64>,
    /// Duration of a trial before packets count.
    pub warm_up: Duration,
    /// Duration of the part that counts.
    pub trial: Duration,
    /// Descriptors of each core's receive ring.
    pub descriptors: usize,
}

impl Default for DelayPlan {
    fn default() -> Self {
        Self {
            loads: vec![0.1, 0.5, 0.9],
            warm_up: Duration::from_millis(20),
            trial: Duration::from_millis(200),
            descriptors: DESCRIPTORS,
        }
    }
}

impl DelayPlan {
    /// The load of a trial at this rate, in millions of packets a second.
    pub(crate) fn load(&self, mpps: f64) -> Load {
        Load { rate_pps: mpps * 1e6, warm_up: self.warm_up, duration: self.trial, descriptors: self.descriptors }
    }
}

/// Times from arrival to transmit at one load, over all rounds. A packet that is dropped counts until then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// The load, as a share of the row's throughput.
    pub load: f64,
    /// The same in millions of packets a second.
    pub mpps: f64,
    /// Number of packets.
    pub packets: u64,
    /// Half of them took at most this long.
    pub p50: Duration,
    /// 99 % of them.
    pub p99: Duration,
    /// 99.9 % of them.
    pub p999: Duration,
    /// The slowest.
    pub worst: Duration,
    /// Share of packets that found the receive ring full. They are in no other figure.
    pub lost: f64,
}

/// Times at one load, of all cores and rounds so far.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    pub(crate) load: f64,
    pub(crate) mpps: f64,
    pub(crate) offered: u64,
    pub(crate) lost: u64,
    times: Histogram<u64>,
}

/// Longer times count as this long.
const LONGEST: Duration = Duration::from_secs(10);

/// A histogram of nanoseconds, within 1 %.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 2).expect("the bounds are right")
}

impl Delays {
    pub(crate) fn new(load: f64) -> Self {
        Self { load, mpps: 0.0, offered: 0, lost: 0, times: empty() }
    }

    /// Adds the times of a trial.
    pub(crate) fn add(&mut self, times: &Measured) {
        for queue in &times.0 {
            // Both have the same bounds, so this can't fail.
            let _ = self.times.add(&*queue.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(crate) fn result(&self) -> Delay {
        let at = |quantile| Duration::from_nanos(self.times.value_at_quantile(quantile));
        Delay {
            load: self.load,
            mpps: self.mpps,
            packets: self.times.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: Duration::from_nanos(self.times.max()),
            lost: self.lost as f64 / self.offered.max(1) as f64,
        }
    }
}

/// Times of each queue of a trial.
pub(crate) struct Measured(Vec<Arc<Mutex<Histogram<u64>>>>);

/// A queue whose packets are timed.
struct Timed<Q> {
    inner: Q,
    arrivals: Arrivals,
    times: Histogram<u64>,
    /// Gets the times at the end.
    told: Arc<Mutex<Histogram<u64>>>,
}

/// Times the packets of these queues.
pub(crate) fn timed(queues: Vec<Box<dyn Queue>>, arrivals: &Arrivals) -> (Vec<Box<dyn Queue>>, Measured) {
    let told: Vec<_> = queues.iter().map(|_| Arc::new(Mutex::new(empty()))).collect();
    let timed = queues.into_iter().zip(&told).map(|(inner, told)| {
        let timed = Timed { inner, arrivals: arrivals.clone(), times: empty(), told: Arc::clone(told) };
        Box::new(timed) as Box<dyn Queue>
    });
    (timed.collect(), Measured(told))
}

impl<Q: Queue> Receive for Timed<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.inner.receive(batch)
    }

    port::forward_receive!(inner);
}

impl<Q: Queue> Transmit for Timed<Q> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let now = Instant::now();
        for packet in batch.packets() {
            if let Some(arrival) = self.arrivals.of(packet.seq) {
                let nanos = now.saturating_duration_since(arrival).as_nanos() as u64;
                self.times.saturating_record(nanos.max(1));
            }
        }
        self.inner.transmit(batch)
    }

    port::forward_sending!(inner);
}

impl<Q> Drop for Timed<Q> {
    fn drop(&mut self) {
        // Both have the same bounds, so this can't fail.
        let _ = self.told.lock().unwrap_or_else(PoisonError::into_inner).add(&self.times);
    }
}

#[cfg(test)]
mod tests {
    use packet::{LinkType, Nanos, Seq};
    use port::{Fate, Packet, Replay, Trace};

    use super::*;

    /// A core that looks away for a while has the wait in the times of all packets that came meanwhile.
    #[test]
    fn a_wait_is_in_the_times_of_all_that_came_meanwhile() {
        let mut trace = Trace::new();
        for number in 0..64 {
            let packet = Packet {
                seq: Seq(number),
                time: Nanos(number),
                offset: 0,
                len: 0,
                wire_len: 60,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            trace.push(packet, &[0; 60]);
        }
        let mut replay = Replay::new(trace.into());
        // 100,000 packets a second for 100 ms; the ring has room for those of 41 ms.
        let plan = DelayPlan {
            warm_up: Duration::ZERO,
            trial: Duration::from_millis(100),
            descriptors: 4096,
            loads: Vec::new(),
        };
        let queues = replay.offer(1, plan.load(0.1));
        let (mut queues, times) = timed(queues, &replay.arrivals().unwrap());
        let mut batch = Batch::default();
        let mut received = 0;
        let mut waited = false;
        while queues[0].receive(&mut batch).unwrap() != Received::End {
            received += batch.len() as u64;
            if received > 1000 && !waited {
                waited = true;
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(30) {
                    std::hint::spin_loop();
                }
            }
            queues[0].transmit(&mut batch).unwrap();
        }
        drop(queues);
        let mut delays = Delays::new(0.1);
        delays.add(&times);
        let delay = delays.result();
        assert_eq!(delay.packets, received);
        assert!(delay.worst >= Duration::from_millis(30), "{delay:?}");
        // 3,000 of 10,000 packets came meanwhile, and waited for up to 30 ms.
        assert!(delay.p99 >= Duration::from_millis(20), "{delay:?}");
    }
}
