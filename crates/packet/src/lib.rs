//! Frames and what they say: checked parsing to one [`Headers`] value, the keys that name packet sets, the hashes that
//! steer them, rewriting with incremental checksums, and packet time.
//!
//! Nothing here allocates, reads a clock or panics on a malformed packet.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod checksum;
mod crc32c;
mod headers;
mod key;
mod link;
mod parse;
mod reply;
mod rewrite;
mod rss;
mod time;
pub mod toeplitz;

pub use checksum::Checksum;
pub use headers::{
    Embedded, Fragment, Headers, Icmp, Ipv4, Ipv6, Mac, Malformed, Network, Tcp, TcpFlags, TcpOptions, Transport,
    Tunnel, TunnelKind, Vlans, protocol,
};
pub use key::{
    Endpoint, Family, FiveTuple, FiveTuple4, FiveTuple6, FlowKey, Host, Host4, Host6, HostPair, HostPair4, HostPair6,
    Key, NoKey, Words,
};
pub use link::LinkType;
pub use parse::{parse, parse_odd, parse_ordinary, parse_segment, parse_what_is_whole};
pub use reply::tcp_reset;
pub use rewrite::{Macs, Rewrite};
pub use rss::RssFields;
pub use time::{Nanos, Seq};
