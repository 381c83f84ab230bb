//! Every command as a user types it. One program for all of them: each would be linked with everything anew.
#![allow(clippy::print_stderr)]

mod advise;
mod bench;
mod broken_input;
mod captures;
mod cases;
mod chain;
mod commands;
mod control;
#[cfg(target_os = "linux")]
mod conversations;
mod counters;
mod defragment;
mod doctor;
mod dropped;
mod efsm;
mod explain;
mod flows;
mod folder;
mod hardships;
mod hostile;
mod identify;
mod live;
mod loads;
mod memory;
mod mtu;
mod new;
mod offload;
mod output;
mod part;
#[cfg(target_os = "linux")]
mod peak;
mod pipeline;
mod ports;
mod profile;
mod reorder;
mod restart;
mod rss;
mod rules;
mod sequenced;
mod service;
mod split;
// What `millrace new` writes, as it is here.
#[allow(unreachable_pub)]
#[path = "../../skeleton/lib.rs"]
mod skeleton;
#[path = "../../skeleton/test.rs"]
mod skeleton_test;
mod streams;
mod tables;
#[cfg(target_os = "linux")]
mod twin;
mod waiting;

// The comparison with the kernel, as `millrace-testkit` has it for functions without interfaces.
#[cfg(target_os = "linux")]
#[path = "../../../testkit/tests/netfilter/compare.rs"]
mod compare;
#[cfg(target_os = "linux")]
#[allow(dead_code)]
#[path = "../../../testkit/tests/netfilter/craft.rs"]
mod craft;
#[cfg(target_os = "linux")]
#[allow(dead_code)]
#[path = "../../../testkit/tests/netfilter/kernel.rs"]
mod kernel;
#[cfg(target_os = "linux")]
#[path = "../../../testkit/tests/netfilter/player.rs"]
mod player;
#[cfg(target_os = "linux")]
#[path = "../../../testkit/tests/netfilter/script.rs"]
mod script;

#[cfg(target_os = "linux")]
extern crate testkit as millrace_testkit;
