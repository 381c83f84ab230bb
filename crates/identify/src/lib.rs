//! Tells the application protocol of a session by its payload, never by its ports.
//!
//! [`Signatures`] holds patterns and decoders of all protocols. The built-in patterns are compiled when the crate is built. For a TCP stream, hand in the beginnings of both sides
//! ([`Prefixes`]) whenever one has grown, until the answer is final. The answer depends on the bytes alone, not on how they were cut into
//! segments. For UDP, hand in each datagram, and keep a [`DatagramState`] in between. Nothing is allocated meanwhile.
//!
//! ```
//! use millrace_identify::{Answer, Prefixes, Signatures};
//!
//! let signatures = Signatures::built_in();
//! let mut prefixes = Prefixes { initiator: b"GET / HTT", ..Prefixes::default() };
//! assert_eq!(signatures.stream(&prefixes), Answer::More);
//! prefixes.initiator = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let Answer::Is(identified) = signatures.stream(&prefixes) else { panic!("the request is whole") };
//! assert_eq!(signatures.name(identified.protocol), "http");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answer;
mod asn1;
mod automaton;
mod built_in;
mod bytes;
mod compiled;
mod datagram;
mod decoder;
mod file;
mod names;
mod names_format;
pub mod protocol;
mod session;
mod signatures;
mod stream;
mod switch;
#[cfg(test)]
mod tests;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use answer::{Answer, Confidence, How, Identified, LIMIT, Prefixes, Protocol, Side, Switch};
pub use file::Error;
pub use names::{NAME_MAX, NameKind, Names};
pub use session::DatagramState;
pub use signatures::{About, Signatures};
