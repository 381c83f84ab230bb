//! A pipeline of stages on one stream (Wang et al., "Practice of Parallelizing Network Applications on Multi-core Architectures", ICS '09,
//! section 3.2).
//!
//! 1. The *first stage*, core 0, reads a piece of the stream into a slot, and writes pieces in the order in which they came.
//! 2. The [`Splitter`] finds each packet's way as a card would, and hands every way its share. The first stage does that too, or the core
//!    behind it ([`Cuts`]), which then also does the port's [`Work`] on the packets.
//! 3. A *way*, each core of the last stage, owns a shard of the flows. It decides the packets of its share where they lie and hands the share
//!    back to the first stage.
//!
//! Queues between the stages carry slot numbers: pieces and shares stay where they are, and so do the packets' bytes. The slots bound what is
//! on its way. If none is free, the first stage reads nothing until the oldest piece is written, so no packet is lost.
//!
//! A stage without work spins for a moment and then sleeps. It is woken when something is handed to it.

mod between;
mod first;
mod steer;
mod way;

use nf::NetworkFunction;
use port::{Stream, Work};

use self::between::Between;
use self::first::{FirstStage, Onward};
use self::steer::{Splitter, SteeringStage};
use self::way::Way;
use super::cores::{CoreRun, run_cores};
use super::feed::Feed;
use super::handle::Control;
use super::mail::Mail;
use crate::options::Cuts;
use crate::steer::dispatch::Dispatcher;
use crate::work::any_worker::AnyWorker;

/// The input of a pipeline, and the place where its path is cut.
pub struct Piped<'s, 'a, N: NetworkFunction> {
    /// Where the path is cut.
    pub cuts: Cuts,
    /// Says which way gets a packet.
    pub dispatcher: &'s Dispatcher<N>,
    /// The input and the output.
    pub stream: Stream<'a>,
    /// The port's work on received packets, if another core than the first does it.
    pub work: Option<&'s mut Work>,
    /// The processor of each core; empty if threads aren't pinned.
    pub cpus: &'s [usize],
}

/// Runs the workers of a pipeline's cores on one stream. Returns the stream, what came of each core, and whether the input has ended or
/// failed.
pub fn run_pipeline<'a, N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    piped: Piped<'_, 'a, N>,
    control: &Control,
    mail: &Mail<N>,
) -> (Stream<'a>, Vec<CoreRun>, bool) {
    let Piped { cuts, dispatcher, stream, mut work, cpus } = piped;
    let (cores, ahead) = (workers.len(), cuts.ahead());
    let between = Between::new(ahead, cores);
    let works_at_way = cuts == Cuts::Defragment;
    let mut ways = Vec::new();
    let (mut to_ways, mut from_ways) = (Vec::new(), Vec::new());
    for core in ahead..cores {
        let ((to_way, from_split), (to_first, from_way)) = (between.queue(), between.queue());
        let work = if works_at_way { work.take() } else { None };
        ways.push(Way::new(&between, core, from_split, to_first, work));
        to_ways.push(to_way);
        from_ways.push(from_way);
    }
    let splitter = Splitter::new(&between, dispatcher.any_router(), to_ways, work);
    let (mut second, onward) = match cuts {
        Cuts::Parse | Cuts::Defragment => (None, Onward::Here(splitter)),
        Cuts::Both => {
            let ((to_second, from_first), (to_first, from_second)) = (between.queue(), between.queue());
            let second = SteeringStage::new(&between, splitter, from_first, to_first);
            (Some(second), Onward::Core { to_second: Some(to_second), from_second })
        }
    };
    let mut first = FirstStage::new(&between, stream, onward, from_ways, control);
    let mut feeds: Vec<&mut dyn Feed<N>> = vec![&mut first];
    feeds.extend(second.as_mut().map(|second| second as &mut dyn Feed<N>));
    feeds.extend(ways.iter_mut().map(|way| way as &mut dyn Feed<N>));
    let runs = run_cores(workers, feeds, cpus, control, mail);
    let (stream, is_exhausted) = first.into_stream();
    (stream, runs, is_exhausted)
}
