//! Sends every packet to the other interface, or back if there is one, with its Ethernet addresses swapped. Nothing else is done: the
//! measure of what forwarding costs by itself.
//!
//! ```text
//! cargo run --release -p millrace-port-xdp --example swap -- eth0 [eth1] [--generic] [--busy] [--seconds N]
//! ```

mod shared;

use port::{Batch, Fate, Received};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    shared::run(|queue, batch: &mut Batch, sides| {
        let received = queue.receive(batch)?;
        if received == Received::Packets {
            for index in 0..batch.len() {
                if let Some(addresses) = batch.bytes_mut(index).first_chunk_mut::<12>() {
                    addresses.rotate_left(6);
                }
            }
            for packet in batch.packets_mut() {
                packet.fate = Fate::Transmit(sides.across(packet.interface));
            }
            queue.transmit(batch)?;
        }
        Ok(received)
    })
}
