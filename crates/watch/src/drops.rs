//! A sample of dropped packets in a capture.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use port::pcap::{Error, Writer};
use port::{Batch, Fate, Packet, Watch};

/// Some dropped packets for each reason, in a pcapng file, with the reason as comment. A thread of its own writes them: cores never wait for
/// the disk. An error of the file ends the sample, not the run; [`trouble`](Self::trouble) tells it.
#[derive(Debug)]
pub struct DropSample {
    kept: Mutex<Kept>,
    writing: Mutex<Option<JoinHandle<Result<u64, Error>>>>,
    trouble: Arc<OnceLock<String>>,
}

/// Packets that are kept.
#[derive(Debug)]
struct Kept {
    /// `None` after the end.
    writer: Option<SyncSender<Dropped>>,
    /// The second that began last, and the packets kept in it by reason.
    second: Instant,
    in_second: [u32; 256],
    left_out: u64,
}

/// A dropped packet.
struct Dropped {
    packet: Packet,
    bytes: Box<[u8]>,
    reason: u8,
}

/// A sample that has ended.
#[derive(Debug)]
pub struct Sampled {
    /// Packets written.
    pub written: u64,
    /// Dropped packets that were left out.
    pub left_out: u64,
}

impl DropSample {
    /// Packets of each reason in a second, at most.
    pub const PER_SECOND: u32 = 10;
    /// Packets in a file, at most.
    pub const PACKETS_MAX: u64 = 1_000_000;

    /// Writes a sample to `writer`. `name` names a reason.
    #[must_use]
    pub fn new(writer: Writer, name: impl Fn(u8) -> &'static str + Send + 'static) -> Self {
        let (send, receive) = sync_channel(WAITING);
        let trouble = Arc::new(OnceLock::new());
        let told = Arc::clone(&trouble);
        let writing = thread::spawn(move || {
            write(writer, &receive, name).inspect_err(|error| {
                let _ = told.set(error.to_string());
            })
        });
        let kept = Kept { writer: Some(send), second: Instant::now(), in_second: [0; 256], left_out: 0 };
        Self { kept: Mutex::new(kept), writing: Mutex::new(Some(writing)), trouble }
    }

    /// The error that has ended the sample, if there was one.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// Completes the file, and gives it its name.
    ///
    /// # Errors
    /// The file can't be written.
    ///
    /// # Panics
    /// It was finished before.
    pub fn finish(&self) -> Result<Sampled, Error> {
        let left_out = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.writer = None;
            kept.left_out
        };
        let thread = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        let written = thread.expect("it is finished once").join().expect("the writer doesn't panic")?;
        Ok(Sampled { written, left_out })
    }
}

/// Packets that wait for the disk, at most; others are left out.
const WAITING: usize = 1024;

/// Interval at which written packets go to the file.
const FLUSH: Duration = Duration::from_secs(1);

fn write(mut writer: Writer, packets: &Receiver<Dropped>, name: impl Fn(u8) -> &'static str) -> Result<u64, Error> {
    let mut flushed = Instant::now();
    for Dropped { packet, bytes, reason } in packets {
        if writer.packets() == DropSample::PACKETS_MAX {
            break;
        }
        writer.write_with_comment(&packet, &bytes, name(reason))?;
        if flushed.elapsed() >= FLUSH {
            writer.hand_over()?;
            flushed = Instant::now();
        }
    }
    writer.finish()?;
    Ok(writer.packets())
}

impl Kept {
    fn take(&mut self, packet: &Packet, bytes: &[u8], reason: u8) {
        let in_second = &mut self.in_second[usize::from(reason)];
        let sent = *in_second < DropSample::PER_SECOND
            && self.writer.as_ref().is_some_and(|writer| {
                // A full queue, or a writer that has failed.
                writer.try_send(Dropped { packet: *packet, bytes: bytes.into(), reason }).is_ok()
            });
        *in_second += u32::from(sent);
        self.left_out += u64::from(!sent);
    }
}

impl Watch for DropSample {
    fn received(&self, _: usize, _: &Batch) {}

    fn decided(&self, _: usize, batch: &Batch) {
        let is_dropped = |packet: &Packet| matches!(packet.fate, Fate::Drop(_));
        if !batch.packets().iter().any(is_dropped) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.second.elapsed() >= Duration::from_secs(1) {
            (kept.second, kept.in_second) = (Instant::now(), [0; 256]);
        }
        for (packet, bytes) in batch.each(0..batch.len()) {
            if let Fate::Drop(reason) = packet.fate {
                kept.take(packet, bytes, reason);
            }
        }
    }
}
