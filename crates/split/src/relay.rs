//! A split between wires and the ports of a function: [`relay`].

use std::time::Duration;

use port::{Batch, Fate, Opened, Port, PortError, Queue, Received};

use crate::park::Park;
use crate::wrap::{Shared, join, split};

/// Longest sleep of a relay that has nothing to do.
const SLEEP: Duration = Duration::from_millis(20);

/// Packets that a relay has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Packets from wires.
    pub from_wires: u64,
    /// Frames from the function's ports.
    pub from_function: u64,
    /// Frames that could not be sent: a ring was full, or a link down.
    pub unsent: u64,
}

/// Moves packets between wires, the interfaces with even numbers, and the ports of a function, each with the number after its wire's: splits
/// what comes from a wire, and joins what comes back. Ends when `is_over` says so. `opened` is called once the port is open.
///
/// # Errors
/// The port can't be opened, or fails.
pub fn relay(
    port: &mut dyn Port,
    park: &Shared,
    opened: impl FnOnce(),
    is_over: impl Fn() -> bool,
) -> Result<Relayed, PortError> {
    let mut queue: Box<dyn Queue + '_> = match port.open(1)? {
        Opened::Queues(mut queues) if queues.len() == 1 => queues.remove(0),
        Opened::Stream(stream) => Box::new(stream),
        Opened::Queues(_) | Opened::Sequenced(_) => {
            return Err(PortError::Unfit("a split takes a port with one queue".into()));
        }
    };
    opened();
    let (mut batch, mut scratch, mut relayed) = (Batch::default(), Vec::new(), Relayed::default());
    while !is_over() {
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {
                let mut park = park.lock();
                park.tend();
                move_on(&mut batch, &mut park, &mut scratch, &mut relayed);
                drop(park);
                queue.transmit(&mut batch)?;
            }
            Ok(Received::Idle) => {
                park.lock().tend();
                queue.flush()?;
                queue.wait(SLEEP)?;
            }
            Ok(Received::End) => break,
            Err(PortError::Down(_)) => queue.wait(SLEEP)?,
            Err(error) => return Err(error),
        }
    }
    queue.flush()?;
    queue.finish()?;
    relayed.unsent = queue.sent().map_or(0, |sent| sent.lost);
    Ok(relayed)
}

fn move_on(batch: &mut Batch, park: &mut Park, scratch: &mut Vec<u8>, relayed: &mut Relayed) {
    let is_wire = |interface: u16| interface.is_multiple_of(2);
    for (packet, bytes) in batch.each(0..batch.len()) {
        if is_wire(packet.interface) {
            relayed.from_wires += 1;
        } else {
            relayed.from_function += 1;
            park.ask(bytes);
        }
    }
    batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(packet.interface ^ 1));
    for index in 0..batch.len() {
        if !is_wire(batch.packets()[index].interface) {
            // What is lost is in the park's counts.
            let _ = join(park, batch, index, scratch);
        }
    }
    split(park, batch, is_wire, true, scratch);
}
