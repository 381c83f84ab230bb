//! How a run can fail.

use packet::{LinkType, Nanos, Seq};
use port::PortError;

/// How a run can fail.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine can't run this function.
    #[error("{0}")]
    Refused(String),
    /// The port failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The function has a bug: it panicked.
    #[error("{0}")]
    Panicked(Box<Failure>),
}

/// A panic of a function, with the packet that set it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The core it happened on.
    pub core: usize,
    /// The packet's number in arrival order, from 0.
    pub seq: Seq,
    /// What the panic said.
    pub message: String,
    /// The packet as it came in, when this core held it (a replayed record has no bytes).
    pub packet: Option<FailedPacket>,
}

/// The packet that a function panicked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPacket {
    /// When it arrived.
    pub time: Nanos,
    /// How its bytes begin.
    pub link: LinkType,
    /// How long it was on the wire.
    pub wire_len: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the function panicked at packet {} on core {}: {}", self.seq, self.core, self.message)
    }
}
