//! Decompression of [gzip](https://www.rfc-editor.org/rfc/rfc1952) and [Zstandard](https://www.rfc-editor.org/rfc/rfc8878). Bytes decoded
//! before damage are delivered before the error. The result doesn't depend on how the input is split into reads.

use std::io::{self, BufRead, BufReader, Read};

use flate2::{FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

/// Zstandard's largest window, for files made with `--long=31`. The file decides how much memory is used.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;
/// Compressed bytes that are read at a time.
const BLOCK_BYTES: usize = 128 << 10;
/// The window of any gzip stream, as the logarithm of its bytes.
const GZIP_WINDOW_LOG: u8 = 15;

/// A compressed stream, decoded step by step.
pub(super) trait Stream: Send {
    /// Decodes bytes that were already read into `into`, which is not empty. `None`: call [`read_on`](Self::read_on) first. 0 bytes: the
    /// stream has ended. Bytes before damage come before the error.
    fn decode(&mut self, into: &mut [u8]) -> Option<io::Result<usize>>;

    /// Reads compressed bytes, at most a block; waits for them as the input does.
    fn read_on(&mut self) -> io::Result<()>;
}

/// The bytes that a compressed stream decodes to.
pub(super) struct Decompressed<R, D> {
    input: BufReader<R>,
    input_ended: bool,
    decoder: D,
    /// True if the last step filled all the room and may have more.
    has_more: bool,
    /// Error to return after the bytes before it.
    error: Option<io::Error>,
}

/// Decodes one format, a step at a time.
pub(super) trait Decoder {
    /// Decodes as much of `input` as fits into `into`. Without input it delivers buffered bytes, within a part.
    fn step(&mut self, input: &[u8], into: &mut [u8]) -> Step;

    /// True between two parts, where the stream may end.
    fn is_whole(&self) -> bool;

    /// Error text for a stream that ends within a part.
    const INCOMPLETE: &'static str;
}

/// Result of a step. Its counts are valid even if it failed.
pub(super) struct Step {
    taken: usize,
    given: usize,
    result: io::Result<()>,
}

impl<R: Read, D: Decoder> Decompressed<R, D> {
    pub(super) fn new(input: R, decoder: D) -> Self {
        let input = BufReader::with_capacity(BLOCK_BYTES, input);
        Self { input, input_ended: false, decoder, has_more: false, error: None }
    }
}

impl<R: Read + Send, D: Decoder + Send> Stream for Decompressed<R, D> {
    fn decode(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        debug_assert!(!into.is_empty(), "0 bytes are the end");
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        loop {
            // Deliver the decoder's buffered bytes first, because input may be slow.
            let keeps_back = self.has_more && !self.decoder.is_whole();
            let input = if keeps_back { &[] } else { self.input.buffer() };
            if input.is_empty() && !keeps_back {
                let incomplete = || io::Error::new(io::ErrorKind::UnexpectedEof, D::INCOMPLETE);
                let end = || if self.decoder.is_whole() { Ok(0) } else { Err(incomplete()) };
                return self.input_ended.then(end);
            }
            let Step { taken, given, result } = self.decoder.step(input, into);
            self.input.consume(taken);
            self.has_more = given == into.len();
            match (given, result) {
                (0, Ok(())) => {}
                (0, Err(error)) => return Some(Err(error)),
                (_, result) => {
                    self.error = result.err();
                    return Some(Ok(given));
                }
            }
        }
    }

    fn read_on(&mut self) -> io::Result<()> {
        self.input_ended = self.input.fill_buf()?.is_empty();
        Ok(())
    }
}

/// Gzip with one or more members, and zeros after the last, as tapes and disks leave them.
pub(super) struct Gzip {
    inflate: flate2::Decompress,
    member_ended: bool,
    /// True once zeros have come after a member; only zeros may follow.
    padded: bool,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { inflate: flate2::Decompress::new_gzip(GZIP_WINDOW_LOG), member_ended: false, padded: false }
    }
}

impl Decoder for Gzip {
    const INCOMPLETE: &'static str = "it ends in the middle of a member";

    fn step(&mut self, input: &[u8], into: &mut [u8]) -> Step {
        if self.member_ended && (self.padded || input.first() == Some(&0)) {
            self.padded = true;
            let zeros = input.iter().take_while(|byte| **byte == 0).count();
            let other = || io::Error::new(io::ErrorKind::InvalidData, "there is data after the zeros at its end");
            return Step { taken: zeros, given: 0, result: if zeros < input.len() { Err(other()) } else { Ok(()) } };
        }
        if self.member_ended {
            self.inflate.reset(true);
            self.member_ended = false;
        }
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let result = self.inflate.decompress(input, into, FlushDecompress::None);
        let taken = (self.inflate.total_in() - before.0) as usize;
        let given = (self.inflate.total_out() - before.1) as usize;
        self.member_ended = matches!(result, Ok(Status::StreamEnd));
        // The library's message depends on the size of the input pieces.
        let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "corrupt deflate data or checksum");
        Step { taken, given, result: result.map(drop).map_err(damaged) }
    }

    fn is_whole(&self) -> bool {
        self.member_ended
    }
}

/// Zstandard, of one frame or several.
pub(super) struct Zstd {
    decoder: zstd::stream::raw::Decoder<'static>,
    /// Bytes that the decoder wants next: the rest of a block and the header of the next one; 0 between frames.
    wanted: usize,
}

impl Zstd {
    pub(super) fn new() -> io::Result<Self> {
        let mut decoder = zstd::stream::raw::Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
        Ok(Self { decoder, wanted: 0 })
    }
}

impl Decoder for Zstd {
    const INCOMPLETE: &'static str = "it ends in the middle of a frame";

    /// A call that fails does not tell what it decoded before, so that no call may both decode and fail: it is given less
    /// than it asks for, by a byte, and never gets to the end of a second part. That also keeps it from decoding a whole
    /// frame at once where there is room for it, and from failing on the whole of a stored block for its last byte.
    fn step(&mut self, input: &[u8], into: &mut [u8]) -> Step {
        let enough = self.wanted.saturating_sub(1).max(1);
        let mut input = InBuffer::around(&input[..input.len().min(enough)]);
        let mut output = OutBuffer::around(into);
        let result = self.decoder.run(&mut input, &mut output);
        let (taken, given) = (input.pos(), output.pos());
        Step { taken, given, result: result.map(|wanted| self.wanted = wanted) }
    }

    fn is_whole(&self) -> bool {
        self.wanted == 0
    }
}
