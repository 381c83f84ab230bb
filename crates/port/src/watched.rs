//! Ports whose packets are looked at as they come and go: [`Watched`].

use std::sync::Arc;

use crate::batch::Batch;
use crate::error::PortError;
use crate::queue::{Opened, Order, Port, Queue, Receive, Received, Sequenced, Sides, Stream, Transmit, Work};

/// Looks at the packets of a port's queues. Cores call it once for each burst, so it must not wait for long.
pub trait Watch: Send + Sync {
    /// Packets have come to a queue.
    fn received(&self, queue: usize, batch: &Batch);

    /// Packets are about to go out, or to be dropped. Each that came is in one of these batches, unless a core has failed.
    fn decided(&self, queue: usize, batch: &Batch);
}

impl<W: Watch + ?Sized> Watch for Arc<W> {
    fn received(&self, queue: usize, batch: &Batch) {
        (**self).received(queue, batch);
    }

    fn decided(&self, queue: usize, batch: &Batch) {
        (**self).decided(queue, batch);
    }
}

/// All look, in order.
impl<W: Watch> Watch for Vec<W> {
    fn received(&self, queue: usize, batch: &Batch) {
        self.iter().for_each(|watch| watch.received(queue, batch));
    }

    fn decided(&self, queue: usize, batch: &Batch) {
        self.iter().for_each(|watch| watch.decided(queue, batch));
    }
}

/// A port whose packets a [`Watch`] looks at.
#[derive(Debug)]
pub struct Watched<P, W> {
    inner: P,
    watch: Arc<W>,
}

impl<P: Port, W: Watch> Watched<P, W> {
    /// Lets `watch` look at the packets of `inner`.
    #[must_use]
    pub fn new(inner: P, watch: W) -> Self {
        Self { inner, watch: Arc::new(watch) }
    }
}

impl<P: Port, W: Watch> Port for Watched<P, W> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let Self { inner, watch } = self;
        Ok(match inner.open(cores)? {
            Opened::Stream(Stream { input, output, .. }) => Opened::Stream(Stream {
                input: Box::new(Part { inner: input, queue: 0, watch: Arc::clone(watch) }),
                output: Box::new(Part { inner: output, queue: 0, watch: Arc::clone(watch) }),
                // Dropped packets are looked at, too.
                order: Order::All,
            }),
            Opened::Queues(queues) => {
                let part = |(queue, inner)| Box::new(Part { inner, queue, watch: Arc::clone(watch) }) as Box<dyn Queue>;
                Opened::Queues(queues.into_iter().enumerate().map(part).collect())
            }
            Opened::Sequenced(queues) => {
                let part = |(queue, Sequenced { queue: inner, history })| Sequenced {
                    queue: Box::new(Part { inner, queue, watch: Arc::clone(watch) }),
                    history,
                };
                Opened::Sequenced(queues.into_iter().enumerate().map(part).collect())
            }
        })
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// A queue, or one half of a stream.
struct Part<Q, W> {
    inner: Q,
    queue: usize,
    watch: Arc<W>,
}

impl<Q: Receive, W: Watch> Receive for Part<Q, W> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.inner.receive(batch)?;
        if received == Received::Packets {
            self.watch.received(self.queue, batch);
        }
        Ok(received)
    }

    crate::forward_receive!(inner);

    fn take_work(&mut self) -> Option<Work> {
        self.inner.take_work()
    }
}

impl<Q: Transmit, W: Watch> Transmit for Part<Q, W> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.watch.decided(self.queue, batch);
        self.inner.transmit(batch)
    }

    crate::forward_sending!(inner);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use packet::{LinkType, Nanos, Seq};

    use super::*;
    use crate::batch::{Fate, Packet};
    use crate::memory::{MemoryQueue, Trace};

    /// Numbers of packets that came, and of those that went, with their fates.
    #[derive(Default)]
    struct Seen {
        came: Mutex<Vec<u64>>,
        went: Mutex<Vec<(u64, Fate)>>,
    }

    impl Watch for Seen {
        fn received(&self, queue: usize, batch: &Batch) {
            assert_eq!(queue, 0);
            self.came.lock().unwrap().extend(batch.packets().iter().map(|packet| packet.seq.0));
        }

        fn decided(&self, _: usize, batch: &Batch) {
            self.went.lock().unwrap().extend(batch.packets().iter().map(|packet| (packet.seq.0, packet.fate)));
        }
    }

    #[test]
    fn packets_are_seen_as_they_come_and_go() {
        let mut trace = Trace::new();
        for number in 0..5 {
            let packet = Packet {
                seq: Seq(number),
                time: Nanos(0),
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
        let seen = Arc::new(Seen::default());
        let mut port = Watched::new(MemoryQueue::new(trace.into(), 2), Arc::clone(&seen));
        let Opened::Stream(Stream { mut input, mut output, order }) = port.open(2).unwrap() else {
            panic!("memory is a stream")
        };
        assert_eq!(order, Order::All);
        let mut batch = Batch::default();
        while input.receive(&mut batch).unwrap() != Received::End {
            for packet in batch.packets_mut() {
                packet.fate = if packet.seq.0.is_multiple_of(2) { Fate::Drop(3) } else { Fate::Transmit(1) };
            }
            output.transmit(&mut batch).unwrap();
        }
        assert_eq!(*seen.came.lock().unwrap(), [0, 1, 2, 3, 4]);
        let fate = |number| if u64::is_multiple_of(number, 2) { Fate::Drop(3) } else { Fate::Transmit(1) };
        assert_eq!(*seen.went.lock().unwrap(), (0..5).map(|number| (number, fate(number))).collect::<Vec<_>>());
    }
}
