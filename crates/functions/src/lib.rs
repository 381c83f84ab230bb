//! The catalogue of network functions, one file each.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod anti_ddos;
pub mod app_classifier;
pub mod asset_monitor;
pub mod bridge;
pub mod config;
pub mod conntrack;
pub mod ddos;
pub mod dns_tunnel;
pub mod firewall;
pub mod flow_buffer;
pub mod heavy_hitter;
mod http;
pub mod ipsec;
mod list;
pub mod load_balancer;
pub mod nat;
pub mod policer;
pub mod port_knock;
pub mod port_scan;
pub mod rate;
pub mod sidejacking;
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
