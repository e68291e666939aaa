//! Decompressors that are strict about the end of their streams.
//!
//! The usual reader types end quietly when a trailer is missing, or at the end of the first of several members; these
//! are driven by hand instead.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::Compression;
use super::input::Input;
use crate::error::{Error, Kind, Result};

const BLOCK_BYTES: usize = 64 << 10;

/// A decompressor over its input.
#[derive(Debug)]
pub(super) struct Unpack {
    method: Method,
    /// What was wrong behind the bytes that were given out last.
    failed: Option<Error>,
}

#[derive(Debug)]
enum Method {
    Deflate(Box<Deflate>),
    Zstd(Box<Zstd>),
}

impl Unpack {
    /// `head` are bytes that were read from `input` already.
    pub(super) fn new(input: Input, head: Vec<u8>, kind: Compression) -> Self {
        let packed = Packed { input, bytes: head, used: 0 };
        let method = match kind {
            Compression::Zstd => Method::Zstd(Box::new(Zstd::new(packed))),
            _ => {
                let state = Deflate::fresh(kind);
                Method::Deflate(Box::new(Deflate { packed, kind, state, inside: false }))
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
            Method::Deflate(deflate) => &deflate.packed.input,
            Method::Zstd(zstd) => &zstd.packed.input,
        }
    }

    /// Append some bytes to `out`, about `step` of them; 0 is the end.
    ///
    /// What was unpacked before damage is given out first: a wrong checksum at the end says nothing about
    /// records whose own checksums are right.
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
struct Packed {
    input: Input,
    bytes: Vec<u8>,
    used: usize,
}

impl Packed {
    /// Bytes at hand, after reading more if there were none; empty at the end.
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

const CUT: &str = "ends before its end mark: a writer died or a copy was cut short";
const FOREIGN: &str = "is followed by other bytes, or does not begin as one";

/// gzip members or zlib streams, any number of them.
pub(super) struct Deflate {
    packed: Packed,
    kind: Compression,
    state: Decompress,
    /// Whether a member has begun that has not ended.
    inside: bool,
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
            let packed = self.packed.fill()?;
            if packed.is_empty() {
                return if self.inside { Err(self.packed.error(Kind::Truncated, name, CUT)) } else { Ok(0) };
            }
            if !self.inside {
                self.state = Self::fresh(self.kind);
                self.inside = true;
            }
            out.try_reserve_exact(step).map_err(|_| Error::memory(step))?;
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress_vec(packed, out, FlushDecompress::None);
            let stuck = self.state.total_in() == read && self.state.total_out() == written;
            self.packed.used += (self.state.total_in() - read) as usize;
            match status {
                Ok(Status::StreamEnd) => self.inside = false,
                Ok(_) if !stuck => {}
                Ok(_) => {
                    return Err(self.packed.error(Kind::Changed, name, "cannot be decompressed further"));
                }
                Err(_) if self.state.total_out() == 0 && self.state.total_in() < 20 => {
                    return Err(self.packed.error(Kind::Changed, name, FOREIGN));
                }
                Err(e) => return Err(self.packed.error(Kind::Changed, name, &format!("is damaged ({e})"))),
            }
        }
        Ok(out.len() - before)
    }
}

/// zstd frames (RFC 8878), any number of them; skippable ones are skipped.
pub(super) struct Zstd {
    packed: Packed,
    decoder: FrameDecoder,
    inside: bool,
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").field("packed", &self.packed).finish_non_exhaustive()
    }
}

impl Zstd {
    fn new(packed: Packed) -> Self {
        Self { packed, decoder: FrameDecoder::new(), inside: false }
    }

    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let before = out.len();
        loop {
            if !self.inside && !self.begin()? {
                return Ok(0);
            }
            let mut source = Source { packed: &mut self.packed, failed: None, ended: false };
            let decoded = self.decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBytes(step));
            let (failed, ended) = (source.failed, source.ended);
            // Writing into a Vec cannot fail.
            let _ = self.decoder.collect_to_writer(&mut *out);
            if let Err(e) = decoded {
                return Err(failed.unwrap_or_else(|| self.broken(&e, ended)));
            }
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                let stored = self.decoder.get_checksum_from_data();
                if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                    return Err(self.packed.error(
                        Kind::Changed,
                        "zstd",
                        "has a wrong checksum: it is damaged",
                    ));
                }
                self.inside = false;
            }
            if out.len() > before {
                return Ok(out.len() - before);
            }
        }
    }

    /// Begin the next frame; false at the end of the input.
    fn begin(&mut self) -> Result<bool> {
        while !self.packed.fill()?.is_empty() {
            let mut source = Source { packed: &mut self.packed, failed: None, ended: false };
            let begun = self.decoder.reset(&mut source);
            let (failed, ended) = (source.failed, source.ended);
            match begun {
                Ok(()) => {
                    self.inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    self.skip(u64::from(length))?;
                }
                Err(e) => return Err(failed.unwrap_or_else(|| self.broken(&e, ended))),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            let have = self.packed.fill()?.len() as u64;
            if have == 0 {
                return Err(self.packed.error(Kind::Truncated, "zstd", CUT));
            }
            let step = have.min(bytes);
            self.packed.used += step as usize;
            bytes -= step;
        }
        Ok(())
    }

    #[cold]
    fn broken(&self, error: &FrameDecoderError, ended: bool) -> Error {
        if ended {
            return self.packed.error(Kind::Truncated, "zstd", CUT);
        }
        if matches!(error, FrameDecoderError::ReadFrameHeaderError(_)) {
            return self.packed.error(Kind::Changed, "zstd", FOREIGN);
        }
        self.packed.error(Kind::Changed, "zstd", &format!("is damaged ({error})"))
    }
}

/// The compressed bytes as `Read`, which keeps what an `io::Error` would lose.
struct Source<'a> {
    packed: &'a mut Packed,
    failed: Option<Error>,
    ended: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        match self.packed.fill() {
            Ok(bytes) => {
                let n = bytes.len().min(room.len());
                self.ended = bytes.is_empty();
                if let (Some(to), Some(from)) = (room.get_mut(..n), bytes.get(..n)) {
                    to.copy_from_slice(from);
                }
                self.packed.used += n;
                Ok(n)
            }
            Err(e) => {
                self.failed = Some(e);
                Err(std::io::Error::other("cannot be read"))
            }
        }
    }
}
