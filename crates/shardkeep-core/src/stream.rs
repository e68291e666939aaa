//! The records of one file in order, plain or compressed.
//!
//! The end is strict: a partial header, a missing trailer, anything behind the last whole record or the
//! last compressed member is an error. Memory grows with the bytes that were really read, never with
//! a length that a header merely claims.
#![deny(clippy::indexing_slicing)]

use flate2::{Decompress, FlushDecompress, Status};

use crate::error::{Error, Kind, Result};
use crate::fdpool::VirtualFile;
use crate::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

const BLOCK_BYTES: usize = 256 << 10;

/// How the whole file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// Any number of members (RFC 1952).
    Gzip,
    /// Any number of streams (RFC 1950).
    Zlib,
}

impl Compression {
    /// Tell from the first bytes of a file. A right record header settles it, since its checksum can
    /// hardly be right by chance; only then do the magic numbers count.
    #[must_use]
    pub fn sniff(head: &[u8]) -> Self {
        if head.first_chunk().is_some_and(|header| framing::parse_header(header).is_ok()) {
            return Self::None;
        }
        match head {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            // Deflate with a window of up to 32 KiB, no preset dictionary, a header check that adds up.
            [cmf, flg, ..]
                if cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && flg & 0x20 == 0
                    && (u16::from(*cmf) * 256 + u16::from(*flg)).is_multiple_of(31) =>
            {
                Self::Zlib
            }
            _ => Self::None,
        }
    }
}

/// An iterator over the records of a file that lends each record out of its own buffer.
#[derive(Debug)]
pub struct RecordStream {
    source: Source,
    verify: bool,
    /// Uncompressed bytes not yet given out are `buf[start..]`.
    buf: Vec<u8>,
    start: usize,
    /// Where `buf[0]` stands in the uncompressed file.
    base: u64,
    record: u64,
    ended: bool,
}

impl RecordStream {
    /// Begin at the first record.
    ///
    /// `compression` None tells from the content.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(file: VirtualFile, compression: Option<Compression>, verify: bool) -> Result<Self> {
        let compression = match compression {
            Some(given) => given,
            None => {
                let mut head = [0; HEADER_BYTES];
                let got = file.read_at(&mut head, 0)?;
                Compression::sniff(head.get(..got).unwrap_or_default())
            }
        };
        let input = Input { file, at: 0 };
        let source = match compression {
            Compression::None => Source::Plain(input),
            _ => Source::Packed(Box::new(Inflate::new(input, compression))),
        };
        Ok(Self { source, verify, buf: Vec::new(), start: 0, base: 0, record: 0, ended: false })
    }

    #[must_use]
    pub fn compression(&self) -> Compression {
        match &self.source {
            Source::Plain(_) => Compression::None,
            Source::Packed(inflate) => inflate.kind,
        }
    }

    /// Whether the next record can be given out without reading.
    #[must_use]
    pub fn is_buffered(&self) -> bool {
        let Some(length) = self.ahead().first_chunk() else {
            return self.ended;
        };
        u64::from_le_bytes(*length)
            .checked_add(OVERHEAD_BYTES)
            .is_some_and(|whole| whole <= self.ahead().len() as u64)
            || self.ended
    }

    /// Read until the next record is buffered, the file ends, or an error is certain; then
    /// [`next_record`](Self::next_record) gives it without reading.
    ///
    /// # Errors
    /// The file cannot be read or decompressed. The stream is ended then.
    pub fn fill(&mut self) -> Result<()> {
        let filled = self.try_fill();
        self.ended |= filled.is_err();
        filled
    }

    fn try_fill(&mut self) -> Result<()> {
        if !self.reach(HEADER_BYTES as u64)? {
            return Ok(());
        }
        let Some(length) = self.ahead().first_chunk().and_then(|h| framing::parse_header(h).ok()) else {
            return Ok(()); // `next_record` says what is wrong
        };
        let Some(whole) = length.checked_add(OVERHEAD_BYTES) else {
            return Ok(());
        };
        if let Source::Plain(input) = &self.source {
            let left = input.left()?;
            if whole > self.ahead().len() as u64 + left {
                return Ok(());
            }
        }
        self.reach(whole)?;
        Ok(())
    }

    /// The next record, or None at the end of the file. After an error there are no more records.
    ///
    /// # Errors
    /// Damage or a partial record, with path, record number and offset (of the uncompressed bytes).
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        if self.ended {
            return Ok(None);
        }
        if !self.is_buffered() {
            self.fill()?;
        }
        match self.parse() {
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Ok(Some(length)) => {
                let from = self.start + HEADER_BYTES;
                self.start = from + length + FOOTER_BYTES;
                self.record += 1;
                Ok(self.buf.get(from..from + length))
            }
            Err(e) => {
                self.ended = true;
                let offset = self.base + self.start as u64;
                Err(e.at(self.source.file().path()).record(self.record).offset(offset))
            }
        }
    }

    fn parse(&self) -> Result<Option<usize>> {
        let ahead = self.ahead();
        if ahead.is_empty() {
            return Ok(None);
        }
        let have = ahead.len() as u64;
        let Some((header, rest)) = ahead.split_first_chunk() else {
            return Err(framing::truncated("a record header", have, HEADER_BYTES as u64));
        };
        let length = framing::parse_header(header)?;
        let body = length.saturating_add(FOOTER_BYTES as u64);
        let frame = usize::try_from(body).ok().and_then(|body| rest.get(..body));
        let Some((payload, footer)) = frame.and_then(|frame| frame.split_last_chunk()) else {
            return Err(framing::truncated("a record", have - HEADER_BYTES as u64, body));
        };
        if self.verify {
            framing::check_payload(payload, *footer)?;
        }
        Ok(Some(payload.len()))
    }

    fn ahead(&self) -> &[u8] {
        self.buf.get(self.start..).unwrap_or_default()
    }

    /// Buffer at least `want` bytes ahead; false if the file ends before.
    fn reach(&mut self, want: u64) -> Result<bool> {
        while (self.ahead().len() as u64) < want {
            self.buf.drain(..self.start);
            self.base += self.start as u64;
            self.start = 0;
            // Double, so that a large record costs few turns, but no more than is wanted.
            let missing = want - self.buf.len() as u64;
            let step = missing.min(self.buf.len() as u64).max(BLOCK_BYTES as u64) as usize;
            if self.source.read_into(&mut self.buf, step)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

// -- where the bytes come from --------------------------------------------------------------------------

#[derive(Debug)]
enum Source {
    Plain(Input),
    Packed(Box<Inflate>),
}

impl Source {
    fn file(&self) -> &VirtualFile {
        match self {
            Self::Plain(input) => &input.file,
            Self::Packed(inflate) => &inflate.input.file,
        }
    }

    /// Append up to `step` bytes; 0 is the end.
    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        match self {
            Self::Plain(input) => input.read_into(out, step),
            Self::Packed(inflate) => inflate.read_into(out, step),
        }
    }
}

#[derive(Debug)]
struct Input {
    file: VirtualFile,
    at: u64,
}

impl Input {
    fn left(&self) -> Result<u64> {
        Ok(self.file.size()?.saturating_sub(self.at))
    }

    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let before = out.len();
        out.resize(before + step, 0);
        let got = match out.get_mut(before..) {
            Some(room) => self.file.read_at(room, self.at),
            None => Ok(0),
        };
        out.truncate(before + got.as_ref().map_or(0, |n| *n));
        self.at += *got.as_ref().unwrap_or(&0) as u64;
        got
    }
}

/// A decompressor that is strict about the end of its streams.
struct Inflate {
    input: Input,
    kind: Compression,
    state: Decompress,
    packed: Vec<u8>,
    used: usize,
    /// Whether a member has begun that has not ended.
    inside: bool,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate")
            .field("kind", &self.kind)
            .field("at", &self.input.at)
            .finish_non_exhaustive()
    }
}

impl Inflate {
    fn new(input: Input, kind: Compression) -> Self {
        Self { input, kind, state: Self::fresh(kind), packed: Vec::new(), used: 0, inside: false }
    }

    fn fresh(kind: Compression) -> Decompress {
        match kind {
            Compression::Zlib => Decompress::new(true),
            Compression::Gzip | Compression::None => Decompress::new_gzip(15),
        }
    }

    fn name(&self) -> &'static str {
        if self.kind == Compression::Zlib { "zlib" } else { "gzip" }
    }

    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let before = out.len();
        while out.len() == before {
            if self.used == self.packed.len() {
                self.packed.clear();
                self.used = 0;
                if self.input.read_into(&mut self.packed, BLOCK_BYTES / 4)? == 0 {
                    if self.inside {
                        return Err(self.error(
                            Kind::Truncated,
                            "ends before its trailer: a writer died or a copy was cut short",
                        ));
                    }
                    return Ok(0);
                }
            }
            if !self.inside {
                self.state = Self::fresh(self.kind);
                self.inside = true;
            }
            out.reserve_exact(step);
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let packed = self.packed.get(self.used..).unwrap_or_default();
            let status = self.state.decompress_vec(packed, out, FlushDecompress::None);
            self.used += (self.state.total_in() - read) as usize;
            match status {
                Ok(Status::StreamEnd) => self.inside = false,
                Ok(Status::Ok) => {}
                Ok(Status::BufError)
                    if self.used < self.packed.len() && self.state.total_out() == written =>
                {
                    return Err(self.error(Kind::Changed, "cannot be decompressed further"));
                }
                Ok(Status::BufError) => {}
                Err(e) => {
                    let what = if self.state.total_out() == 0 && self.state.total_in() < 20 {
                        "is followed by other bytes, or does not begin as one".to_string()
                    } else {
                        format!("is damaged ({e})")
                    };
                    return Err(self.error(Kind::Changed, &what));
                }
            }
        }
        Ok(out.len() - before)
    }

    #[cold]
    fn error(&self, kind: Kind, what: &str) -> Error {
        let at = self.input.at - (self.packed.len() - self.used) as u64;
        Error::new(kind, format!("the {} stream {what} (near compressed byte {at})", self.name()))
            .at(self.input.file.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<Error>) {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("shardkeep-stream-{}-{serial}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let mut stream = RecordStream::open(VirtualFile::new(&path), None, true).unwrap();
        let mut records = Vec::new();
        let error = loop {
            match stream.next_record() {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        assert!(matches!(stream.next_record(), Ok(None)), "nothing comes after the end");
        std::fs::remove_file(path).unwrap();
        (records, error)
    }

    fn frames(lengths: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let records: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(i, n)| (0..*n).map(|j| (i * 31 + j * 7) as u8).collect())
            .collect();
        let mut bytes = Vec::new();
        records.iter().for_each(|r| framing::push(&mut bytes, r));
        (bytes, records)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    const LENGTHS: [usize; 7] = [0, 5, 300_000, 17, 1_000_000, 0, 3];

    #[test]
    fn every_container_gives_the_same_records() {
        let (bytes, records) = frames(&LENGTHS);
        let (a, b) = bytes.split_at(bytes.len() / 3);
        for packed in [
            bytes.clone(),
            gzip(&bytes),
            zlib(&bytes),
            [gzip(a), gzip(b)].concat(),
            [gzip(a), gzip(b""), gzip(b)].concat(),
            [zlib(a), zlib(b)].concat(),
        ] {
            let (got, error) = read(&packed);
            assert_eq!(error, None);
            assert!(got == records);
        }
        assert_eq!(read(b"").0.len(), 0);
        assert_eq!(read(&gzip(b"")).1, None);
    }

    #[test]
    fn every_cut_of_a_compressed_file_is_an_error() {
        let (bytes, _) = frames(&[20, 30]);
        for packed in [gzip(&bytes), zlib(&bytes)] {
            for cut in 1..packed.len() {
                let (_, error) = read(&packed[..cut]);
                // A first byte or two are not yet recognised as gzip: then it is a partial header.
                assert_eq!(error.unwrap().kind, Kind::Truncated, "cut at {cut} of {}", packed.len());
            }
        }
    }

    #[test]
    fn garbage_behind_the_end_is_an_error() {
        let (bytes, records) = frames(&[20, 30]);
        for tail in [&b"\0"[..], b"garbage", &[0; 4096]] {
            for packed in [bytes.clone(), gzip(&bytes), zlib(&bytes)] {
                let (got, error) = read(&[&packed, tail].concat());
                assert!(error.is_some(), "{tail:?}");
                assert_eq!(got, records);
            }
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let (mut bytes, _) = frames(&[5]);
        bytes.extend_from_slice(&framing::header(1 << 40));
        bytes.extend_from_slice(&[1; 100]);
        for packed in [bytes.clone(), gzip(&bytes)] {
            let (got, error) = read(&packed);
            assert_eq!(got.len(), 1);
            let error = error.unwrap();
            assert_eq!((error.kind, error.record, error.offset_bytes), (Kind::Truncated, Some(1), Some(21)));
        }
    }
}
