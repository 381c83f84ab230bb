//! Building new frames, for functions that encrypt, for example.

use alloc::vec::Vec;

use packet::Headers;

use crate::verdict::Reason;

/// How a function builds the frame of a [`Verdict::Transform`](crate::Verdict::Transform).
///
/// The core that has the packet calls [`frame`](Self::frame) after the step has committed. Put slow work without state here, such as
/// encryption.
#[derive(Debug)]
pub struct Transform<N> {
    /// By how many bytes a frame grows at most.
    pub growth: u32,
    /// Writes the new frame into an empty buffer, or returns a reason to drop the packet. It must depend on its arguments only: the
    /// function, the verdict's `work`, the old frame's headers, the old frame.
    pub frame: MakeFrame<N>,
}

/// The type of [`Transform::frame`].
pub type MakeFrame<N> = fn(&N, u64, &Headers, &[u8], &mut Vec<u8>) -> Result<(), Reason>;
