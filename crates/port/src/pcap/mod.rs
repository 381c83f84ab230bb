//! Capture files: pcap and pcapng, read and written as they stream by.
//!
//! [`Reader`] and [`Writer`] know the files, [`Capture`] is the queue and [`Pcap`] the port made of them.

mod classic;
mod clock;
mod error;
mod format;
mod reader;
mod sections;
mod source;
mod walk;

pub use error::{Error, Fault};
pub use format::{ByteOrder, Compression, Container, Format, Interface, Resolution};
pub use reader::{BLOCK_BYTES, Reader};
pub use source::Progress;
