//! The part that the examples share: options, a loop on one core, and a line of counts at the end.

use std::io::Write;
use std::time::{Duration, Instant};

use millrace_port_xdp::{Mode, Options, XdpPort};
use port::{Batch, Opened, Port, PortError, Queue, Received, Sides};

/// Opens the interfaces that the arguments name for one core, and calls `turn` until the time is up. `turn` receives a batch and does with it
/// what it likes.
pub(crate) fn run(
    mut turn: impl FnMut(&mut dyn Queue, &mut Batch, Sides) -> Result<Received, PortError>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::new(Vec::<String>::new());
    let mut end = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--generic" => options.mode = Mode::Generic,
            "--busy" => options.busy_poll = Some(Default::default()),
            "--seconds" => {
                let seconds = arguments.next().ok_or("--seconds needs a number")?.parse()?;
                end = Some(Instant::now() + Duration::from_secs(seconds));
            }
            name => options.interfaces.push(name.to_owned()),
        }
    }
    options.filter = millrace_port_xdp::Filter::for_interfaces(options.interfaces.len());
    let mut port = XdpPort::new(options)?;
    let (monitor, sides) = (port.monitor(), port.sides());
    let Opened::Queues(mut queues) = port.open(1)? else { unreachable!("a stream was not asked for") };
    let queue = &mut *queues[0];
    let mut to = std::io::stdout().lock();
    for line in monitor.describe() {
        writeln!(to, "{line}")?;
    }
    to.flush()?;
    let mut batch = Batch::default();
    let (mut received, start) = (0, Instant::now());
    while end.is_none_or(|end| Instant::now() < end) {
        match turn(queue, &mut batch, sides) {
            Ok(Received::Packets) => received += batch.len() as u64,
            Ok(Received::Idle | Received::End) | Err(PortError::Down(_)) => {
                // As the engines do.
                queue.flush()?;
                queue.wait(Duration::from_millis(50))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    batch.clear();
    queue.finish()?;
    let (lost, sent) = (queue.lost(), queue.sent().unwrap_or_default());
    writeln!(
        to,
        "{received} received in {:.1} s, {} sent, {} lost in transmit, {} lost before, {} unclaimed",
        start.elapsed().as_secs_f64(),
        sent.sent,
        sent.lost,
        lost.ring_full,
        lost.unclaimed
    )?;
    Ok(())
}
