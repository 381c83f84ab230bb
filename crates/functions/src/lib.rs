//! The catalogue of network functions, one file each.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod anti_ddos;
pub mod bridge;
pub mod config;
pub mod conntrack;
pub mod ddos;
pub mod dns_tunnel;
pub mod firewall;
pub mod heavy_hitter;
mod http;
pub mod ipsec;
pub mod load_balancer;
pub mod nat;
pub mod policer;
pub mod port_knock;
pub mod port_scan;
pub mod rate;
pub mod sidejacking;
mod top;
pub mod tracking;
pub mod web_cache;
