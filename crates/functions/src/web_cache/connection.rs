//! Matches responses to requests: responses come in the order of the requests (RFC 9112, section 9.3.2).

use nf::Flow;

use super::message::{Ask, CacheAction, Uncacheable};

/// Maximum number of requests that wait for their responses. Pipelining is rare.
const WAITING_MAX: usize = 4;

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The requests that wait, oldest first.
    waiting: [Option<Ask>; WAITING_MAX],
    /// Too many requests waited, or one was invalid: responses can't be matched any more.
    is_lost: bool,
    /// The client is the first endpoint in their order; `None` before the first request.
    client_is_first: Option<bool>,
    /// The sides that have sent a FIN, by the order of the endpoints.
    pub(super) ended: [bool; 2],
    /// Sequence numbers of the last request and the last response.
    last: [Option<u32>; 2],
}

impl Flow for Connection {}

impl Connection {
    /// Returns true if this side is the client. The first request decides.
    pub(super) fn is_client(&mut self, is_first: bool) -> bool {
        *self.client_is_first.get_or_insert(is_first) == is_first
    }

    /// Returns true if this side is the server.
    pub(super) fn is_server(&self, is_first: bool) -> bool {
        self.client_is_first == Some(!is_first)
    }

    /// Adds a request that begins at `seq`. Returns false for a retransmission.
    pub(super) fn asks(&mut self, ask: Ask, seq: u32) -> bool {
        if !is_news(&mut self.last[0], seq) {
            return false;
        }
        self.is_lost |= ask.what == CacheAction::Bypass(Uncacheable::Invalid);
        match self.waiting.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(ask),
            None => self.is_lost = true,
        }
        true
    }

    /// Returns the request that a response at `seq` answers, if it is known; `None` for a retransmission.
    pub(super) fn answers(&mut self, seq: u32) -> Option<Option<Ask>> {
        is_news(&mut self.last[1], seq).then(|| {
            let oldest = self.waiting[0].filter(|_| !self.is_lost);
            self.waiting.rotate_left(1);
            self.waiting[WAITING_MAX - 1] = None;
            oldest
        })
    }
}

/// Returns true if `seq` is after the last one, and stores it.
fn is_news(last: &mut Option<u32>, seq: u32) -> bool {
    let is_news = last.is_none_or(|last| (seq.wrapping_sub(last) as i32) > 0);
    if is_news {
        *last = Some(seq);
    }
    is_news
}
