//! The packets that travel together through an engine.

use packet::{LinkType, Nanos, Seq};

/// Packets in arrival order, with the memory that their bytes lie in.
#[derive(Debug, Default)]
pub struct Batch {
    memory: Vec<u8>,
    packets: Vec<Packet>,
    /// How much memory there was before packets were replaced by longer ones, which lie behind it.
    filled: Option<usize>,
}

/// One packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its number in arrival order.
    pub seq: Seq,
    /// When it arrived. Never before the packet ahead of it.
    pub time: Nanos,
    /// Where its bytes begin in the batch's memory.
    pub offset: u32,
    /// How many bytes of it there are.
    pub len: u32,
    /// How many bytes it had on the wire; at least `len`.
    pub wire_len: u32,
    /// The interface that it came in by.
    pub interface: u16,
    /// How its bytes begin.
    pub link: LinkType,
    /// The entry of the indirection table that it was steered by, as a card tells its receive-side scaling hash; 0 where
    /// nobody steered it, [`SPRAYED`](Self::SPRAYED) where its hash decided nothing.
    pub bucket: u16,
    /// What becomes of it.
    pub fate: Fate,
}

impl Packet {
    /// The bucket of a packet that was sprayed.
    pub const SPRAYED: u16 = u16::MAX;
}

/// What becomes of a packet, as far as a port needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nobody has decided yet: the packet does not go out.
    #[default]
    Pending,
    /// It goes out by this port.
    Transmit(u16),
    /// It does not go out.
    Drop,
}

impl Batch {
    /// An empty batch with room for `packets` packets of `bytes` bytes together, which it will not grow beyond on its own.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self { memory: Vec::with_capacity(bytes), packets: Vec::with_capacity(packets), filled: None }
    }

    /// How many packets there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes all packets out and keeps the room.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.packets.clear();
        self.filled = None;
    }

    /// Takes all packets out and leaves the memory as it is, for ports that fill it in place.
    pub(crate) fn clear_packets(&mut self) {
        self.forget_longer();
        self.packets.clear();
    }

    fn forget_longer(&mut self) {
        if let Some(filled) = self.filled.take() {
            self.memory.truncate(filled);
        }
    }

    /// The packets' descriptors.
    #[inline]
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// The packets' descriptors, to decide their fates.
    #[inline]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// The bytes of packet number `index` of this batch.
    ///
    /// # Panics
    /// When there is no such packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let packet = &self.packets[index];
        &self.memory[packet.offset as usize..][..packet.len as usize]
    }

    /// The descriptor and the bytes of packet number `index` of this batch.
    ///
    /// # Panics
    /// When there is no such packet.
    #[inline]
    #[must_use]
    pub fn packet(&self, index: usize) -> (&Packet, &[u8]) {
        let packet = &self.packets[index];
        let start = packet.offset as usize;
        (packet, &self.memory[start..start + packet.len as usize])
    }

    /// The bytes of packet number `index` of this batch, to rewrite them.
    ///
    /// # Panics
    /// When there is no such packet.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let packet = &self.packets[index];
        &mut self.memory[packet.offset as usize..][..packet.len as usize]
    }

    /// Adds a packet whose bytes are copied in; `packet.offset` and `packet.len` are set from them.
    ///
    /// # Panics
    /// When the batch's memory would outgrow 4 GiB.
    pub fn push(&mut self, packet: Packet, bytes: &[u8]) {
        let offset = u32::try_from(self.memory.len()).expect("a batch is far below 4 GiB");
        self.memory.extend_from_slice(bytes);
        self.packets.push(Packet { offset, len: bytes.len() as u32, ..packet });
    }

    /// Puts a whole frame in the place of packet number `index`. A longer one than was there lies behind all others until the batch
    /// is filled again.
    ///
    /// # Panics
    /// When there is no such packet, or when the batch's memory would outgrow 4 GiB.
    pub fn replace(&mut self, index: usize, frame: &[u8]) {
        let packet = &mut self.packets[index];
        if frame.len() > packet.len as usize {
            let offset = self.memory.len();
            self.filled.get_or_insert(offset);
            self.memory.extend_from_slice(frame);
            packet.offset = u32::try_from(offset).expect("a batch is far below 4 GiB");
        } else {
            self.memory[packet.offset as usize..][..frame.len()].copy_from_slice(frame);
        }
        packet.len = frame.len() as u32;
        packet.wire_len = frame.len() as u32;
    }

    /// The memory that offsets count in, and the descriptors: for ports that fill it in place. What [`replace`](Self::replace) put
    /// behind the others is gone.
    pub fn parts_mut(&mut self) -> (&mut Vec<u8>, &mut Vec<Packet>) {
        self.forget_longer();
        (&mut self.memory, &mut self.packets)
    }
}
