//! Matches responses to requests: responses come in the order of the requests (RFC 9112, section 9.3.2).

use nf::Flow;

use super::message::Ask;
use crate::http::messages::{Kind, Messages};
use crate::streams::Direction;

/// Maximum number of requests that wait for their responses. Pipelining is rare.
const WAITING_MAX: usize = 4;

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The messages of both sides, by direction.
    pub(super) sides: [Messages; 2],
    /// The requests that wait, oldest first.
    waiting: [Option<Ask>; WAITING_MAX],
    /// Responses can't be matched any more: too many requests waited, one was invalid, or messages are missing.
    pub(super) is_lost: bool,
    /// The client's side; `None` before the first message.
    client: Option<Direction>,
}

impl Flow for Connection {}

impl Connection {
    /// The messages to look for on this side.
    pub(super) fn kind(&self, side: Direction) -> Kind {
        match self.client {
            None => Kind::Either,
            Some(client) if client == side => Kind::Requests,
            Some(_) => Kind::Responses,
        }
    }

    /// Notes that this side has sent a request, or that it has sent a response. The first message decides who is the client.
    pub(super) fn note(&mut self, side: Direction, is_request: bool) {
        let other = match side {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        };
        self.client.get_or_insert(if is_request { side } else { other });
    }

    /// Adds a request.
    pub(super) fn asks(&mut self, ask: Ask) {
        match self.waiting.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(ask),
            None => self.is_lost = true,
        }
    }

    /// The request that the next response answers, if it is known.
    pub(super) fn oldest(&self) -> Option<Ask> {
        self.waiting[0].filter(|_| !self.is_lost)
    }

    /// Removes the oldest request, which was answered.
    pub(super) fn answered(&mut self) {
        self.waiting.rotate_left(1);
        self.waiting[WAITING_MAX - 1] = None;
    }
}
