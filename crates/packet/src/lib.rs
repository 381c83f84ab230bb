//! Parses frames into one [`Headers`] value, and builds flow keys, hashes, rewrites and checksums from it.
//!
//! Parsing is checked: a malformed packet is an error, never a panic. Nothing here allocates or reads a clock.
//!
//! ```
//! use millrace_packet::{LinkType, Transport, parse};
//!
//! // Ethernet, IPv4, UDP from 10.0.0.1:1000 to 10.0.0.2:53, without payload.
//! let frame = [
//!     2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, //
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2, //
//!     0x03, 0xe8, 0, 53, 0, 8, 0, 0,
//! ];
//! let headers = parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).expect("the frame is well-formed");
//! assert!(matches!(headers.transport, Transport::Udp { .. }));
//! assert_eq!(headers.ports(), (1000, 53));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod checksum;
mod crc32c;
mod headers;
mod key;
mod link;
mod offload;
mod ordinary;
mod parse;
mod reply;
mod rewrite;
mod rss;
mod template;
mod time;
pub mod toeplitz;
mod verify;

pub use checksum::Checksum;
pub use headers::{
    Embedded, Fragment, Headers, Icmp, Ipv4, Ipv6, Mac, Malformed, Network, Tcp, TcpFlags, TcpOptions, Transport,
    Tunnel, TunnelKind, Vlans, protocol,
};
pub use key::{
    Endpoint, Family, FiveTuple, FiveTuple4, FiveTuple6, FlowKey, Host, Host4, Host6, HostPair, HostPair4, HostPair6,
    Key, NoKey, Words, hash_words,
};
pub use link::LinkType;
pub use offload::{Action, Decided, LastSegment, Taken, TcpSide, TcpWindows};
pub use ordinary::OrdinaryHeaders;
pub use parse::{parse, parse_odd, parse_ordinary, parse_segment, parse_what_is_whole};
pub use reply::{ICMP_ERROR_GROWTH, ICMP_ERROR_MAX, IcmpError, icmp_error, tcp_reset};
pub use rewrite::{Macs, Rewrite};
pub use rss::RssFields;
pub use template::{TEMPLATE_MAX, check_template, from_template};
pub use time::{Nanos, Seq};
