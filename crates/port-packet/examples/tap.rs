//! Counts the packets of interfaces as a passive tap, and tells at the end. Nothing is sent.
//!
//! ```text
//! cargo run --release -p millrace-port-packet --example tap -- eth0 [eth1] [--cores N] [--seconds N]
//! ```

use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use millrace_port_packet::{Options, PacketPort};
use port::{Batch, Opened, Port, PortError, Queue, Received};

/// Counters of a core.
#[derive(Default)]
struct Count {
    packets: u64,
    bytes: u64,
    lost: u64,
}

fn main() -> ExitCode {
    match tap() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if that fails.
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn tap() -> Result<(), Box<dyn std::error::Error>> {
    let (mut interfaces, mut cores, mut seconds) = (Vec::new(), 1, 10);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or(format!("{argument} needs a number"))?
                .parse()
                .map_err(|_| format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--cores" => cores = value()?,
            "--seconds" => seconds = value()?,
            name => interfaces.push(name.to_owned()),
        }
    }
    let mut port = PacketPort::new(Options::observe(interfaces))?;
    let monitor = port.monitor();
    let Opened::Queues(queues) = port.open(cores)? else { unreachable!("a stream was not asked for") };
    let mut to = std::io::stdout().lock();
    for line in monitor.describe() {
        writeln!(to, "{line}")?;
    }
    to.flush()?;
    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = queues.into_iter().map(|queue| scope.spawn(move || serve(queue, end))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect::<Result<Vec<_>, _>>()
    })?;
    for (core, Count { packets, bytes, lost }) in counts.iter().enumerate() {
        writeln!(to, "core {core}: {packets} packets, {bytes} bytes, {lost} lost")?;
    }
    Ok(())
}

fn serve(mut queue: Box<dyn Queue + '_>, end: Instant) -> Result<Count, PortError> {
    let (mut batch, mut count) = (Batch::default(), Count::default());
    while Instant::now() < end {
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {
                count.packets += batch.len() as u64;
                count.bytes += batch.packets().iter().map(|packet| u64::from(packet.wire_len)).sum::<u64>();
            }
            Ok(Received::Idle | Received::End) | Err(PortError::Down(_)) => queue.wait(Duration::from_millis(50))?,
            Err(error) => return Err(error),
        }
    }
    count.lost = queue.lost().ring_full;
    Ok(count)
}
