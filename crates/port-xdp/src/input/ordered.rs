//! A core's queue behind a sequencer: packets in the order of their numbers, from sockets of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use locality::loan::Loan;
use packet::{LinkType, Nanos, Seq};
use port::{Batch, Fate, History, Mark, Packet, Past, PortError, Receive, ReceiveLosses, Received};

use super::{Arrival, Inlet, Input};
use crate::clock::{Clock, monotonic};
use crate::sequencer::{Reader, UNNUMBERED, What};

/// Receives a core's packets, which come by several interfaces, in the order of their numbers.
///
/// Packets of one interface come in order. So a packet is lost if a later one has come from its interface, and it may still come if none
/// has; then it is waited for, but not for long.
pub(crate) struct OrderedInput {
    input: Input,
    reader: Arc<Mutex<Reader>>,
    /// True if the next packet has been numbered, and has not come yet.
    is_awaited: bool,
    latest: Nanos,
}

/// A core's view of the history.
pub(crate) struct HistoryView {
    reader: Arc<Mutex<Reader>>,
    clock: Clock,
    /// The latest time so far. Programs on different processors may look at the clock in another order than they take numbers.
    latest: u64,
}

/// How long after its numbering a packet is waited for. A driver hands packets over in bursts, the last of them within microseconds.
const PATIENCE: Duration = Duration::from_millis(2);
/// Longest sleep while a packet is waited for.
const AWAITING: Duration = Duration::from_micros(100);

fn lock(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OrderedInput {
    pub(crate) fn new(input: Input, reader: Arc<Mutex<Reader>>) -> Self {
        Self { input, reader, is_awaited: false, latest: Nanos(0) }
    }

    /// The core's view of the history.
    pub(crate) fn history(&self) -> HistoryView {
        HistoryView { reader: Arc::clone(&self.reader), clock: self.input.clock, latest: 0 }
    }

    /// Takes packets in order into the batch, as far as they are known.
    fn fill(&mut self, reader: &mut Reader, loan: usize, batch: &mut Batch) {
        self.is_awaited = false;
        while batch.len() < self.input.options.burst {
            let Some(entry) = reader.own_entry() else { break };
            let (time, interface) = match entry.what {
                What::Mark { first, .. } => {
                    reader.read_to_mark(first);
                    break;
                }
                What::Packet { interface, .. } => (entry.time, usize::from(interface)),
            };
            let number = reader.own();
            self.input.take_links(interface);
            match self.input.front_number(interface) {
                Some(front) if front == number => {
                    self.latest = self.latest.max(self.input.clock.of(time));
                    if let Some(arrival) = self.input.take_front(interface) {
                        let seq = Seq(reader.place_of(number));
                        self.input.hand_out(interface, arrival, (seq, self.latest), loan, batch);
                    }
                }
                Some(front) if front > number => {}
                Some(_) => {
                    self.input.drop_late(interface);
                    continue;
                }
                None if monotonic().saturating_sub(time) > PATIENCE.as_nanos() as u64 => {}
                None => {
                    self.is_awaited = true;
                    break;
                }
            }
            reader.pass_own();
        }
    }
}

impl Receive for OrderedInput {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        self.input.begin();
        let reader = Arc::clone(&self.reader);
        let mut reader = lock(&reader);
        let count = self.input.interfaces.len();
        if self.input.place.is_first() {
            (0..count).for_each(|interface| self.input.take_links(interface));
        }
        // If all loans are out, packets wait in the rings until one is back.
        let loan = if reader.own_entry().is_some() { self.input.loans.begin() } else { None };
        if let Some(loan) = loan {
            let (memory, lender) = (self.input.core.umem.memory(), self.input.loans.lender());
            // SAFETY: as in `Input::receive`.
            batch.lend_buffers(unsafe { Loan::new(memory, loan as u64, lender) });
            self.fill(&mut reader, loan, batch);
        }
        self.input.interfaces.iter_mut().filter_map(|interface| interface.inlet.as_mut()).for_each(Inlet::release);
        self.input.send_across();
        (0..count).for_each(|interface| self.input.refill(interface));
        if batch.is_empty() {
            batch.clear();
            return self.input.idle();
        }
        self.input.note_free();
        Ok(Received::Packets)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        if self.is_awaited {
            std::thread::sleep(at_most.min(AWAITING));
            return Ok(());
        }
        self.input.wait(at_most)
    }

    fn now(&self) -> Option<Nanos> {
        self.input.now()
    }

    fn lost(&self) -> ReceiveLosses {
        self.input.lost()
    }
}

impl Input {
    /// The number of the next packet of an interface, if one has come.
    fn front_number(&mut self, interface: usize) -> Option<u64> {
        let Self { core, interfaces, free, .. } = self;
        let inlet = interfaces[interface].inlet.as_mut()?;
        if inlet.front.is_none() {
            let arrival = inlet.pop(core, interface, free)?;
            let number = match arrival {
                // SAFETY: the kernel has filled the frame and given it back, and nobody else has it yet.
                Arrival::InFrame(address, _) => unsafe { core.umem.stamped_number(address) },
                Arrival::Gathered => inlet.stamped,
            };
            // Without a stamp it belongs nowhere: as if it had come too late.
            inlet.front = Some((arrival, number.unwrap_or(0)));
        }
        inlet.front.map(|(_, number)| number)
    }

    /// Takes link traffic that goes across, up to the next packet for the function.
    fn take_links(&mut self, interface: usize) {
        while self.front_number(interface) == Some(UNNUMBERED)
            && let Some(arrival) = self.take_front(interface)
        {
            self.send_link(interface, arrival);
        }
    }

    fn take_front(&mut self, interface: usize) -> Option<Arrival> {
        self.interfaces[interface].inlet.as_mut()?.front.take().map(|(arrival, _)| arrival)
    }

    /// Drops the next packet of an interface: the replicas have gone on without it.
    fn drop_late(&mut self, interface: usize) {
        let Some(arrival) = self.take_front(interface) else { return };
        if let Arrival::InFrame(address, _) = arrival {
            self.free.extend(self.core.ledger.unfill(self.core.umem.frame_at(address), interface));
        }
        self.interfaces[interface].lost_before += 1;
        self.interfaces[interface].device.count_lost(1);
    }
}

/// How many records ahead a record is prefetched.
const AHEAD: u64 = 4;

impl History for HistoryView {
    fn has_more(&self) -> bool {
        lock(&self.reader).has_more()
    }

    fn read(&mut self, take: &mut dyn FnMut(&Packet, &[u8])) -> Past {
        let mut reader = lock(&self.reader);
        let mut mark = None;
        while let Some(entry) = reader.entry_to_read() {
            self.latest = self.latest.max(entry.time);
            let time = self.clock.of(self.latest);
            match entry.what {
                What::Mark { stops, .. } => {
                    mark = Some(if stops { Mark::Stop } else { Mark::Quiet(time) });
                    break;
                }
                What::Packet { wire_len, interface, head } => {
                    reader.prefetch(AHEAD);
                    let packet = Packet {
                        seq: Seq(reader.place_of(reader.next())),
                        time,
                        offset: 0,
                        len: head.len() as u32,
                        wire_len,
                        interface,
                        link: LinkType::Ethernet,
                        bucket: 0,
                        fate: Fate::Pending,
                    };
                    take(&packet, head);
                }
            }
            reader.step();
        }
        let past = Past { end: Seq(reader.place_of(reader.next())), mark };
        if let Some(mark) = mark {
            reader.step_over_mark();
            if mark == Mark::Stop {
                reader.has_stopped();
            }
        }
        reader.tell();
        past
    }

    fn mark(&mut self, mark: Mark) {
        let reader = lock(&self.reader);
        match mark {
            Mark::Stop => reader.stop(),
            Mark::Quiet(_) => reader.quiet(),
        }
    }
}
