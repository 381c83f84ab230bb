//! What carries the packets after the function has panicked: all are dropped, or all go across as they are.

use std::time::Duration;

use engine::Control;
use port::{Batch, Fate, Opened, Port, PortError, Queue, Receive, Received, Transmit};

/// Packets that came after a panic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// Longest wait for packets.
const WAIT: Duration = Duration::from_millis(50);

/// Reason of dropped packets; nobody counts it.
const DROPPED: Fate = Fate::Drop(0);

/// Takes the port's packets until the run is told to stop. `is_open` says whether they go across.
pub(super) fn carry(port: &mut dyn Port, cores: usize, is_open: bool, control: &Control) -> Result<Carried, PortError> {
    let sides = port.sides();
    let mut histories = Vec::new();
    let mut queues: Vec<Box<dyn Queue + '_>> = match port.open(cores)? {
        Opened::Stream(stream) => vec![Box::new(stream) as Box<dyn Queue + '_>],
        Opened::Queues(queues) => queues,
        Opened::Sequenced(all) => {
            let (queues, kept): (_, Vec<_>) = all.into_iter().map(|core| (core.queue, core.history)).unzip();
            histories = kept;
            queues
        }
    };
    let mut carried = Carried::default();
    let mut batch = Batch::default();
    while !control.is_stopping() {
        let mut idle = true;
        // Nobody needs what the histories tell, but their memory is used again only once it has been read.
        histories.iter_mut().for_each(|history| {
            history.read(&mut |_, _| ());
        });
        for queue in &mut queues {
            match queue.receive(&mut batch) {
                Ok(Received::Packets) => idle = false,
                Ok(Received::Idle) | Err(PortError::Down(_)) => continue,
                Ok(Received::End) => return Ok(carried),
                Err(error) => return Err(error),
            }
            carried.received += batch.len() as u64;
            for packet in batch.packets_mut() {
                packet.fate = if is_open { Fate::Transmit(sides.across(packet.interface)) } else { DROPPED };
                carried.sent += u64::from(is_open);
            }
            queue.transmit(&mut batch)?;
        }
        if idle {
            let at_most = if queues.len() == 1 { WAIT } else { Duration::from_millis(1) };
            for queue in &mut queues {
                queue.flush()?;
            }
            queues[0].wait(at_most)?;
        }
    }
    queues.iter_mut().try_for_each(|queue| queue.finish())?;
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use packet::{LinkType, Nanos, Seq};
    use port::{MemoryQueue, Packet, Trace};

    use super::*;

    #[test]
    fn all_packets_go_across_or_none() {
        for is_open in [true, false] {
            let mut trace = Trace::new();
            for number in 0..10 {
                let packet = Packet {
                    seq: Seq(number),
                    time: Nanos(0),
                    offset: 0,
                    len: 0,
                    wire_len: 60,
                    interface: 1,
                    link: LinkType::Ethernet,
                    bucket: 0,
                    fate: Fate::Pending,
                };
                trace.push(packet, &[number as u8; 60]);
            }
            let mut port = MemoryQueue::new(Arc::new(trace), 3);
            let outbox = port.outbox();
            let carried = carry(&mut port, 1, is_open, &Control::default()).unwrap();
            let sent = outbox.take();
            let expected = if is_open { 10 } else { 0 };
            assert_eq!((carried.received, carried.sent, sent.len() as u64), (10, expected, expected));
            assert!(sent.iter().enumerate().all(|(at, sent)| sent.bytes == [at as u8; 60]));
        }
    }
}
