//! A run in the background.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use nf::Function;
use packet::{Nanos, Seq};
use port::Port;

use super::handle::{Control, CoreProgress};
use super::instance::Inspect;
use super::mail::Mail;
use super::succession::Look;
use super::{Outcome, run_with_mail};
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
    start_from(scope, nf, kind, cores, options, port, control, Vec::new(), None)
}

/// The same, for a run that begins with flows of an earlier one, of a function whose packet sets share nothing. They count as opened.
/// `at_end` looks at the state that the run leaves behind, unless it fails.
#[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
pub fn start_from<'scope, N: Function>(
    scope: &'scope Scope<'scope, '_>,
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: Options,
    port: &'scope mut (dyn Port + Send),
    control: &Control,
    flows: Vec<SavedFlow<N>>,
    at_end: Option<Look<N>>,
) -> Running<'scope, N> {
    let (control, mail) = (control.clone(), Mail::new(cores));
    at_end.into_iter().for_each(|look| mail.succession.look_at_end(look));
    let (held, asked, first) = (control.clone(), mail.clone(), Arc::clone(&nf));
    let shares = options.sharing(&*nf).is_any();
    let thread = scope.spawn(move || {
        let outcome = run_with_mail(first, kind, cores, &options, port, &held, &asked, &flows);
        asked.close_all();
        outcome
    });
    Running { kind, cores, options, shares, nf: Mutex::new(nf), control, mail, thread }
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
        let nf = nf.succeed(&current).and_then(|nf| self.takes(&current, nf)).map_err(EngineError::Refused)?;
        let nf = Arc::new(nf);
        let first = self.mail.succession.succeed(Arc::clone(&nf));
        if first.is_some() {
            *current = nf;
        }
        Ok(first)
    }

    /// Checks that the engine can go on with `nf`, which succeeds `current`.
    fn takes(&self, current: &N, nf: N) -> Result<N, String> {
        let Self { kind, cores, options, .. } = self;
        let sharing = nf.description().sharing;
        kind.accepts(&nf.description(), *cores)?;
        options.tables.accepts(&nf)?;
        let needs = "so it can't take over while packets flow";
        match sharing.what() {
            _ if options.link.is_some() => Err(format!("the run has a link that loses packets, {needs}")),
            _ if nf.packet_set() != current.packet_set() => {
                Err(format!("the configuration has other packet sets than the running one, {needs}"))
            }
            _ if options.sizing(&nf) != options.sizing(current) => {
                Err(format!("the configuration has tables for another number of flows than the running one, {needs}"))
            }
            Some(what) if !self.shares && matches!(kind, EngineKind::Shared | EngineKind::Transactional) => {
                Err(format!(
                    "with this configuration packet sets share {what}, which they didn't when {kind} began, {needs}"
                ))
            }
            Some(_) | None => Ok(nf),
        }
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
