//! Frames that a function makes anew.

use alloc::vec::Vec;

use packet::Headers;

use crate::verdict::Reason;

/// How a function makes frames anew, where [`Verdict::Transform`](crate::Verdict::Transform) asks for it.
///
/// The core that has the packet calls [`frame`](Self::frame) once the packet's step has committed. So this is the place for what takes
/// long and needs no state, as encryption does.
#[derive(Debug)]
pub struct Transform<N> {
    /// By how many bytes a frame grows at most.
    pub growth: u32,
    /// Writes the new frame into a buffer that is empty, or says for which reason the packet is dropped after all. It must depend on
    /// nothing but its arguments: the function, the verdict's `work`, the old frame's headers, the old frame.
    pub frame: MakeFrame<N>,
}

/// See [`Transform::frame`].
pub type MakeFrame<N> = fn(&N, u64, &Headers, &[u8], &mut Vec<u8>) -> Result<(), Reason>;
