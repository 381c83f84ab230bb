//! What became of packets and payloads: [`Counts`].

/// Counts of packets and payloads.
///
/// Every payload that was parked was joined, released, given up, or lost, or is still parked:
/// `splits == joins + released + evicted + unfit + lost + parked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that went to the function, tags included.
    pub bytes_to_function: u64,
    /// Packets that were split.
    pub splits: u64,
    /// Packets that went whole: they are hardly longer than what the function gets.
    pub too_short: u64,
    /// Packets that went whole: neither TCP nor UDP, fragments, tunnels, malformed, headers longer than what is kept, or a payload longer than
    /// a slot.
    pub other: u64,
    /// Packets that went whole because no slot was free, or no store answers.
    pub occupied: u64,
    /// Headers that were joined with their payload.
    pub joins: u64,
    /// Headers that were joined while the payload stays parked for another copy.
    pub copies: u64,
    /// Payloads let go because the function has dropped the packet.
    pub released: u64,
    /// Payloads given up for others: their header had not come back.
    pub evicted: u64,
    /// Headers whose payload was joined or let go before: duplicates.
    pub missed: u64,
    /// Headers whose slot has another payload by now.
    pub late: u64,
    /// Headers with a generation that their slot never had.
    pub wrong_generation: u64,
    /// Frames that end like a tag, but not one of this split.
    pub damaged: u64,
    /// Headers that can't carry the payload any more: a length field would overflow.
    pub unfit: u64,
    /// Payloads that a store lost, or did not hand out in time.
    pub lost: u64,
    /// Frames without tag that came from the function: whole packets, and its own.
    pub plain: u64,
    /// Payloads that are parked now.
    pub parked: u64,
}

impl Counts {
    /// True if every payload is accounted for.
    #[must_use]
    pub const fn balance(&self) -> bool {
        self.splits == self.joins + self.released + self.evicted + self.unfit + self.lost + self.parked
    }
}
