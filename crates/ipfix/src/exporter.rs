//! The exporting process: sends records on a thread of its own.

mod link;
mod sender;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::encoder::{Content, Encoder, EncoderOptions};
use crate::error::IpfixError;
use link::Link;
use sender::Shared;
use worker::Worker;

pub use sender::RecordSender;

/// Destination of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A collector by UDP. Templates are sent again and again.
    Udp(SocketAddr),
    /// A collector by TCP. Templates are sent once a connection.
    Tcp(SocketAddr),
    /// A file of messages (RFC 5655). An existing file is replaced.
    File(PathBuf),
}

/// Options of an [`Exporter`].
#[derive(Clone, Debug)]
pub struct ExporterOptions {
    /// Options of the messages.
    pub encoder: EncoderOptions,
    /// Records that wait for the exporter. The default is 16,384.
    pub queue: usize,
    /// True to send the exporter's statistics as options records. The default is true. nfdump 1.7.1 reads past them, but doesn't count them
    /// as data records, so it reports a sequence error for each.
    pub statistics: bool,
    /// Over UDP, templates and statistics are sent again after so long. The default is a minute. Over TCP, only statistics are.
    pub template_interval: Duration,
    /// Over UDP, templates and statistics are sent again after so many messages. The default is 1,000.
    pub template_messages: u64,
    /// A message that is not full is sent after so long. The default is a second.
    pub delay_max: Duration,
    /// Time from one attempt to connect to the next; it doubles from the first to the second of these. The default is 1 and 60 seconds.
    pub retry: [Duration; 2],
    /// Time to connect, and to send a message over TCP. The default is 2 seconds.
    pub timeout: Duration,
}

impl Default for ExporterOptions {
    fn default() -> Self {
        Self {
            encoder: EncoderOptions::default(),
            queue: 16_384,
            statistics: true,
            template_interval: Duration::from_secs(60),
            template_messages: 1000,
            delay_max: Duration::from_secs(1),
            retry: [Duration::from_secs(1), Duration::from_secs(60)],
            timeout: Duration::from_secs(2),
        }
    }
}

/// Counts of an exporter: `offered = exported + lost + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Records that senders were given.
    pub offered: u64,
    /// Records handed to the system: over UDP to a socket that reported no error, over TCP to a connection, or written to the file.
    pub exported: Content,
    /// Records lost: the queue was full, or the collector was away.
    pub lost: Content,
    /// Records in the queue or in the message that comes next.
    pub waiting: u64,
    /// Messages sent.
    pub messages: u64,
    /// Connections made over TCP.
    pub connections: u64,
}

/// The exporting process (RFC 7011, section 2): sends the records of its [`RecordSender`]s on a thread of its own.
///
/// Records wait in a bounded queue. While a collector is away over TCP the queue fills up, and then records are lost. Over UDP a message is
/// counted as exported once the system has taken it; if the collector's machine answers that nobody listens, as lost.
#[derive(Debug)]
pub struct Exporter {
    sender: RecordSender,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts an exporter. A collector over TCP need not be there yet.
    ///
    /// # Errors
    /// If there is no socket, file or thread for it, or an option is out of range.
    pub fn start(destination: &Destination, options: ExporterOptions) -> Result<Self, IpfixError> {
        let encoder = Encoder::new(options.encoder.clone())?;
        let link = Link::open(destination, &options)?;
        let (records, queue) = sync_channel(options.queue);
        let shared = Arc::new(Shared::default());
        let worker = Worker::new(encoder, link, queue, Arc::clone(&shared), options);
        let thread = thread::Builder::new().name("ipfix".to_owned()).spawn(move || worker.run());
        let thread = thread.map_err(IpfixError::Thread)?;
        Ok(Self { sender: RecordSender::new(records, shared), thread: Some(thread) })
    }

    /// A handle that records are sent by.
    #[must_use]
    pub fn sender(&self) -> RecordSender {
        self.sender.clone()
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> ExportCounts {
        self.sender.shared().counts()
    }

    /// The latest error of the collector or the file, in words; `None` while all is well.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.sender.shared().trouble()
    }

    /// Sends what waits, and ends the thread. A collector that is away is tried once more. Records that are sent later are lost.
    #[must_use]
    pub fn finish(mut self) -> ExportCounts {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        self.sender.shared().stop();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread doesn't panic, unless by our own error, which the counts then show: its records are not exported.
            let _ = thread.join();
            self.sender.shared().close();
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end();
    }
}
