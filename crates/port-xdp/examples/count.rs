//! Counts packets and drops them. Nothing else is done: the measure of what receiving costs by itself.
//!
//! ```text
//! cargo run --release -p millrace-port-xdp --example count -- eth0 [eth1] [--generic] [--busy] [--seconds N]
//! ```

mod shared;

use port::Batch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Frames of packets that were not sent are free again at the next receive.
    shared::run(|queue, batch: &mut Batch, _| queue.receive(batch))
}
