//! Ports whose packets are split: [`Splitting`] on the side of the split, and [`Headed`] on the side of the function.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{
    Batch, Fate, Opened, Order, Port, PortError, Queue, Receive, Received, Sides, Stream, Transmit, TransmitCounts,
};

use crate::park::{Joined, Park, Split};
use crate::tag::{TAG_BYTES, Wish, is_tagged, set_wish, whole_len};

/// A [`Park`] that several queues use.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Park>>);

impl Shared {
    /// Shares a park.
    #[must_use]
    pub fn new(park: Park) -> Self {
        Self(Arc::new(Mutex::new(park)))
    }

    /// The park, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, Park> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits the packets of a burst that came by these interfaces. If they are `to_send`, their lengths on the wire become what goes to the
/// function; otherwise they stay, for a function in this process to see.
pub(crate) fn split(
    park: &mut Park,
    batch: &mut Batch,
    which: impl Fn(u16) -> bool,
    to_send: bool,
    longer: &mut Vec<u8>,
) {
    for index in 0..batch.len() {
        let packet = batch.packets()[index];
        if !which(packet.interface) {
            continue;
        }
        match park.split(packet.link, packet.wire_len, batch.bytes_mut(index)) {
            Split::Whole => {}
            Split::Head { len, tag } if len + TAG_BYTES <= packet.len as usize => {
                batch.packets_mut()[index].len = (len + TAG_BYTES) as u32;
                batch.bytes_mut(index)[len..].copy_from_slice(&tag);
            }
            Split::Head { len, tag } => {
                longer.clear();
                longer.extend_from_slice(&batch.bytes(index)[..len]);
                longer.extend_from_slice(&tag);
                batch.replace(index, longer);
                let wire_len = packet.wire_len.max(longer.len() as u32);
                batch.packets_mut()[index].wire_len = wire_len;
            }
        }
        if to_send && packet.wire_len == packet.len {
            let packet = &mut batch.packets_mut()[index];
            packet.wire_len = packet.len;
        }
    }
}

/// A port that splits what it receives, and joins what it transmits: the function in between sees headers.
///
/// Dropped packets come back, too, so that their payload is let go.
#[derive(Debug)]
pub struct Splitting<P> {
    inner: P,
    park: Shared,
}

impl<P: Port> Splitting<P> {
    /// Splits the packets of `inner`.
    #[must_use]
    pub const fn new(inner: P, park: Shared) -> Self {
        Self { inner, park }
    }
}

impl<P: Port> Port for Splitting<P> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let Self { inner, park } = self;
        Ok(match inner.open(cores)? {
            Opened::Stream(Stream { input, output, order }) => {
                let restores = order == Order::All;
                Opened::Stream(Stream {
                    input: Box::new(Half::new(input, park, restores)),
                    output: Box::new(Half::new(output, park, restores)),
                    order: Order::All,
                })
            }
            Opened::Queues(queues) => {
                let half = |inner| Box::new(Half::new(inner, park, true)) as Box<dyn Queue>;
                Opened::Queues(queues.into_iter().map(half).collect())
            }
            Opened::Sequenced(_) => {
                return Err(PortError::Unfit("packets are split ahead of a sequencer, not behind it".into()));
            }
        })
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// A queue, or one half of a stream, whose packets are split.
struct Half<Q> {
    inner: Q,
    park: Shared,
    /// Whether dropped packets are joined: somebody further on looks at them.
    restores: bool,
    /// Packets that were to be sent and have lost their payload.
    lost: u64,
    scratch: Vec<u8>,
}

impl<Q> Half<Q> {
    fn new(inner: Q, park: &Shared, restores: bool) -> Self {
        Self { inner, park: park.clone(), restores, lost: 0, scratch: Vec::new() }
    }
}

impl<Q: Receive> Receive for Half<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.inner.receive(batch)?;
        let mut park = self.park.lock();
        park.tend();
        if received == Received::Packets {
            split(&mut park, batch, |_| true, false, &mut self.scratch);
        }
        Ok(received)
    }

    port::forward_receive!(inner);
}

impl<Q: Transmit> Transmit for Half<Q> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let mut park = self.park.lock();
        let restores = self.restores;
        let comes_back = |fate: Fate| restores || fate.ports().next().is_some();
        for (packet, bytes) in batch.each(0..batch.len()) {
            if comes_back(packet.fate) {
                park.ask(bytes);
            }
        }
        for index in 0..batch.len() {
            let packet = batch.packets()[index];
            match comes_back(packet.fate) {
                true => self.lost += join(&mut park, batch, index, &mut self.scratch),
                false => park.release(batch.bytes(index)),
            }
        }
        drop(park);
        self.inner.transmit(batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.inner.flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.inner.finish()
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.inner.sent().map(|counts| TransmitCounts { lost: counts.lost + self.lost, ..counts })
    }
}

/// Joins a packet of a burst. One whose payload is lost is not sent; returns how often it was to be.
pub(crate) fn join(park: &mut Park, batch: &mut Batch, index: usize, whole: &mut Vec<u8>) -> u64 {
    let packet = batch.packets()[index];
    match park.join(packet.link, batch.bytes(index), whole) {
        Joined::Plain => {}
        Joined::Whole => {
            batch.replace(index, whole);
            let wire_len = packet.wire_len.max(whole.len() as u32);
            batch.packets_mut()[index].wire_len = wire_len;
        }
        Joined::Gone => {
            batch.packets_mut()[index].fate = Fate::Pending;
            return packet.fate.ports().count() as u64;
        }
    }
    0
}

/// A port whose packets are headers that a split elsewhere has cut: the function sees the length of the whole packet. What it drops goes
/// back with a tag that says so.
#[derive(Debug)]
pub struct Headed<P> {
    inner: P,
}

impl<P: Port> Headed<P> {
    /// Takes the packets of `inner` for headers where they have a tag.
    #[must_use]
    pub const fn new(inner: P) -> Self {
        Self { inner }
    }
}

impl<P: Port> Port for Headed<P> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        Ok(match self.inner.open(cores)? {
            Opened::Stream(Stream { input, output, .. }) => Opened::Stream(Stream {
                input: Box::new(HeadedHalf { inner: input, released: 0 }),
                output: Box::new(HeadedHalf { inner: output, released: 0 }),
                // Dropped packets go back, too.
                order: Order::All,
            }),
            Opened::Queues(queues) => {
                let half = |inner| Box::new(HeadedHalf { inner, released: 0 }) as Box<dyn Queue>;
                Opened::Queues(queues.into_iter().map(half).collect())
            }
            Opened::Sequenced(_) => {
                let text = "behind a sequencer nothing goes back for dropped packets; take another sequencer";
                return Err(PortError::Unfit(text.into()));
            }
        })
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// A queue, or one half of a stream, whose packets are headers.
struct HeadedHalf<Q> {
    inner: Q,
    /// Frames sent in place of dropped packets.
    released: u64,
}

impl<Q: Receive> Receive for HeadedHalf<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.inner.receive(batch)?;
        if received == Received::Packets {
            let (packets, memory) = batch.apart();
            for packet in packets {
                if let Some(len) = whole_len(memory.bytes(packet)) {
                    packet.wire_len = len.max(packet.len);
                }
            }
        }
        Ok(received)
    }

    port::forward_receive!(inner);
}

/// Bytes of a frame that only says that a payload may go.
const RELEASE_LEN: usize = 64;

impl<Q: Transmit> Transmit for HeadedHalf<Q> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        for index in 0..batch.len() {
            let packet = batch.packets()[index];
            if !is_tagged(batch.bytes(index)) {
                continue;
            }
            // What is sent is the header.
            batch.packets_mut()[index].wire_len = packet.len;
            match packet.fate {
                Fate::Transmit(_) => {}
                Fate::Both(..) => set_wish(batch.bytes_mut(index), Wish::Keep),
                Fate::Drop(_) | Fate::Pending => {
                    let bytes = batch.bytes_mut(index);
                    set_wish(bytes, Wish::Release);
                    let len = bytes.len().min(RELEASE_LEN);
                    let tag = bytes.len() - TAG_BYTES;
                    bytes.copy_within(tag.., len - TAG_BYTES);
                    let packet = &mut batch.packets_mut()[index];
                    (packet.len, packet.wire_len) = (len as u32, len as u32);
                    packet.fate = Fate::Transmit(packet.interface);
                    self.released += 1;
                }
            }
        }
        self.inner.transmit(batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.inner.flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.inner.finish()
    }

    /// Without the frames in place of dropped packets.
    fn sent(&self) -> Option<TransmitCounts> {
        let TransmitCounts { sent, lost } = self.inner.sent()?;
        let unsent = self.released.saturating_sub(sent);
        Some(TransmitCounts { sent: sent.saturating_sub(self.released), lost: lost.saturating_sub(unsent) })
    }
}
