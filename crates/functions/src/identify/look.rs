//! The application of a packet by itself.

use identify::{Answer, Confidence, DatagramState, Prefixes, Protocol, Side, Signatures};
use packet::{Headers, Transport};

/// Identifies the application by a single packet of TCP or UDP, for callers that keep no streams. A segment's payload is taken for the first
/// that its side says. `state` is that of the UDP session.
#[must_use]
pub fn look(
    signatures: &Signatures,
    state: &mut DatagramState,
    headers: &Headers,
    payload: &[u8],
    side: Side,
) -> Option<Protocol> {
    if payload.is_empty() {
        return None;
    }
    let answer = match headers.transport {
        Transport::Tcp(_) => {
            let [initiator, responder] = match side {
                Side::Initiator => [payload, &[]],
                Side::Responder => [&[], payload],
            };
            let (initiator_ended, responder_ended) = (true, true);
            signatures.stream(&Prefixes { initiator, responder, initiator_ended, responder_ended })
        }
        Transport::Udp { .. } => signatures.datagram(state, side, payload),
        Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return None,
    };
    match answer {
        Answer::Is(identified) if identified.confidence > Confidence::Guess => Some(identified.protocol),
        Answer::Is(_) | Answer::More | Answer::Unknown => None,
    }
}
