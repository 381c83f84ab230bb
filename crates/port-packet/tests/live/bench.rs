//! Threads that serve a port between two hosts, or on one of them.

use std::sync::Arc;
use std::time::Duration;

use millrace_port_packet::{Monitor, Options, PacketPort};
use port::{Batch, Fate, Packet};
use testkit::netns::Namespace;
use testkit::row::{self, Judge as BatchJudge, Row, Server};

/// A function that sets a packet's fate: by the core that has it, its descriptor and its bytes.
pub(crate) trait Judge: Fn(usize, &Packet, &[u8]) -> Fate + Send + Sync + 'static {}

impl<F: Fn(usize, &Packet, &[u8]) -> Fate + Send + Sync + 'static> Judge for F {}

/// Small rings for both interfaces in the middle.
pub(crate) fn both() -> Options {
    Options { blocks: 32, block_len: 32 << 10, ..Options::forward(["a0", "a1"]) }
}

/// A small ring for a tap.
pub(crate) fn tap(name: &str) -> Options {
    Options { blocks: 32, block_len: 32 << 10, ..Options::observe([name]) }
}

pub(crate) fn across(_: usize, packet: &Packet, _: &[u8]) -> Fate {
    Fate::Transmit(packet.interface ^ 1)
}

/// Serves a port in the middle of a row with a thread for each core.
pub(crate) trait Serves {
    fn serve(&self, options: Options, cores: usize, fate: impl Judge) -> Server<Monitor>;
}

impl Serves for Row {
    fn serve(&self, options: Options, cores: usize, fate: impl Judge) -> Server<Monitor> {
        serve(&self.middle, options, cores, fate)
    }
}

/// Time within which the kernel hands over a block with what has arrived.
const LINGER: Duration = Duration::from_millis(100);

/// Serves a port in a namespace with a thread for each core.
pub(crate) fn serve(namespace: &Arc<Namespace>, options: Options, cores: usize, fate: impl Judge) -> Server<Monitor> {
    let fate = Arc::new(fate);
    let judge = |core| {
        let fate = Arc::clone(&fate);
        Box::new(move |batch: &mut Batch| {
            for (packet, bytes) in batch.frames(0..batch.len()) {
                packet.fate = fate(core, packet, bytes);
            }
        }) as BatchJudge
    };
    let make = move || {
        let port = PacketPort::new(options).expect("the options are right");
        let monitor = port.monitor();
        (port, monitor)
    };
    row::serve(namespace, LINGER, (0..cores).map(judge).collect(), make)
}

/// Packets that the port has handed on, of all interfaces.
pub(crate) fn received(server: &Server<Monitor>) -> u64 {
    server.monitor.counts().iter().map(|counts| counts.received).sum()
}
