//! What a frame is to a function, before any state is looked at.

use nf::{NetworkFunction, Reason, Verdict};
use packet::{Fragment, Headers, Malformed};

/// What a frame is to a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class<M> {
    /// It takes a step, with this contribution.
    Step(M),
    /// Its verdict follows from its headers alone.
    Settled(Verdict),
}

/// Classifies a frame by its parsed headers. Sequencer and worker both go by this, so that they agree.
///
/// Later fragments carry no ports; a function whose packet sets are named by ports can't place them.
#[inline]
pub fn classify<N: NetworkFunction>(nf: &N, by_ports: bool, parsed: &Result<Headers, Malformed>) -> Class<N::Meta> {
    let headers = match parsed {
        Ok(headers) => headers,
        Err(kind) => return Class::Settled(Verdict::Drop(Reason::malformed(*kind))),
    };
    if by_ports && headers.fragment == Fragment::Later {
        return Class::Settled(Verdict::Drop(Reason::FRAGMENT));
    }
    match nf.meta(headers) {
        Some(meta) => Class::Step(meta),
        None => Class::Settled(nf.other(headers)),
    }
}
