//! Runs over packets that a sequencer sent: each core gets its own, and of the others nothing but what these carry.

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

/// Runs a function over sequenced packets as [`run`](super::run()) does over others, by replicas that fast-forward from what
/// their own packets carry alone. The outcome is that of the packets that were sequenced.
///
/// With a [link](Options::link), packets may be missing: cores take what these carried from each other, and a packet steps
/// every replica or, when nothing that carries its record came, none.
///
/// # Errors
/// [`EngineError::Refused`] when the function can't be run so. What goes wrong later is [`Outcome::failure`]; a packet that
/// is no good, or not the next one, is [`port::PortError::Unfit`] with an [`OrderError`](crate::carrier::OrderError).
///
/// # Panics
/// As [`Shape::of`](crate::carrier::Shape::of) does.
pub fn run_sequenced<N: NetworkFunction>(
    nf: Arc<N>,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
) -> Result<Outcome, EngineError> {
    EngineKind::Scr.accepts(&N::DESCRIPTION, cores).map_err(EngineError::Refused)?;
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
