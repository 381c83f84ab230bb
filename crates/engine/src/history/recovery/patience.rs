//! How long a core waits for one that doesn't move.

use std::time::{Duration, Instant};

/// How long a core waits for one that holds it up and doesn't move at all, before it fences that core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For ever: a core that stalls holds up all others.
    Endless,
    /// So many looks. For tests, which have no clock.
    Looks(u32),
    /// So long by the clock, which is read only while there is nothing else to do.
    Time(Duration),
}

impl Default for Patience {
    /// Longer than a system keeps a thread off its processor, or takes to fault a table's pages in.
    fn default() -> Self {
        Self::Time(Duration::from_millis(500))
    }
}

/// A wait that is going on.
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

    /// Whether one span of patience has gone by since the start or since it last had.
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
