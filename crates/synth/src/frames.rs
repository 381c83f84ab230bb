//! A short trace in memory: frames with their times.

use std::fmt;

use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet, Trace};

use crate::build::Build;

/// Frames with their times, back to back in one buffer.
#[derive(Clone)]
pub struct Frames {
    link: LinkType,
    memory: Vec<u8>,
    index: Vec<(Nanos, usize)>,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new(LinkType::Ethernet)
    }
}

impl Frames {
    /// No frames of this link type.
    #[must_use]
    pub const fn new(link: LinkType) -> Self {
        Self { link, memory: Vec::new(), index: Vec::new() }
    }

    /// How the frames begin.
    #[must_use]
    pub const fn link(&self) -> LinkType {
        self.link
    }

    /// Adds a frame.
    pub fn push(&mut self, time: Nanos, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
        self.index.push((time, self.memory.len()));
    }

    /// Adds a frame as it is built.
    pub fn build(&mut self, time: Nanos, build: &Build) {
        self.push(time, &build.bytes());
    }

    /// Number of frames.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.index.len()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The frames in order.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, &[u8])> {
        (0..self.index.len()).map(|at| {
            let start = if at == 0 { 0 } else { self.index[at - 1].1 };
            let (time, end) = self.index[at];
            (time, &self.memory[start..end])
        })
    }

    /// The frames as ports deliver them: numbered from 0, their time made monotonic.
    ///
    /// # Panics
    /// When they are more than 4 GiB.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let mut trace = Trace::new();
        let mut now = Nanos(0);
        for (time, bytes) in self.iter() {
            now = now.max(time);
            trace.push(Self::descriptor(self.link, trace.len(), now, bytes), bytes);
        }
        trace
    }

    /// A frame's descriptor in a trace.
    pub const fn descriptor(link: LinkType, number: usize, time: Nanos, bytes: &[u8]) -> Packet {
        let wire_len = bytes.len() as u32;
        Packet {
            seq: Seq(number as u64),
            time,
            offset: 0,
            len: wire_len,
            wire_len,
            interface: 0,
            link,
            bucket: 0,
            fate: Fate::Pending,
        }
    }
}

impl fmt::Debug for Frames {
    /// A line for each frame: its time and its bytes, as text2pcap reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} frames, {}:", self.len(), self.link)?;
        for (time, bytes) in self.iter() {
            write!(f, "{time}\n000000")?;
            bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
