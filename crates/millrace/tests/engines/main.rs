//! Functions under the engines. One program for all of them, and beside the catalogue: each program of its own would compile every
//! function under every engine anew.

// Brings those instances in.
use millrace as _;

mod anti_ddos;
mod app_classifier;
mod asset_monitor;
mod bridge;
mod carrier;
mod conformance;
mod dns_tunnel;
mod exchange;
mod faults;
mod flow_buffer;
mod gaps;
mod ipsec;
mod link;
mod load_balancer;
mod moves;
mod naive;
mod nat;
mod offered_load;
mod port_scan;
mod reload;
mod reload_shared;
mod restart;
mod shared;
mod sidejacking;
mod tables;
mod verify;
mod web_cache;
