//! A run that goes on by itself.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use nf::Function;
use port::Port;

use super::handle::{Control, CoreProgress};
use super::mail::Mail;
use super::{Outcome, run_asked};
use crate::error::EngineError;
use crate::kind::EngineKind;
use crate::options::Options;
use crate::work::any_worker::AnyWorker;

/// A run that goes on by itself: it can be looked at, asked, stopped and waited for. Dropped, it goes on unwatched, and its scope waits
/// for it.
pub struct Running<'scope, N: Function> {
    control: Control,
    mail: Mail<N>,
    thread: ScopedJoinHandle<'scope, Result<Outcome, EngineError>>,
}

/// Starts a function under an engine over a port, within a scope that ends behind the run. The port can then be asked what it knows.
/// Whoever has a copy of `control` can look at the run and stop it, even before it has begun.
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
        let outcome = run_asked(nf, kind, cores, &options, port, &held, &asked);
        // Where it never began, nobody else sends the letters back.
        (0..cores).for_each(|core| asked.close(core));
        outcome
    });
    Running { control, mail, thread }
}

impl<N: Function> Running<'_, N> {
    /// What each core has done so far, as of its last batch; empty before the run has begun.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreProgress> {
        self.control.cores()
    }

    /// The handle without the function's type.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Asks every core between two of its batches, and returns the answers by core; `None` when the run has ended before all had
    /// answered. See [`Mail::ask`].
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(usize, &mut dyn AnyWorker<N>) -> R + Send + Sync + 'static,
    ) -> Option<Vec<R>> {
        self.mail.ask(question)
    }

    /// Ends the run: what was received is finished, nothing more is taken.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the run's end.
    ///
    /// # Errors
    /// As [`run`](super::run()).
    pub fn wait(self) -> Result<Outcome, EngineError> {
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
