//! Errors of a run.

use packet::{LinkType, Nanos, Seq};
use port::PortError;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine can't run this function, with the reason as a sentence.
    #[error("{0}")]
    Refused(String),
    /// The port failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The function panicked, which is a bug in it.
    #[error("{0}")]
    Panicked(Box<Failure>),
}

/// A panic of the function, with the packet that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The core.
    pub core: usize,
    /// The packet's number in arrival order, from 0.
    pub seq: Seq,
    /// The panic's message.
    pub message: String,
    /// The packet as received, if this core had it. A replayed record has no bytes.
    pub packet: Option<FailedPacket>,
}

/// The packet at which a function panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPacket {
    /// When it was received.
    pub time: Nanos,
    /// Its link type.
    pub link: LinkType,
    /// Its length on the wire.
    pub wire_len: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the function panicked at packet {} on core {}: {}", self.seq, self.core, self.message)
    }
}
