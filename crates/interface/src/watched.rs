//! The list of what a port has open.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A list that a port fills when it is opened, and that any thread may read while it runs: its interfaces, or its cores.
pub struct Watched<T>(Arc<Mutex<Vec<T>>>);

impl<T> Watched<T> {
    /// Replaces the list.
    pub fn set(&self, list: Vec<T>) {
        *self.list() = list;
    }

    /// Calls `f` for each element and returns the results, in order.
    pub fn map<R>(&self, f: impl FnMut(&T) -> R) -> Vec<R> {
        self.list().iter().map(f).collect()
    }

    /// Calls `f` for each element up to the first error.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_for_each<E>(&self, f: impl FnMut(&T) -> Result<(), E>) -> Result<(), E> {
        self.list().iter().try_for_each(f)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list().len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn list(&self) -> MutexGuard<'_, Vec<T>> {
        // A list is replaced as a whole, so that a panic elsewhere leaves it right.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("len", &self.len()).finish()
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
