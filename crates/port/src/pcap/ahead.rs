//! Decompression on a thread, into a ring of buffers, while the reader parses.
//!
//! The thread fills free buffers, and the reader empties filled ones. The thread hands over a buffer when it is full or when it must read
//! more input, so that bytes never wait for a pipe. The end, or an error, follows the last buffer.
//!
//! The thread ends after the stream, or soon after the reader is dropped: when its buffer is full, or when its wait for a pipe ends.
//! Nobody joins it. A blocking [`Read`](io::Read) supplied by the caller may keep it until the process ends.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::decompress::Stream;
use super::source::SPAN;

/// Bytes of a buffer: many packets for each wake-up of a thread, few enough for a second-level cache.
const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of a ring: one being filled, one being read, two as a reserve.
const BUFFERS: usize = 4;

/// A compressed stream. The reader decodes it while it is short, then a thread does.
pub(super) struct Ahead {
    /// The stream, until the thread takes it.
    stream: Option<Box<dyn Stream>>,
    /// Bytes that the reader decodes itself before it starts the thread.
    own: usize,
    buffer_bytes: usize,
    /// Processors allowed when the stream was opened. The reader may be pinned to one later, and a thread inherits that.
    cpus: Option<CpuSet>,
    ring: Arc<Ring>,
    current: Buffer,
}

impl Ahead {
    /// Decodes on a thread after the first buffer, so that a short file starts none.
    pub(super) fn once_long(stream: Box<dyn Stream>) -> Self {
        Self::new(stream, BUFFER_BYTES, BUFFER_BYTES)
    }

    /// Decodes on a thread from the first byte.
    pub(super) fn at_once(stream: Box<dyn Stream>) -> Self {
        Self::new(stream, 0, BUFFER_BYTES)
    }

    fn new(stream: Box<dyn Stream>, own: usize, buffer_bytes: usize) -> Self {
        let (cpus, current) = (sched_getaffinity(None).ok(), Buffer::default());
        Self { stream: Some(stream), own, buffer_bytes, cpus, ring: Arc::default(), current }
    }

    /// Reads available bytes, at most `into.len()`; 0 at the end. Returns [`Interrupted`](io::ErrorKind::Interrupted) if nothing comes
    /// for [`SPAN`].
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(mut stream) = self.stream.take() {
            if self.own > 0 {
                let count = read_here(&mut *stream, into);
                self.stream = Some(stream);
                self.own = self.own.saturating_sub(*count.as_ref().unwrap_or(&0));
                return count;
            }
            self.start(stream)?;
        }
        let mut given = 0;
        while given < into.len() {
            if self.current.left().is_empty() {
                // Deliver available bytes at once, and before an error.
                let wait = if given == 0 { SPAN } else { Duration::ZERO };
                match self.ring.take_filled(wait) {
                    Filled::Buffer(buffer) => self.current = buffer,
                    _ if given > 0 => break,
                    Filled::Nothing => return Err(io::ErrorKind::Interrupted.into()),
                    Filled::End => return self.ring.take_end().map(|()| 0),
                }
            }
            given += self.current.copy_to(&mut into[given..]);
            if self.current.left().is_empty() {
                self.ring.give_back(mem::take(&mut self.current));
            }
        }
        Ok(given)
    }

    fn start(&self, mut stream: Box<dyn Stream>) -> io::Result<()> {
        self.ring.lock().free.extend((0..BUFFERS).map(|_| vec![0; self.buffer_bytes].into()));
        let (ring, cpus) = (Arc::clone(&self.ring), self.cpus);
        let thread = thread::Builder::new().name("decompress".to_owned());
        let work = move || {
            // If the system refuses, it decodes on the reader's processor.
            let _ = cpus.map(|cpus| sched_setaffinity(None, &cpus));
            decode_all(&mut *stream, &ring);
        };
        thread.spawn(work).map(drop)
    }

    /// True if a read would return bytes, the end or an error at once. Always true before a thread has the stream.
    pub(super) fn is_ready(&self) -> bool {
        self.stream.is_some() || !self.current.left().is_empty() || self.ring.lock().is_ready()
    }

    /// Waits until it is ready, for at most `at_most`.
    pub(super) fn wait(&self, at_most: Duration) {
        if self.stream.is_none() && self.current.left().is_empty() {
            drop(self.ring.wait(at_most));
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.ring.lock().reader_gone = true;
        self.ring.freed.notify_one();
    }
}

/// Decodes one step on the caller's thread.
fn read_here(stream: &mut dyn Stream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.decode(into) {
            Some(result) => return result,
            None => stream.read_on()?,
        }
    }
}

/// The thread: decodes the stream into the ring until one of them ends.
fn decode_all(stream: &mut dyn Stream, ring: &Ring) {
    let _ended = EndsRing(ring);
    while let Some(bytes) = ring.take_free() {
        let mut buffer = Buffer { bytes, start: 0, end: 0 };
        let end = fill(stream, &mut buffer, ring);
        let is_over = end.is_some();
        ring.hand_over(buffer, end);
        if is_over {
            return;
        }
    }
}

/// Fills the buffer. Waits for input only before its first byte. Returns how the stream ended, if it did.
fn fill(stream: &mut dyn Stream, buffer: &mut Buffer, ring: &Ring) -> Option<io::Result<()>> {
    while buffer.end < buffer.bytes.len() {
        match stream.decode(&mut buffer.bytes[buffer.end..]) {
            Some(Ok(0)) => return Some(Ok(())),
            Some(Ok(count)) => buffer.end += count,
            Some(Err(error)) => return Some(Err(error)),
            None if buffer.end > 0 => break,
            None => match stream.read_on() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if ring.lock().reader_gone {
                        return Some(Ok(()));
                    }
                }
                Err(error) => return Some(Err(error)),
                Ok(()) => {}
            },
        }
    }
    None
}

/// Decoded bytes; those from `start` to `end` are unread.
#[derive(Default)]
struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn left(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Copies what fits, and returns its length.
    fn copy_to(&mut self, into: &mut [u8]) -> usize {
        let left = self.left();
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.start += count;
        count
    }
}

/// State shared by the thread and the reader.
#[derive(Default)]
struct Ring {
    state: Mutex<State>,
    /// Something was handed over.
    filled: Condvar,
    /// A buffer came back, or the reader went.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    filled: VecDeque<Buffer>,
    free: Vec<Box<[u8]>>,
    /// What follows the last buffer.
    end: Option<io::Result<()>>,
    reader_gone: bool,
}

impl State {
    fn is_ready(&self) -> bool {
        !self.filled.is_empty() || self.end.is_some()
    }
}

/// Result of looking for a filled buffer.
enum Filled {
    Buffer(Buffer),
    Nothing,
    End,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, at most so long, until the reader finds something.
    fn wait(&self, at_most: Duration) -> MutexGuard<'_, State> {
        let state = self.lock();
        if state.is_ready() || at_most.is_zero() {
            return state;
        }
        let waited = self.filled.wait_timeout_while(state, at_most, |state| !state.is_ready());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn take_filled(&self, at_most: Duration) -> Filled {
        let mut state = self.wait(at_most);
        match state.filled.pop_front() {
            Some(buffer) => Filled::Buffer(buffer),
            None if state.end.is_some() => Filled::End,
            None => Filled::Nothing,
        }
    }

    /// How the stream ended. An error is returned once, then the end.
    fn take_end(&self) -> io::Result<()> {
        self.lock().end.replace(Ok(())).unwrap_or(Ok(()))
    }

    fn give_back(&self, buffer: Buffer) {
        self.lock().free.push(buffer.bytes);
        self.freed.notify_one();
    }

    /// A free buffer; `None` if the reader is gone.
    fn take_free(&self) -> Option<Box<[u8]>> {
        let state = self.lock();
        let waited = self.freed.wait_while(state, |state| state.free.is_empty() && !state.reader_gone);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.reader_gone { None } else { state.free.pop() }
    }

    fn hand_over(&self, buffer: Buffer, end: Option<io::Result<()>>) {
        let mut state = self.lock();
        match buffer.left() {
            [] => state.free.push(buffer.bytes),
            _ => state.filled.push_back(buffer),
        }
        state.end = end;
        drop(state);
        self.filled.notify_one();
    }
}

/// Ends the ring when the thread ends, so that the reader doesn't wait for a thread that panicked.
struct EndsRing<'a>(&'a Ring);

impl Drop for EndsRing<'_> {
    fn drop(&mut self) {
        self.0.lock().end.get_or_insert_with(|| Err(io::Error::other("its decoder has failed")));
        self.0.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Write};

    use super::super::decompress::{Decompressed, Gzip, Zstd};
    use super::*;

    /// All that comes, and the error that it ends with.
    fn read_all(mut ahead: Ahead) -> (Vec<u8>, Option<String>) {
        let (mut all, mut block) = (Vec::new(), [0; 700]);
        let error = loop {
            match ahead.read(&mut block) {
                Ok(0) => break None,
                Ok(count) => all.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        assert!(ahead.is_ready());
        (all, error)
    }

    #[test]
    fn a_thread_gives_what_the_reader_itself_would_decode() {
        let bytes: Vec<u8> = (0..60_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8 & 0x1f).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&bytes).expect("memory is there");
        let whole =
            [gzip.finish().expect("memory is there"), zstd::encode_all(&bytes[..], 3).expect("memory is there")];
        for (kind, whole) in whole.iter().enumerate() {
            let open = |input: &[u8], own, buffer_bytes| {
                let input = Cursor::new(input.to_vec());
                let stream: Box<dyn Stream> = match kind {
                    0 => Box::new(Decompressed::new(input, Gzip::new())),
                    _ => Box::new(Decompressed::new(input, Zstd::new().expect("memory is there"))),
                };
                read_all(Ahead::new(stream, own, buffer_bytes))
            };
            assert_eq!(open(whole, 0, 1000), (bytes.clone(), None));
            for at in (20..whole.len()).step_by(whole.len() / 15) {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                for input in [&damaged[..], &whole[..at]] {
                    let expected = open(input, usize::MAX, 1);
                    assert!(expected.1.is_some() || input.len() == whole.len(), "{kind}: it ends at byte {at}");
                    for (own, buffer_bytes) in [(0, 61), (0, BUFFER_BYTES), (1000, 5000)] {
                        let got = open(input, own, buffer_bytes);
                        assert!(got == expected, "{kind}: byte {at}: {} bytes, {:?}", got.0.len(), got.1);
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_stream_starts_no_thread() {
        let input = zstd::encode_all(&[7; 5000][..], 3).expect("memory is there");
        let stream = Decompressed::new(Cursor::new(input), Zstd::new().expect("memory is there"));
        let mut ahead = Ahead::once_long(Box::new(stream));
        let mut all = [0; 6000];
        assert_eq!((ahead.read(&mut all).ok(), ahead.read(&mut all).ok()), (Some(5000), Some(0)));
        assert!(ahead.stream.is_some() && ahead.ring.lock().free.is_empty());
    }

    /// A stream that has nothing, that has no end, or that panics. Its token tells whether somebody has it still.
    #[derive(Clone)]
    struct Odd {
        kind: Kind,
        _token: Arc<()>,
    }

    #[derive(Clone, Copy)]
    enum Kind {
        Idle,
        Endless,
        Panics,
    }

    impl Stream for Odd {
        fn decode(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
            match self.kind {
                Kind::Idle => None,
                Kind::Endless => Some(Ok(into.len())),
                Kind::Panics => panic!("as the test wants"),
            }
        }

        fn read_on(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::Interrupted.into())
        }
    }

    #[test]
    fn the_thread_ends_with_the_reader() {
        let token = Arc::new(());
        for kind in [Kind::Idle, Kind::Endless] {
            let mut ahead = Ahead::new(Box::new(Odd { kind, _token: Arc::clone(&token) }), 0, 100);
            let read = ahead.read(&mut [0; 250]).map_err(|error| error.kind());
            if let Kind::Idle = kind {
                assert_eq!(read, Err(io::ErrorKind::Interrupted));
                assert!(!ahead.is_ready());
                ahead.wait(Duration::from_millis(1));
                assert!(!ahead.is_ready());
            }
        }
        while Arc::strong_count(&token) > 1 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_decoder_that_panics_is_an_error() {
        let (all, error) = read_all(Ahead::new(Box::new(Odd { kind: Kind::Panics, _token: Arc::default() }), 0, 100));
        assert_eq!((all.len(), error.as_deref()), (0, Some("its decoder has failed")));
    }

    #[test]
    fn what_was_decoded_is_handed_over_when_the_input_pauses() {
        let (input, mut output) = io::pipe().expect("a pipe");
        let input: Box<dyn Read + Send> = Box::new(input);
        let mut ahead = Ahead::at_once(Box::new(Decompressed::new(input, Zstd::new().expect("memory is there"))));
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory is there");
        for part in 1..=3 {
            encoder.write_all(&[part; 100]).and_then(|()| encoder.flush()).expect("memory is there");
            output.write_all(&mem::take(encoder.get_mut())).expect("a pipe has room");
            let (mut bytes, mut filled) = ([0; 100], 0);
            while filled < 100 {
                ahead.wait(Duration::MAX);
                filled += ahead.read(&mut bytes[filled..]).expect("it waited");
            }
            assert_eq!(bytes, [part; 100]);
        }
    }
}
