//! Which request of a connection a response answers: responses come in the order of the requests (RFC 9112, section 9.3.2).

use nf::Flow;

use super::message::{Ask, CacheAction, Uncacheable};

/// How many requests may wait for their responses at once: pipelining is rare, and browsers don't.
const WAITING_MAX: usize = 4;

/// A connection, and what was asked over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The requests that wait, oldest first.
    waiting: [Option<Ask>; WAITING_MAX],
    /// Whether more waited at once than there is room for, or one was invalid: then nobody knows what is answered.
    is_lost: bool,
    /// Whether the client is the first of the ends in their order; `None` until there was a request.
    client_is_first: Option<bool>,
    /// Whether either end has sent a FIN, by the ends' order.
    pub(super) ended: [bool; 2],
    /// Where the last request began, and the last response.
    last: [Option<u32>; 2],
}

impl Flow for Connection {}

impl Connection {
    /// Whether a request from this side is by the client. The first one tells who that is.
    pub(super) fn is_client(&mut self, is_first: bool) -> bool {
        *self.client_is_first.get_or_insert(is_first) == is_first
    }

    /// Whether a response from this side is by the server.
    pub(super) fn is_server(&self, is_first: bool) -> bool {
        self.client_is_first == Some(!is_first)
    }

    /// A request that begins here. `false`: it has been seen before.
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

    /// The request that a response which begins here answers. `None`: the response has been seen before.
    pub(super) fn answers(&mut self, seq: u32) -> Option<Option<Ask>> {
        is_news(&mut self.last[1], seq).then(|| {
            let oldest = self.waiting[0].filter(|_| !self.is_lost);
            self.waiting.rotate_left(1);
            self.waiting[WAITING_MAX - 1] = None;
            oldest
        })
    }
}

/// Whether what begins at `seq` comes behind what began last.
fn is_news(last: &mut Option<u32>, seq: u32) -> bool {
    let is_news = last.is_none_or(|last| (seq.wrapping_sub(last) as i32) > 0);
    if is_news {
        *last = Some(seq);
    }
    is_news
}
