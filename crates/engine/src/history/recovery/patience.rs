//! How long a core waits for one that makes no progress.

use std::time::{Duration, Instant};

/// How long a core waits for another that makes no progress, before it fences that core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Without limit: a core that stalls stops all others.
    Endless,
    /// This many looks. For tests, which have no clock.
    Looks(u32),
    /// This long. The clock is read only while the core waits anyway.
    Time(Duration),
}

impl Default for Patience {
    /// Longer than a system keeps a thread off its processor, or needs for the page faults of a table.
    fn default() -> Self {
        Self::Time(Duration::from_millis(500))
    }
}

/// A wait in progress.
#[derive(Debug)]
pub(super) struct Wait {
    patience: Patience,
    looks: u32,
    since: Option<Instant>,
}

impl Wait {
    pub(super) const fn new(patience: Patience) -> Self {
        Self { patience, looks: 0, since: None }
    }

    /// True once each time the patience has run out.
    pub(super) fn is_over(&mut self) -> bool {
        let over = match self.patience {
            Patience::Endless => false,
            Patience::Looks(most) => self.looks >= most,
            Patience::Time(most) => self.since.get_or_insert_with(Instant::now).elapsed() >= most,
        };
        self.looks = if over { 0 } else { self.looks.saturating_add(1) };
        if over {
            self.since = None;
        }
        over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_again_and_again() {
        let mut wait = Wait::new(Patience::Looks(2));
        let over: Vec<bool> = (0..7).map(|_| wait.is_over()).collect();
        assert_eq!(over, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn time_passes_and_eternity_does_not() {
        let mut wait = Wait::new(Patience::Time(Duration::ZERO));
        assert!(wait.is_over() && wait.is_over());
        let mut wait = Wait::new(Patience::Endless);
        assert!((0..1000).all(|_| !wait.is_over()));
    }
}
