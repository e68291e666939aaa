//! Decompressors that check the end of their streams.
//!
//! The usual reader types end without an error if a trailer is missing, or after the first of several members, so the
//! low-level interfaces are used instead.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::Compression;
use super::input::Input;
use crate::error::{Error, Kind, Result};

const BLOCK_BYTES: usize = 64 << 10;

/// A decompressor with its input.
#[derive(Debug)]
pub(super) struct Decompressor {
    method: Method,
    /// Error that follows the bytes that were returned last.
    failed: Option<Error>,
}

#[derive(Debug)]
enum Method {
    Deflate(Box<Deflate>),
    Zstd(Box<Zstd>),
}

impl Decompressor {
    /// Create a decompressor. `head` has the bytes that were already read from `input`.
    pub(super) fn new(input: Input, head: Vec<u8>, kind: Compression) -> Self {
        let compressed = CompressedInput { input, bytes: head, used: 0 };
        let method = match kind {
            Compression::Zstd => Method::Zstd(Box::new(Zstd::new(compressed))),
            _ => {
                let state = Deflate::fresh(kind);
                Method::Deflate(Box::new(Deflate { compressed, kind, state, in_member: false }))
            }
        };
        Self { method, failed: None }
    }

    pub(super) fn kind(&self) -> Compression {
        match &self.method {
            Method::Deflate(deflate) => deflate.kind,
            Method::Zstd(_) => Compression::Zstd,
        }
    }

    pub(super) fn input(&self) -> &Input {
        match &self.method {
            Method::Deflate(deflate) => &deflate.compressed.input,
            Method::Zstd(zstd) => &zstd.compressed.input,
        }
    }

    /// Append about `step` bytes to `out`; 0 is the end.
    ///
    /// Bytes before damage are returned first: a wrong checksum at the end does not affect records whose checksums are
    /// correct.
    pub(super) fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let before = out.len();
        let done = match &mut self.method {
            Method::Deflate(deflate) => deflate.read_into(out, step),
            Method::Zstd(zstd) => zstd.read_into(out, step),
        };
        match done {
            Err(e) if out.len() > before => {
                self.failed = Some(e);
                Ok(out.len() - before)
            }
            other => other,
        }
    }
}

/// Compressed bytes, read a block at a time.
#[derive(Debug)]
struct CompressedInput {
    input: Input,
    bytes: Vec<u8>,
    used: usize,
}

impl CompressedInput {
    /// Return buffered bytes, after reading more if there are none; empty at the end.
    fn fill(&mut self) -> Result<&[u8]> {
        if self.used == self.bytes.len() {
            self.bytes.clear();
            self.used = 0;
            self.input.read_into(&mut self.bytes, BLOCK_BYTES)?;
        }
        Ok(self.bytes.get(self.used..).unwrap_or_default())
    }

    #[cold]
    fn error(&self, kind: Kind, name: &str, what: &str) -> Error {
        let at = self.input.at() - (self.bytes.len() - self.used) as u64;
        Error::new(kind, format!("the {name} stream {what} (near compressed byte {at})"))
            .at(self.input.path())
    }
}

const TRUNCATED: &str = "ends before its end mark: a writer died or a copy was truncated";
const NOT_A_STREAM: &str = "is followed by other bytes, or does not begin like one";

/// Any number of gzip members or zlib streams.
pub(super) struct Deflate {
    compressed: CompressedInput,
    kind: Compression,
    state: Decompress,
    /// True while a member is being decompressed.
    in_member: bool,
}

impl std::fmt::Debug for Deflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflate").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Deflate {
    fn fresh(kind: Compression) -> Decompress {
        if kind == Compression::Zlib { Decompress::new(true) } else { Decompress::new_gzip(15) }
    }

    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let name = self.kind.name();
        let before = out.len();
        while out.len() == before {
            let compressed = self.compressed.fill()?;
            if compressed.is_empty() {
                return if self.in_member {
                    Err(self.compressed.error(Kind::Truncated, name, TRUNCATED))
                } else {
                    Ok(0)
                };
            }
            if !self.in_member {
                self.state = Self::fresh(self.kind);
                self.in_member = true;
            }
            out.try_reserve_exact(step).map_err(|_| Error::memory(step))?;
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress_vec(compressed, out, FlushDecompress::None);
            let stuck = self.state.total_in() == read && self.state.total_out() == written;
            self.compressed.used += (self.state.total_in() - read) as usize;
            match status {
                Ok(Status::StreamEnd) => self.in_member = false,
                Ok(_) if !stuck => {}
                Ok(_) => {
                    return Err(self.compressed.error(Kind::Changed, name, "cannot be decompressed further"));
                }
                Err(_) if self.state.total_out() == 0 && self.state.total_in() < 20 => {
                    return Err(self.compressed.error(Kind::Changed, name, NOT_A_STREAM));
                }
                Err(e) => {
                    return Err(self.compressed.error(Kind::Changed, name, &format!("is damaged ({e})")));
                }
            }
        }
        Ok(out.len() - before)
    }
}

/// Any number of zstd frames (RFC 8878); skippable ones are skipped.
pub(super) struct Zstd {
    compressed: CompressedInput,
    decoder: FrameDecoder,
    in_member: bool,
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").field("compressed", &self.compressed).finish_non_exhaustive()
    }
}

impl Zstd {
    fn new(compressed: CompressedInput) -> Self {
        Self { compressed, decoder: FrameDecoder::new(), in_member: false }
    }

    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let before = out.len();
        loop {
            if !self.in_member && !self.begin()? {
                return Ok(0);
            }
            let mut source = Source { compressed: &mut self.compressed, failed: None, ended: false };
            let decoded = self.decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBytes(step));
            let (failed, ended) = (source.failed, source.ended);
            // Writing to a Vec cannot fail.
            let _ = self.decoder.collect_to_writer(&mut *out);
            if let Err(e) = decoded {
                return Err(failed.unwrap_or_else(|| self.damaged(&e, ended)));
            }
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                let stored = self.decoder.get_checksum_from_data();
                if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                    return Err(self.compressed.error(
                        Kind::Changed,
                        "zstd",
                        "has a wrong checksum: it is damaged",
                    ));
                }
                self.in_member = false;
            }
            if out.len() > before {
                return Ok(out.len() - before);
            }
        }
    }

    /// Begin the next frame; return false at the end of the input.
    fn begin(&mut self) -> Result<bool> {
        while !self.compressed.fill()?.is_empty() {
            let mut source = Source { compressed: &mut self.compressed, failed: None, ended: false };
            let begun = self.decoder.reset(&mut source);
            let (failed, ended) = (source.failed, source.ended);
            match begun {
                Ok(()) => {
                    self.in_member = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    self.skip(u64::from(length))?;
                }
                Err(e) => return Err(failed.unwrap_or_else(|| self.damaged(&e, ended))),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            let have = self.compressed.fill()?.len() as u64;
            if have == 0 {
                return Err(self.compressed.error(Kind::Truncated, "zstd", TRUNCATED));
            }
            let step = have.min(bytes);
            self.compressed.used += step as usize;
            bytes -= step;
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, error: &FrameDecoderError, ended: bool) -> Error {
        if ended {
            return self.compressed.error(Kind::Truncated, "zstd", TRUNCATED);
        }
        if matches!(error, FrameDecoderError::ReadFrameHeaderError(_)) {
            return self.compressed.error(Kind::Changed, "zstd", NOT_A_STREAM);
        }
        self.compressed.error(Kind::Changed, "zstd", &format!("is damaged ({error})"))
    }
}

/// The compressed bytes as `Read`; keeps the error that an `io::Error` cannot carry.
struct Source<'a> {
    compressed: &'a mut CompressedInput,
    failed: Option<Error>,
    ended: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        match self.compressed.fill() {
            Ok(bytes) => {
                let n = bytes.len().min(room.len());
                self.ended = bytes.is_empty();
                if let (Some(to), Some(from)) = (room.get_mut(..n), bytes.get(..n)) {
                    to.copy_from_slice(from);
                }
                self.compressed.used += n;
                Ok(n)
            }
            Err(e) => {
                self.failed = Some(e);
                Err(std::io::Error::other("cannot be read"))
            }
        }
    }
}
