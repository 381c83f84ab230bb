//! Runs over sequenced packets: each core gets its own packets, and knows other cores' packets only by the history that these carry.

use std::sync::Arc;

use nf::NetworkFunction;
use port::Port;

use super::handle::Control;
use super::instance::private_instance;
use super::mail::Mail;
use super::{Outcome, drive};
use crate::error::EngineError;
use crate::history::carrier::{Gaps, SequencedPort};
use crate::kind::EngineKind;
use crate::options::Options;
use crate::steer::dispatch::Dispatcher;

/// Runs a function over sequenced packets, as [`run`](super::run()) does over plain ones. Each replica replays the history in its own
/// packets. The outcome is that of the packets before sequencing.
///
/// With a [link](Options::link), packets may be missing. Cores then copy the missing records from each other. A packet is applied by every
/// replica, or by none if no core received its record.
///
/// # Errors
/// [`EngineError::Refused`] if the function can't be run. Later errors are in [`Outcome::failure`]; a damaged packet, or one out of order,
/// is [`port::PortError::Unfit`] with an [`OrderError`](crate::carrier::OrderError).
///
/// # Panics
/// As [`Shape::of`](crate::carrier::Shape::of).
pub fn run_sequenced<N: NetworkFunction>(
    nf: Arc<N>,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
) -> Result<Outcome, EngineError> {
    EngineKind::Scr.accepts(&nf.description(), cores).map_err(EngineError::Refused)?;
    options.tables.accepts(&*nf).map_err(EngineError::Refused)?;
    if let Some(link) = &options.link {
        link.accepts(EngineKind::Scr, cores).map_err(EngineError::Refused)?;
    }
    let mut instance = private_instance(EngineKind::Scr, Arc::clone(&nf), cores, options);
    let recovery = options.link.is_some();
    let gaps = if recovery { Gaps::Recovered } else { Gaps::Refused };
    let mut port = SequencedPort::new(port, Arc::clone(&nf), cores, gaps);
    instance.dispatcher = Dispatcher::new(nf, EngineKind::Scr, cores, options).unpacking(port.shape(), recovery);
    drive(&mut instance, options, &mut port, control, &Mail::new(cores))
}
