//! What a frame is to a function, before any state is looked at.

use nf::{NetworkFunction, Reason, Verdict};
use packet::{Fragment, Headers, Malformed};

/// What a frame is to a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// It takes a step; what it contributes is in the slot.
    Step,
    /// Its verdict follows from its headers alone.
    Settled(Verdict),
}

/// Classifies a frame by its parsed headers, and leaves what it contributes in `slot`: metadata that is built where it
/// stays need not be copied. Sequencer and worker both go by this, so that they agree.
///
/// Later fragments carry no ports; a function whose packet sets are named by ports can't place them.
#[inline(always)]
pub fn classify<N: NetworkFunction>(
    nf: &N,
    by_ports: bool,
    parsed: &Result<Headers, Malformed>,
    slot: &mut Option<N::Meta>,
) -> Class {
    let headers = match parsed {
        Ok(headers) => headers,
        Err(kind) => return Class::Settled(Verdict::Drop(Reason::malformed(*kind))),
    };
    if by_ports && headers.fragment == Fragment::Later {
        return Class::Settled(Verdict::Drop(Reason::FRAGMENT));
    }
    *slot = nf.meta(headers);
    if slot.is_some() { Class::Step } else { Class::Settled(nf.other(headers)) }
}
