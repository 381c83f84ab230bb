//! A run in the background.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use nf::Function;
use port::Port;

use super::handle::{Control, CoreProgress};
use super::mail::Mail;
use super::{Outcome, run_with_mail};
use crate::error::EngineError;
use crate::kind::EngineKind;
use crate::options::Options;
use crate::work::any_worker::AnyWorker;

/// A run in the background: watch it, ask its cores, stop it, wait for it. If this is dropped, the run goes on, and its scope waits for it.
pub struct Running<'scope, N: Function> {
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
    let (control, mail) = (control.clone(), Mail::new(cores));
    let (held, asked) = (control.clone(), mail.clone());
    let thread = scope.spawn(move || {
        let outcome = run_with_mail(nf, kind, cores, &options, port, &held, &asked);
        // If the run never began, nothing else closes the mailboxes.
        (0..cores).for_each(|core| asked.close(core));
        outcome
    });
    Running { control, mail, thread }
}

impl<N: Function> Running<'_, N> {
    /// The progress of each core as of its last batch. Empty before the run has begun.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreProgress> {
        self.control.cores()
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
