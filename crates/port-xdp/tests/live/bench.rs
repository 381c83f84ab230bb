//! A thread that forwards between two hosts, and what it has done.

use std::time::Duration;

use millrace_port_xdp::{Balance, Monitor, Options, XdpPort};
use port::{Batch, Fate, ReceiveLosses, TransmitCounts};
use testkit::row::{self, Row, Server, numbered};

/// The options for both interfaces in the middle.
pub(crate) fn both() -> Options {
    Options { frames: 1024, ring_len: 512, ..Options::new(["a0", "a1"]) }
}

pub(crate) fn across(_: u64, interface: u16) -> Fate {
    Fate::Transmit(interface ^ 1)
}

/// Sends packets from the left, deletes the interface on the right in the midst of them, and makes it again.
pub(crate) fn make_again(row: &Row) {
    let wires = row.wires();
    // Nobody counts what arrives of these, as the interface goes meanwhile.
    for number in 0..3000 {
        if number == 1500 {
            row.middle.ip(&["link", "del", "a1"]).expect("the end is there");
        }
        wires[0].send(&numbered(0, number, 100)).expect("the wire takes it");
    }
    row.lay(1, 1500);
}

/// Serves a port in the middle of a row with one thread.
pub(crate) trait Forwards {
    fn forward(&self, options: Options, fate: fn(u64, u16) -> Fate) -> Forwarder {
        self.work(options, move |batch| {
            for packet in batch.packets_mut() {
                packet.fate = fate(packet.seq.0, packet.interface);
            }
        })
    }

    /// Does `work` on every batch.
    fn work(&self, options: Options, work: impl FnMut(&mut Batch) + Send + 'static) -> Forwarder;
}

impl Forwards for Row {
    fn work(&self, options: Options, work: impl FnMut(&mut Batch) + Send + 'static) -> Forwarder {
        let make = move || {
            let port = XdpPort::new(options).expect("the options are right");
            let monitor = port.monitor();
            (port, monitor)
        };
        let server = row::serve(&self.middle, Duration::ZERO, vec![Box::new(work)], make);
        Forwarder { monitor: server.monitor.clone(), server }
    }
}

/// A thread that serves a queue.
pub(crate) struct Forwarder {
    server: Server<Monitor>,
    pub(crate) monitor: Monitor,
}

/// The outcome of a queue.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) received: u64,
    /// Names of interfaces that were reported down.
    pub(crate) down: Vec<String>,
    pub(crate) lost: ReceiveLosses,
    pub(crate) sent: TransmitCounts,
    /// After all has been given back.
    pub(crate) balance: Balance,
}

impl Forwarder {
    pub(crate) fn stop(self) -> Outcome {
        let row::Outcome { received, down, lost, sent } = self.server.stop().remove(0);
        let (sent, balance) = (sent.expect("it counts"), self.monitor.balances()[0]);
        Outcome { received, down, lost, sent, balance }
    }
}

/// The processors that this process may use.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: zeroes are a valid set, and its length is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Keeps this thread on a processor.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: zeroes are a valid set, and its length is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
