//! Payload splitting, as in PayloadPark (CoNEXT '20) and Ribosome (NSDI '23): a network function gets the first bytes of each packet, what
//! is behind them is parked, and both are joined when the header comes back.
//!
//! A [`Park`] cuts a packet behind its first bytes and puts a tag of [`TAG_BYTES`] there: slot, generation, the packet's length and a check. The
//! payload lies in a [`Store`]: in memory, or on [store servers](StoreServer) that are reached by UDP. Slots are used one after the other; when
//! the ring has come round to a payload, the payload is given up, at once or some rounds later. So nothing is waited for and nothing can fill up.
//!
//! [`Splitting`] wraps any port, so that a run in one process sees headers; [`relay`] stands between wires and the ports of a function elsewhere,
//! and [`Headed`] on the function's side.
//!
//! ```
//! use millrace_split::{Joined, Options, Park, Secret, Split, Store};
//! use packet::LinkType;
//!
//! let options = Options { keep: 64, slots: 16, rounds: 1, shorten: false, secret: Secret(1) };
//! let mut park = Park::new(options, Store::local(16));
//! // Ethernet, IPv4, UDP, 200 bytes of payload.
//! let mut frame = vec![2; 12];
//! frame.extend([8, 0, 0x45, 0, 0, 228, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 7, 0, 208, 0, 0]);
//! frame.extend(0..200);
//! let original = frame.clone();
//!
//! let Split::Head { len, tag } = park.split(LinkType::Ethernet, 242, &mut frame) else { panic!("long enough") };
//! let head = [&frame[..len], &tag].concat();
//! assert_eq!(head.len(), 84);
//!
//! let mut whole = Vec::new();
//! assert_eq!(park.join(LinkType::Ethernet, &head, &mut whole), Joined::Whole);
//! assert_eq!(whole, original);
//! assert!(park.counts().balance());
//! ```

#![forbid(unsafe_code)]

mod counts;
mod lengths;
mod park;
mod relay;
mod ring;
mod store;
mod tag;
mod wrap;

pub use counts::Counts;
pub use park::{Joined, KEEP_MAX, KEEP_MIN, Options, PAYLOAD_MAX, Park, Split};
pub use relay::{Relayed, relay};
pub use store::{Served, Store, StoreServer};
pub use tag::{Secret, TAG_BYTES, Wish, is_tagged, whole_len};
pub use wrap::{Headed, Shared, Splitting};
