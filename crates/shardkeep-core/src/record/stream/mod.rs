//! The records of one file in order, plain or compressed.
//!
//! The end is strict: a partial header, a missing trailer, and bytes after the last record or the last compressed member are
//! errors. Memory grows with the bytes that were read, never with a length that a header claims.
#![deny(clippy::indexing_slicing)]

mod decompress;
mod input;

pub use input::Input;

use crate::error::{Error, Kind, Result};
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};
use decompress::Decompressor;

const BLOCK_BYTES: usize = 256 << 10;

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// Any number of members (RFC 1952).
    Gzip,
    /// Any number of streams (RFC 1950).
    Zlib,
    /// Any number of frames (RFC 8878); read only.
    Zstd,
}

impl Compression {
    /// Detect the compression from the first bytes of a file. A record header with a correct checksum means none; otherwise
    /// the magic numbers decide.
    #[must_use]
    pub fn sniff(head: &[u8]) -> Self {
        if head.first_chunk().is_some_and(|header| framing::parse_header(header).is_ok()) {
            return Self::None;
        }
        match head {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // Deflate with a window of up to 32 KiB, no preset dictionary, and a valid header check. Bytes three to eight of
            // a record's length are usually zero, and those of a stream never are; with zeros it may be a damaged record
            // header.
            [cmf, flg, rest @ ..]
                if rest.iter().take(6).any(|byte| *byte != 0)
                    && cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && flg & 0x20 == 0
                    && (u16::from(*cmf) * 256 + u16::from(*flg)).is_multiple_of(31) =>
            {
                Self::Zlib
            }
            _ => Self::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// An iterator over the records of a file, which returns references into its buffer.
#[derive(Debug)]
pub struct RecordStream {
    source: Source,
    verify: bool,
    /// Uncompressed bytes that were not returned yet are `buf[start..]`.
    buf: Vec<u8>,
    start: usize,
    /// Offset of `buf[0]` in the uncompressed file.
    base: u64,
    record: u64,
    most_bytes: u64,
    ended: bool,
}

impl RecordStream {
    /// Open a stream at the first record.
    ///
    /// `compression` None detects it from the content.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn open(mut input: Input, compression: Option<Compression>, verify: bool) -> Result<Self> {
        let mut head = Vec::new();
        while head.len() < HEADER_BYTES && input.read_into(&mut head, BLOCK_BYTES)? > 0 {}
        let compression = compression.unwrap_or_else(|| Compression::sniff(&head));
        let (source, buf) = match compression {
            Compression::None => (Source::Plain(input), head),
            _ => (Source::Compressed(Decompressor::new(input, head, compression)), Vec::new()),
        };
        Ok(Self { source, verify, buf, start: 0, base: 0, record: 0, most_bytes: u64::MAX, ended: false })
    }

    /// End with an error at a record of more than `most_bytes` bytes, before it is read.
    pub fn limit(&mut self, most_bytes: u64) {
        self.most_bytes = most_bytes;
    }

    #[must_use]
    pub fn compression(&self) -> Compression {
        match &self.source {
            Source::Plain(_) => Compression::None,
            Source::Compressed(decompressor) => decompressor.kind(),
        }
    }

    /// Return true if the next record can be returned without reading.
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
    /// [`next_record`](Self::next_record) does not read.
    ///
    /// # Errors
    /// The file cannot be read or decompressed; the stream then ends.
    pub fn fill(&mut self) -> Result<()> {
        let filled = self.try_fill();
        self.ended |= filled.is_err();
        filled
    }

    fn try_fill(&mut self) -> Result<()> {
        if !self.buffer_ahead(HEADER_BYTES as u64)? {
            return Ok(());
        }
        let Some(length) = self.ahead().first_chunk().and_then(|h| framing::parse_header(h).ok()) else {
            return Ok(()); // `next_record` reports the error
        };
        let Some(whole) = length.checked_add(OVERHEAD_BYTES).filter(|_| length <= self.most_bytes) else {
            return Ok(());
        };
        if let Source::Plain(input) = &self.source {
            let known = input.left()?;
            if known.is_some_and(|left| whole > self.ahead().len() as u64 + left) {
                return Ok(());
            }
        }
        self.buffer_ahead(whole)?;
        Ok(())
    }

    /// Return the next record, or None at the end of the file. After an error there are no more records.
    ///
    /// # Errors
    /// A record is damaged or partial; the error has path, record number and offset (of the uncompressed bytes).
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
                Err(e.at(self.source.input().path()).record(self.record).offset(offset))
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
        if length > self.most_bytes {
            let most = self.most_bytes;
            return Err(Error::new(Kind::Budget, format!("{length} bytes long, {most} may be read")));
        }
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

    /// Buffers at least `want` bytes; returns false if the file ends before.
    fn buffer_ahead(&mut self, want: u64) -> Result<bool> {
        while (self.ahead().len() as u64) < want {
            self.buf.drain(..self.start);
            self.base += self.start as u64;
            self.start = 0;
            // Doubled, so that a large record takes few reads, but no more than needed.
            let missing = want - self.buf.len() as u64;
            let step = missing.min(self.buf.len() as u64).max(BLOCK_BYTES as u64) as usize;
            if self.source.read_into(&mut self.buf, step)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[derive(Debug)]
enum Source {
    Plain(Input),
    Compressed(Decompressor),
}

impl Source {
    fn input(&self) -> &Input {
        match self {
            Self::Plain(input) => input,
            Self::Compressed(decompressor) => decompressor.input(),
        }
    }

    /// Append up to about `step` bytes; 0 is the end.
    fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        match self {
            Self::Plain(input) => input.read_into(out, step),
            Self::Compressed(decompressor) => decompressor.read_into(out, step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::descriptor_pool::VirtualFile;
    use crate::scratch::Scratch;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<Error>) {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = Scratch::new(&format!("stream-{serial}"));
        let path = folder.join("x");
        std::fs::write(&path, bytes).unwrap();
        let mut stream = RecordStream::open(Input::file(VirtualFile::new(&path)), None, true).unwrap();
        let mut records = Vec::new();
        let error = loop {
            match stream.next_record() {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        assert!(matches!(stream.next_record(), Ok(None)), "no record follows the end");
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

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(bytes, level)
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    const LENGTHS: [usize; 7] = [0, 5, 300_000, 17, 1_000_000, 0, 3];

    #[test]
    fn every_compression_gives_the_same_records() {
        let (bytes, records) = frames(&LENGTHS);
        let (a, b) = bytes.split_at(bytes.len() / 3);
        for packed in [
            bytes.clone(),
            gzip(&bytes),
            zlib(&bytes),
            [gzip(a), gzip(b)].concat(),
            [gzip(a), gzip(b""), gzip(b)].concat(),
            [zlib(a), zlib(b)].concat(),
            zstd(&bytes),
            [zstd(a), b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(b)].concat(),
        ] {
            let (got, error) = read(&packed);
            assert_eq!(error, None);
            assert!(got == records);
        }
        assert_eq!(read(b"").0.len(), 0);
        assert_eq!(read(&gzip(b"")).1, None);
    }

    #[test]
    fn every_truncated_compressed_file_is_an_error() {
        let (bytes, _) = frames(&[20, 30]);
        for packed in [gzip(&bytes), zlib(&bytes), zstd(&bytes)] {
            for cut in 1..packed.len() {
                let (_, error) = read(&packed[..cut]);
                // A first byte or two are not yet recognised as gzip: then it is a partial header.
                assert_eq!(error.unwrap().kind, Kind::Truncated, "cut at {cut} of {}", packed.len());
            }
        }
    }

    #[test]
    fn trailing_bytes_are_an_error() {
        let (bytes, records) = frames(&[20, 30]);
        for tail in [&b"\0"[..], b"garbage", &[0; 4096]] {
            for packed in [bytes.clone(), gzip(&bytes), zlib(&bytes), zstd(&bytes)] {
                let (got, error) = read(&[&packed, tail].concat());
                assert!(error.is_some(), "{tail:?}");
                assert_eq!(got, records);
            }
        }
    }

    #[test]
    fn a_record_above_the_limit_is_not_read() {
        let (bytes, records) = frames(&[20, 3_000_000]);
        for packed in [bytes.clone(), gzip(&bytes), zlib(&bytes), zstd(&bytes)] {
            let folder = Scratch::new("stream-limit");
            let path = folder.join("x");
            std::fs::write(&path, packed).unwrap();
            let mut stream = RecordStream::open(Input::file(VirtualFile::new(&path)), None, true).unwrap();
            stream.limit(1000);
            assert_eq!(stream.next_record().unwrap(), Some(records[0].as_slice()));
            let error = stream.next_record().unwrap_err();
            assert_eq!((error.kind, error.record), (Kind::Budget, Some(1)));
            assert!(stream.buf.capacity() < 2_000_000);
            assert!(matches!(stream.next_record(), Ok(None)));
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let (mut bytes, _) = frames(&[5]);
        bytes.extend_from_slice(&framing::header(1 << 40));
        bytes.extend_from_slice(&[1; 100]);
        for packed in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
            let (got, error) = read(&packed);
            assert_eq!(got.len(), 1);
            let error = error.unwrap();
            assert_eq!((error.kind, error.record, error.offset_bytes), (Kind::Truncated, Some(1), Some(21)));
        }
    }
}
