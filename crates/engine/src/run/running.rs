//! A run in the background.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use nf::{Function, NetworkFunction};
use packet::{Nanos, Seq};
use port::Port;

use super::handle::{Control, CoreProgress};
use super::instance::Inspect;
use super::mail::Mail;
use super::succession::Look;
use super::{Outcome, Restored, run_with_mail};
use crate::error::EngineError;
use crate::kind::EngineKind;
use crate::options::Options;
use crate::placement::SavedFlow;
use crate::work::any_worker::AnyWorker;

/// A run in the background: watch it, ask its cores, give it another configuration, stop it, wait for it. If this is dropped, the run goes
/// on, and its scope waits for it.
pub struct Running<'scope, N: Function> {
    kind: EngineKind,
    cores: usize,
    options: Options,
    /// True if the engine began ready for packet sets that share state.
    shares: bool,
    /// The function that runs. Locked during a request to the run as a whole.
    nf: Mutex<Arc<N>>,
    control: Control,
    mail: Mail<N>,
    thread: ScopedJoinHandle<'scope, Result<Outcome, EngineError>>,
}

/// Starts a function under an engine over a port, on a thread of `scope`. Every clone of `control` can watch the run and stop it, even
/// before it has begun.
pub fn start<'scope, N: Function>(
    scope: &'scope Scope<'scope, '_>,
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: Options,
    port: &'scope mut (dyn Port + Send),
    control: &Control,
) -> Running<'scope, N> {
    let mail = Mail::new(cores);
    start_with(scope, Arc::clone(&nf), nf, kind, cores, options, port, control, mail, Restored::default())
}

/// The same, for a run that goes on where an earlier one has ended.
///
/// # Errors
/// [`EngineError::Refused`] if the successor can't take over.
#[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
pub fn start_from<'scope, N: Function>(
    scope: &'scope Scope<'scope, '_>,
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: Options,
    port: &'scope mut (dyn Port + Send),
    control: &Control,
    beginning: Beginning<N>,
) -> Result<Running<'scope, N>, EngineError> {
    let Beginning { flows, shared, time, successor, at_end } = beginning;
    let mail = Mail::new(cores);
    at_end.into_iter().for_each(|look| mail.succession.look_at_end(look));
    let shares = options.sharing(&*nf).is_any();
    let successor = successor.map(|new| taking_over(new, &nf, (kind, cores), &options, shares)).transpose();
    let successor = successor.map_err(EngineError::Refused)?.map(Arc::new);
    let current = successor.as_ref().map_or_else(|| Arc::clone(&nf), Arc::clone);
    let restored = Restored { flows, shared, time, successor };
    Ok(start_with(scope, nf, current, kind, cores, options, port, control, mail, restored))
}

/// State that a run begins with, taken from an earlier run, and an observer of its end.
pub struct Beginning<N: NetworkFunction> {
    /// Flows of an earlier run. They count as opened.
    pub flows: Vec<SavedFlow<N>>,
    /// What packet sets shared in it, in words of [`Inspect::saved_shared`]; `None` to begin with nothing.
    pub shared: Option<Vec<u64>>,
    /// The time of that state.
    pub time: Nanos,
    /// A function of another configuration, which takes over before the first packet, as by [`Running::reload`].
    pub successor: Option<N>,
    /// Looks at the state that the run leaves behind, unless it fails.
    pub at_end: Option<Look<N>>,
}

/// Starts `nf`, which `current` takes over from if it is another.
#[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
fn start_with<'scope, N: Function>(
    scope: &'scope Scope<'scope, '_>,
    nf: Arc<N>,
    current: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: Options,
    port: &'scope mut (dyn Port + Send),
    control: &Control,
    mail: Mail<N>,
    restored: Restored<N>,
) -> Running<'scope, N> {
    let (control, shares) = (control.clone(), options.sharing(&*nf).is_any());
    let (held, asked) = (control.clone(), mail.clone());
    let thread = scope.spawn(move || {
        let outcome = run_with_mail(nf, kind, cores, &options, port, &held, &asked, restored);
        asked.close_all();
        outcome
    });
    Running { kind, cores, options, shares, nf: Mutex::new(current), control, mail, thread }
}

/// Returns `nf` ready to take over from `current`, if function and engine can go on with it.
fn taking_over<N: NetworkFunction>(
    nf: N,
    current: &N,
    (kind, cores): (EngineKind, usize),
    options: &Options,
    shares: bool,
) -> Result<N, String> {
    let nf = nf.succeed(current)?;
    let sharing = nf.description().sharing;
    kind.accepts(&nf.description(), cores)?;
    options.tables.accepts(&nf)?;
    match sharing.what() {
        _ if options.link.is_some() => Err("no configuration can take over in a run whose link loses packets".into()),
        _ if nf.packet_set() != current.packet_set() => {
            Err("a configuration with other packet sets can't take over from the one before".into())
        }
        _ if options.sizing(&nf) != options.sizing(current) => {
            Err("a configuration with tables for another number of flows can't take over from the one before".into())
        }
        Some(what) if !shares && matches!(kind, EngineKind::Shared | EngineKind::Transactional) => Err(format!(
            "with this configuration packet sets share {what}, which they didn't when {kind} began, so it can't take over"
        )),
        Some(_) | None => Ok(nf),
    }
}

impl<N: Function> Running<'_, N> {
    /// The progress of each core as of its last batch. Empty before the run has begun.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreProgress> {
        self.control.cores()
    }

    /// The engine.
    #[must_use]
    pub const fn kind(&self) -> EngineKind {
        self.kind
    }

    /// The handle without the function's type.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Runs `question` on every core, between two of its batches, and returns the answers by core. Returns `None` if the run ended before
    /// all had answered. See [`Mail::ask`].
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(usize, &mut dyn AnyWorker<N>) -> R + Send + Sync + 'static,
    ) -> Option<Vec<R>> {
        self.mail.ask(question)
    }

    /// Looks at the state of the whole run between two packets, with the time of the last one. All cores stop meanwhile, so be brief.
    /// Returns `None` if the run ended before.
    pub fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn Inspect<N>, &N, Nanos) -> R + Send + 'static,
    ) -> Option<R> {
        let _one_request_at_a_time = self.nf.lock().unwrap_or_else(PoisonError::into_inner);
        self.mail.succession.look(look)
    }

    /// Lets the function go on with another configuration, between two packets: none sees both, and none is lost. Flows stay; the function
    /// says what else does ([`adopt`](nf::NetworkFunction::adopt)). Its own counters begin anew. Returns the number of the first packet
    /// under the new configuration, or `None` if the run has ended before. On a port with several queues each core goes on with its own next
    /// packet; the number is one above the highest before.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the configuration can't take over; then the old one stays.
    pub fn reload(&self, nf: N) -> Result<Option<Seq>, EngineError> {
        let mut current = self.nf.lock().unwrap_or_else(PoisonError::into_inner);
        let Self { kind, cores, options, shares, .. } = self;
        let nf = taking_over(nf, &current, (*kind, *cores), options, *shares).map_err(EngineError::Refused)?;
        let nf = Arc::new(nf);
        let first = self.mail.succession.succeed(Arc::clone(&nf));
        if first.is_some() {
            *current = nf;
        }
        Ok(first)
    }

    /// Ends the run: packets received before are finished, and no more are taken.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// True if the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// As [`run`](super::run()).
    pub fn wait(self) -> Result<Outcome, EngineError> {
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
