//! Every command as a user types it. One program for all of them: each would be linked with everything anew.
#![allow(clippy::print_stderr)]

mod advise;
mod bench;
mod broken_input;
mod captures;
mod cases;
mod commands;
mod control;
mod defragment;
mod doctor;
mod dropped;
mod efsm;
mod explain;
mod flows;
mod folder;
mod hostile;
mod identify;
mod live;
mod loads;
mod memory;
mod mtu;
mod new;
mod output;
mod part;
#[cfg(target_os = "linux")]
mod peak;
mod pipeline;
mod ports;
mod profile;
mod restart;
mod rss;
mod rules;
mod sequenced;
mod service;
// What `millrace new` writes, as it is here.
#[allow(unreachable_pub)]
#[path = "../../skeleton/lib.rs"]
mod skeleton;
#[path = "../../skeleton/test.rs"]
mod skeleton_test;
mod streams;
mod tables;
mod waiting;
