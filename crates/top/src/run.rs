//! The loop of the view: keys, samples, drawing.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use daemon::Stats;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGHUP;

use crate::terminal::{Screen, Signals};
use crate::view::View;

/// Time between two looks at samples and signals while no key comes.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Options of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time between two samples.
    pub interval: Duration,
    /// False for a terminal without colours, or for a user who wants none.
    pub has_color: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), has_color: true }
    }
}

/// End of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed<E> {
    /// The user quit while the run went on.
    Quit,
    /// The run had ended, with this error of the source, and the user quit then.
    Ended(E),
    /// A signal came: its number. The signal's usual effect did not take place.
    Signal(i32),
}

/// Error of a view that can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError<E> {
    /// The run gives no sample.
    #[error("{0}")]
    Source(E),
    /// Input or output is not a terminal.
    #[error("the live view needs a terminal for its input and its output; in a pipe, print lines instead")]
    NoTerminal,
    /// The terminal fails.
    #[error("the terminal fails: {0}")]
    Terminal(io::Error),
}

/// Shows samples of a run until the user quits. An error of `source` means that the run has ended, and the view stays with the last figures: a
/// source that fails in passing has to try again itself. If the first sample is an error, there is no view. `source` is asked on another
/// thread, so that keys work while it waits.
///
/// # Errors
/// There is no first sample; there is no terminal, or it fails.
///
/// # Panics
/// If `source` panics; the terminal is restored before.
pub fn run<E: Display + Send + 'static>(
    mut source: impl FnMut() -> Result<Stats, E> + Send + 'static,
    options: &Options,
) -> Result<Closed<E>, TopError<E>> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let first = source().map_err(TopError::Source)?;
    let mut view = View::new(first, options.has_color);
    let signals = Signals::new().map_err(TopError::Terminal)?;
    let mut screen = Screen::enter().map_err(TopError::Terminal)?;
    let (stop, stopped) = channel::<()>();
    let (tell, samples) = sync_channel(1);
    let interval = options.interval;
    let asking = thread::spawn(move || {
        let mut next = Instant::now();
        loop {
            next = (next + interval).max(Instant::now());
            match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let sample = source();
            let is_last = sample.is_err();
            if tell.send(sample).is_err() || is_last {
                return;
            }
        }
    });
    let shown = show(&mut screen, &mut view, &samples, &signals);
    drop(screen);
    drop(stop);
    match shown.map_err(TopError::Terminal)? {
        Shown::Closed(closed) => Ok(closed),
        // The thread has gone without a last word.
        Shown::Panicked => match asking.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("it returns after an error, or when nobody listens"),
        },
    }
}

/// End of the loop.
enum Shown<E> {
    Closed(Closed<E>),
    Panicked,
}

fn show<E: Display>(
    screen: &mut Screen,
    view: &mut View,
    samples: &Receiver<Result<Stats, E>>,
    signals: &Signals,
) -> io::Result<Shown<E>> {
    let mut ended = None;
    let mut is_changed = true;
    loop {
        if is_changed {
            screen.draw(view)?;
            is_changed = false;
        }
        // Asked here and not of crossterm, which reads a terminal that has gone for ever.
        let stdin = io::stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut waiting, Some(&LOOK));
        if waiting[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(Shown::Closed(Closed::Signal(SIGHUP)));
        }
        if event::poll(Duration::ZERO)? {
            is_changed = true;
            if let Event::Key(key) = event::read()?
                && view.key(key)
            {
                return Ok(Shown::Closed(ended.map_or(Closed::Quit, Closed::Ended)));
            }
        }
        if let Some(signal) = signals.came() {
            return Ok(Shown::Closed(Closed::Signal(signal)));
        }
        match samples.try_recv() {
            Ok(Ok(stats)) => view.sample(stats),
            Ok(Err(error)) => {
                view.end(error.to_string());
                ended = Some(error);
            }
            Err(TryRecvError::Disconnected) if ended.is_none() => return Ok(Shown::Panicked),
            Err(_) => continue,
        }
        is_changed = true;
    }
}
