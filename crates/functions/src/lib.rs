//! The network functions that ship with Millrace: firewall, NAT, connection tracker, policer, detectors and others.
//!
//! Each function has a file here, a page in `docs/`, and a configuration type that is read from TOML. A function knows no engine, port,
//! clock or thread; it implements the contract of the crate `nf`. [`each`] visits all of them, with their test configurations.
//!
//! ```
//! use millrace_functions::syn_limit::{Config, SynLimit};
//! use nf::NetworkFunction;
//!
//! let config: Config = toml::from_str("rate = 50").expect("the configuration is right");
//! let function = SynLimit::new(config);
//! assert_eq!(function.packet_set().to_string(), "source address");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod anti_ddos;
pub mod app_classifier;
pub mod asset_monitor;
pub mod bridge;
pub mod chain;
pub mod config;
pub mod conntrack;
pub mod ddos;
pub mod dns_tunnel;
pub mod efsm;
pub mod firewall;
pub mod flow_buffer;
pub mod heavy_hitter;
mod http;
pub mod identify;
pub mod ipsec;
mod list;
pub mod load_balancer;
pub mod nat;
pub mod policer;
pub mod port_knock;
pub mod port_scan;
pub mod rate;
pub mod rules;
pub mod sidejacking;
pub mod stream_match;
pub mod streams;
pub mod syn_limit;
#[cfg(test)]
mod testing;
mod top;
pub mod tracking;
pub mod web_cache;

pub use list::{Catalogued, Visitor, each};

/// Compiles the examples of the functions' pages.
#[cfg(doctest)]
#[doc = include_str!("../docs/app-classifier.md")]
pub struct Documents;
