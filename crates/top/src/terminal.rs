//! The terminal: taken over, and given back however the view ends.

use std::io::{self, Stdout};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::screen::draw;
use crate::view::View;

/// True while the terminal is taken over. There is one terminal, and a panic on any thread gives it back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

type Hook = Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal, taken over until this is dropped.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// What prints a panic otherwise.
    hook: Hook,
}

impl Screen {
    pub(crate) fn enter() -> io::Result<Self> {
        // ORDERING: Release pairs with the Acquire in give_back: whoever gives it back sees the whole of what was done before.
        IS_TAKEN.store(true, Ordering::Release);
        let entered = enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen));
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let terminal = terminal.inspect_err(|_| give_back())?;
        let hook: Hook = Arc::from(take_hook());
        let printing = Arc::clone(&hook);
        set_hook(Box::new(move |panic| {
            give_back();
            printing(panic);
        }));
        Ok(Self { terminal, hook })
    }

    /// Draws, unless a panic has given the terminal back.
    pub(crate) fn draw(&mut self, view: &mut View) -> io::Result<()> {
        // ORDERING: Acquire pairs with the AcqRel in give_back.
        if IS_TAKEN.load(Ordering::Acquire) {
            self.terminal.draw(|frame| draw(frame, view))?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        // A thread that panics can't change what is done at a panic.
        if !thread::panicking() {
            let hook = Arc::clone(&self.hook);
            set_hook(Box::new(move |panic| hook(panic)));
        }
    }
}

/// Gives the terminal back, once.
fn give_back() {
    // ORDERING: AcqRel pairs with the Release in Screen::enter and with the Acquire in Screen::draw.
    if IS_TAKEN.swap(false, Ordering::AcqRel) {
        // A terminal that has gone needs nothing.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// The signals that end the view.
pub(crate) struct Signals {
    came: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let mut signals = Self { came: Arc::new(AtomicUsize::new(0)), registered: Vec::new() };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let came = Arc::clone(&signals.came);
            signals.registered.push(signal_hook::flag::register_usize(signal, came, signal as usize)?);
        }
        Ok(signals)
    }

    /// The signal that came.
    pub(crate) fn came(&self) -> Option<i32> {
        // ORDERING: nothing else is read on account of it; its partner is the store of the signal handler.
        match self.came.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in self.registered.drain(..) {
            signal_hook::low_level::unregister(signal);
        }
    }
}
