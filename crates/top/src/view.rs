//! What the user looks at: samples so far, and what of them is shown.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use daemon::Stats;

use crate::rates::Rates;

/// Number of past rates that are kept: as many as a wide terminal has columns.
const HISTORY_LEN_MAX: usize = 512;
/// Rows that a page is.
const PAGE_ROWS: usize = 10;

/// A live view: samples, and what of them is shown. [`View::key`] changes it.
#[derive(Debug)]
pub struct View {
    live: Shot,
    /// What was live when the user paused.
    paused: Option<Shot>,
    pub(crate) panel: Panel,
    /// First row of each panel.
    pub(crate) scrolls: [usize; Panel::ALL.len()],
    pub(crate) shows_help: bool,
    pub(crate) has_color: bool,
    /// Why the run has ended.
    pub(crate) ended: Option<String>,
}

/// A sample with the rates that led to it.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    pub(crate) stats: Stats,
    /// Rates up to this sample; none for the first.
    pub(crate) rates: Option<Rates>,
    /// Past rates: received, bits, forwarded, replied, dropped.
    pub(crate) history: VecDeque<[f64; 5]>,
}

/// A part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panel {
    Cores,
    Drops,
    State,
    Flows,
    Interfaces,
}

impl Panel {
    pub(crate) const ALL: [Self; 5] = [Self::Cores, Self::Drops, Self::State, Self::Flows, Self::Interfaces];

    fn moved(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

impl View {
    /// A view that begins with a sample.
    #[must_use]
    pub fn new(first: Stats, has_color: bool) -> Self {
        Self {
            live: Shot { stats: first, rates: None, history: VecDeque::new() },
            paused: None,
            panel: Panel::Cores,
            scrolls: [0; Panel::ALL.len()],
            shows_help: false,
            has_color,
            ended: None,
        }
    }

    /// Takes another sample.
    pub fn sample(&mut self, stats: Stats) {
        let live = &mut self.live;
        live.rates = Rates::between(&live.stats, &stats);
        match &live.rates {
            Some(rates) => {
                if live.history.len() == HISTORY_LEN_MAX {
                    live.history.pop_front();
                }
                live.history.push_back([rates.received, rates.bits, rates.forwarded, rates.replied, rates.dropped]);
            }
            // Another run, if its time went back.
            None if stats.uptime_ms < live.stats.uptime_ms => live.history.clear(),
            None => {}
        }
        live.stats = stats;
    }

    /// Notes that the run has ended, and why.
    pub fn end(&mut self, reason: String) {
        self.ended = Some(reason);
    }

    /// What is shown now.
    pub(crate) fn shot(&self) -> &Shot {
        self.paused.as_ref().unwrap_or(&self.live)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Does what a key asks for; true if it is to quit.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.shows_help && key.code != KeyCode::Char('q') {
            self.shows_help = false;
            return false;
        }
        let scroll = &mut self.scrolls[self.panel as usize];
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('p' | ' ') => {
                self.paused = if self.paused.is_some() { None } else { Some(self.live.clone()) };
            }
            KeyCode::Tab | KeyCode::Right => self.panel = self.panel.moved(1),
            KeyCode::BackTab | KeyCode::Left => self.panel = self.panel.moved(Panel::ALL.len() - 1),
            KeyCode::Up => *scroll = scroll.saturating_sub(1),
            KeyCode::Down => *scroll = scroll.saturating_add(1),
            KeyCode::PageUp => *scroll = scroll.saturating_sub(PAGE_ROWS),
            KeyCode::PageDown => *scroll = scroll.saturating_add(PAGE_ROWS),
            KeyCode::Home => *scroll = 0,
            // Drawing keeps it in bounds.
            KeyCode::End => *scroll = usize::MAX,
            _ => {}
        }
        false
    }
}
