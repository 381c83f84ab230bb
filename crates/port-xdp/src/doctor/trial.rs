//! Opens an interface for a moment, to see what works. Its packets are lost meanwhile.

use port::{Port, PortError};

use crate::error::XdpError;
use crate::options::{Copying, Mode, Options};
use crate::port::XdpPort;

/// Its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// The program ran in the driver.
    Native {
        /// Nothing, or why packets are copied.
        copies: Option<String>,
    },
    /// The program ran in the network stack, for the reason given.
    Generic(String),
    /// It can't be opened.
    Refused(String),
}

/// Opens the interface with a socket for each queue, the best way first.
pub(super) fn attempt(interface: &str, queues: u32) -> Trial {
    let open = |mode, copying| {
        let small = Options { mode, copying, frames: 256, ring_len: 64, burst: 64, ..Options::new([interface]) };
        let mut port = XdpPort::new(small)?;
        port.open(queues as usize).map(drop).map_err(|error| match error {
            PortError::Interface(error) => match error.downcast::<XdpError>() {
                Ok(error) => *error,
                Err(error) => XdpError::Option(error.to_string()),
            },
            error => XdpError::Option(error.to_string()),
        })
    };
    let copies = match open(Mode::Native, Copying::ZeroCopy) {
        Ok(()) => return Trial::Native { copies: None },
        Err(XdpError::NoZeroCopy { source, .. }) => source.to_string(),
        Err(error) => return Trial::Refused(error.to_string()),
    };
    let reason = match open(Mode::Native, Copying::Copy) {
        Ok(()) => return Trial::Native { copies: Some(copies) },
        Err(XdpError::NoNative { source, hint, .. }) => format!("{source}{hint}"),
        Err(error) => return Trial::Refused(error.to_string()),
    };
    match open(Mode::Generic, Copying::Copy) {
        Ok(()) => Trial::Generic(reason),
        Err(error) => Trial::Refused(error.to_string()),
    }
}
