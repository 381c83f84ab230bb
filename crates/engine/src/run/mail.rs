//! Requests to the cores of a run, served between two batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use nf::NetworkFunction;

use super::succession::Succession;
use crate::work::any_worker::AnyWorker;

/// A mailbox for each core, and the function that is to take over.
pub struct Mail<N: NetworkFunction> {
    boxes: Arc<[Mailbox<N>]>,
    pub(super) succession: Arc<Succession<N>>,
}

struct Mailbox<N: NetworkFunction> {
    /// True if there are letters. A core reads only this flag with each batch.
    has_come: AtomicBool,
    letters: Mutex<Letters<N>>,
}

struct Letters<N: NetworkFunction> {
    waiting: VecDeque<Letter<N>>,
    closed: bool,
}

type Letter<N> = Box<dyn FnOnce(usize, &mut dyn AnyWorker<N>) + Send>;

impl<N: NetworkFunction> Clone for Mail<N> {
    fn clone(&self) -> Self {
        Self { boxes: Arc::clone(&self.boxes), succession: Arc::clone(&self.succession) }
    }
}

impl<N: NetworkFunction> Mail<N> {
    /// Mailboxes for `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        let mailbox = || {
            let letters = Mutex::new(Letters { waiting: VecDeque::new(), closed: false });
            Mailbox { has_come: AtomicBool::new(false), letters }
        };
        Self { boxes: (0..cores).map(|_| mailbox()).collect(), succession: Arc::new(Succession::new()) }
    }

    /// Runs `question` on every core, between two of its batches, and returns the answers by core. Cores don't wait for each other, so each
    /// answers at a packet of its own. Returns `None` if the run ended before all had answered.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(usize, &mut dyn AnyWorker<N>) -> R + Send + Sync + 'static,
    ) -> Option<Vec<R>> {
        let question = Arc::new(question);
        let (answer, answers) = channel();
        for mailbox in &*self.boxes {
            let (question, answer) = (Arc::clone(&question), answer.clone());
            mailbox.put(Box::new(move |core, worker| {
                // The caller may have stopped waiting.
                let _ = answer.send((core, question(core, worker)));
            }));
        }
        drop(answer);
        let mut answers: Vec<(usize, R)> = answers.iter().collect();
        answers.sort_by_key(|(core, _)| *core);
        (answers.len() == self.boxes.len()).then(|| answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// True if a core has letters.
    #[inline]
    pub(super) fn has_come(&self, core: usize) -> bool {
        // ORDERING: Relaxed. The letters themselves are under a lock; pairs with the stores in `put` and `next`.
        self.boxes.get(core).is_some_and(|mailbox| mailbox.has_come.load(Ordering::Relaxed))
    }

    /// Answers a core's letters.
    pub(super) fn read(&self, core: usize, worker: &mut dyn AnyWorker<N>) {
        let Some(mailbox) = self.boxes.get(core) else { return };
        while let Some(letter) = mailbox.next() {
            letter(core, worker);
        }
    }

    /// The run has ended: no letter is answered any more, and nothing takes over.
    pub(super) fn close_all(&self) {
        (0..self.boxes.len()).for_each(|core| self.close(core));
        self.succession.close();
    }

    /// Closes the mailbox of a core that has ended. Its letters are dropped unanswered.
    pub(super) fn close(&self, core: usize) {
        if let Some(mailbox) = self.boxes.get(core) {
            let mut letters = mailbox.letters.lock().unwrap_or_else(PoisonError::into_inner);
            letters.closed = true;
            letters.waiting.clear();
        }
    }
}

impl<N: NetworkFunction> Mailbox<N> {
    fn put(&self, letter: Letter<N>) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        if !letters.closed {
            letters.waiting.push_back(letter);
            // ORDERING: Relaxed, as in `has_come`.
            self.has_come.store(true, Ordering::Relaxed);
        }
    }

    fn next(&self) -> Option<Letter<N>> {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let letter = letters.waiting.pop_front();
        if letter.is_none() {
            // ORDERING: Relaxed, as in `has_come`.
            self.has_come.store(false, Ordering::Relaxed);
        }
        letter
    }
}
