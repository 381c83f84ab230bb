//! A short trace in memory: frames with their times.

use std::fmt;

use packet::{LinkType, Nanos};

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

    /// How many frames there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
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
