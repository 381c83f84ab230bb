//! Ways in which a command can fail, and their exit codes.

use std::fmt;
use std::io;
use std::process::ExitCode;

use engine::EngineError;
use port::PortError;

/// Failure of a command.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Wrong outcome: an engine differs, or a function panicked. Exit code 1.
    Outcome(anyhow::Error),
    /// Wrong usage: argument or configuration. Exit code 2.
    Usage(anyhow::Error),
    /// A file can't be read or written. Exit code 3.
    Input(anyhow::Error),
    /// The error was already printed; this is the exit code.
    Said(u8),
    /// The reader of the output has closed it.
    BrokenPipe,
}

/// Help text on the exit codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    wrong outcome: an engine differs from `sequential`, a function panicked, a rule set is refused,
       or `doctor` found a problem
  2    wrong usage: argument, configuration, or an engine that doesn't support the function
  3    input or output: a file can't be read or written
  130  interrupted (Ctrl-C): packets already read are finished, summary and output are complete. A run on interfaces ends so with 0
  141  the reader of the output has closed it";

pub(crate) const OUTCOME: u8 = 1;
pub(crate) const INPUT: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 130;
pub(crate) const USAGE: u8 = 2;
/// Exit code that a shell reports for a program ended by SIGPIPE.
const BROKEN_PIPE: u8 = 141;

impl Failed {
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::Usage(anyhow::anyhow!("{message}"))
    }

    pub(crate) fn input(message: impl fmt::Display) -> Self {
        Self::Input(anyhow::anyhow!("{message}"))
    }

    /// Standard output can't be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::input(format_args!("standard output can't be written: {error}")),
        }
    }

    /// The exit code, and the error to print.
    pub(crate) fn into_parts(self) -> (ExitCode, Option<anyhow::Error>) {
        let (code, error) = match self {
            Self::Outcome(error) => (OUTCOME, Some(error)),
            Self::Usage(error) => (USAGE, Some(error)),
            Self::Input(error) => (INPUT, Some(error)),
            Self::Said(code) => (code, None),
            Self::BrokenPipe => (BROKEN_PIPE, None),
        };
        (ExitCode::from(code), error)
    }
}

impl From<port::pcap::Error> for Failed {
    fn from(error: port::pcap::Error) -> Self {
        if error.is_broken_pipe() { Self::BrokenPipe } else { Self::Input(error.into()) }
    }
}

impl From<PortError> for Failed {
    fn from(error: PortError) -> Self {
        Self::Input(error.into())
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(reason) => Self::usage(reason),
            EngineError::Port(error) => error.into(),
            EngineError::Panicked(_) => Self::Outcome(error.into()),
        }
    }
}

impl From<catalogue::config::ConfigError> for Failed {
    fn from(error: catalogue::config::ConfigError) -> Self {
        Self::Usage(error.into())
    }
}
