//! Frames into a descriptor, plain or compressed.
//!
//! The writer neither opens nor closes nor syncs: who publishes a file durably owns the descriptor.
//! Several frames go into one `write`, since a system call a record would dominate.
#![deny(clippy::indexing_slicing)]

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::PathBuf;

use flate2::write::{GzEncoder, ZlibEncoder};
use ruzstd::encoding;

use crate::error::{Error, Result};
use crate::record::framing;
use crate::record::stream::Compression;

const FLUSH_BYTES: usize = 1 << 20;
/// Damage of a frame with a checksum is found after at most so many bytes.
const ZSTD_FRAME_BYTES: usize = 4 << 20;

/// Writes records into a descriptor that the caller owns.
#[derive(Debug)]
pub struct FrameWriter {
    fd: RawFd,
    path: PathBuf,
    sink: Sink,
    /// Bytes handed to the operating system.
    written: u64,
    records: u64,
}

#[derive(Debug)]
enum Sink {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
    /// Frames of one block of records each.
    Zstd {
        records: Vec<u8>,
        packed: Vec<u8>,
    },
}

impl FrameWriter {
    /// `path` is for messages only; `level` is 0 to 9, for gzip and zlib.
    #[must_use]
    pub fn new(fd: RawFd, path: impl Into<PathBuf>, compression: Compression, level: u32) -> Self {
        let level = flate2::Compression::new(level.min(9));
        let sink = match compression {
            Compression::None => Sink::Plain(Vec::new()),
            Compression::Gzip => Sink::Gzip(GzEncoder::new(Vec::new(), level)),
            Compression::Zlib => Sink::Zlib(ZlibEncoder::new(Vec::new(), level)),
            Compression::Zstd => Sink::Zstd { records: Vec::new(), packed: Vec::new() },
        };
        Self { fd, path: path.into(), sink, written: 0, records: 0 }
    }

    /// Records written so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes handed to the operating system so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Write one record; the bytes may stay in memory until [`flush`](Self::flush).
    ///
    /// # Errors
    /// The operating system cannot write. The file is incomplete then.
    pub fn write(&mut self, payload: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Plain(buf) => framing::push(buf, payload),
            Sink::Gzip(encoder) => pack(encoder, payload).map_err(|e| failed(&e, &self.path))?,
            Sink::Zlib(encoder) => pack(encoder, payload).map_err(|e| failed(&e, &self.path))?,
            Sink::Zstd { records, packed } => {
                framing::push(records, payload);
                if records.len() >= ZSTD_FRAME_BYTES {
                    pack_zstd(records, packed);
                }
            }
        }
        self.records += 1;
        if self.buffer().len() >= FLUSH_BYTES { self.drain() } else { Ok(()) }
    }

    /// Hand everything to the operating system. Compressed bytes that the compressor still holds come
    /// with [`finish`](Self::finish).
    ///
    /// # Errors
    /// The operating system cannot write.
    pub fn flush(&mut self) -> Result<()> {
        self.drain()
    }

    /// Write the trailer of a compressed stream, and everything else.
    ///
    /// # Errors
    /// The operating system cannot write.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Plain(_) => {}
            Sink::Gzip(encoder) => encoder.try_finish().map_err(|e| failed(&e, &self.path))?,
            Sink::Zlib(encoder) => encoder.try_finish().map_err(|e| failed(&e, &self.path))?,
            // Without records too: an empty file is not a zstd file.
            Sink::Zstd { records, packed } if !records.is_empty() || self.records == 0 => {
                pack_zstd(records, packed);
            }
            Sink::Zstd { .. } => {}
        }
        self.drain()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        match &mut self.sink {
            Sink::Plain(buf) => buf,
            Sink::Gzip(encoder) => encoder.get_mut(),
            Sink::Zlib(encoder) => encoder.get_mut(),
            Sink::Zstd { packed, .. } => packed,
        }
    }

    fn drain(&mut self) -> Result<()> {
        let fd = self.fd;
        let buf = self.buffer();
        let mut done = 0;
        let mut result = Ok(());
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            // SAFETY: `rest` is readable for `rest.len()` bytes; the owner keeps the descriptor open.
            let n = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(n) {
                Ok(n) => done += n,
                Err(_) => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        result = Err(e);
                        break;
                    }
                }
            }
        }
        buf.drain(..done);
        self.written += done as u64;
        result.map_err(|e| failed(&e, &self.path))
    }
}

fn pack(encoder: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    encoder.write_all(&framing::header(payload.len() as u64))?;
    encoder.write_all(payload)?;
    encoder.write_all(&framing::footer(payload))
}

fn pack_zstd(records: &mut Vec<u8>, packed: &mut Vec<u8>) {
    encoding::compress(records.as_slice(), &mut *packed, encoding::CompressionLevel::Fastest);
    records.clear();
}

#[cold]
fn failed(error: &io::Error, path: &std::path::Path) -> Error {
    Error::os(error, "write", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::descriptor_pool::VirtualFile;
    use crate::record::stream::{Input, RecordStream};
    use crate::scratch::Scratch;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_written_is_read_back() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zlib, Compression::Zstd] {
            let folder = Scratch::new("writer");
            let path = folder.join("x");
            let file = std::fs::File::create(&path).unwrap();
            let mut writer = FrameWriter::new(file.as_raw_fd(), &path, compression, 6);
            let records: Vec<Vec<u8>> = (0..300).map(|i| vec![i as u8; i * 40]).collect();
            for record in &records {
                writer.write(record).unwrap();
            }
            writer.finish().unwrap();
            assert_eq!(writer.written(), file.metadata().unwrap().len());
            let mut stream = RecordStream::open(Input::file(VirtualFile::new(&path)), None, true).unwrap();
            assert_eq!(stream.compression(), compression);
            for record in &records {
                assert_eq!(stream.next_record().unwrap().unwrap(), record);
            }
            assert!(stream.next_record().unwrap().is_none());
        }
    }

    #[test]
    fn a_full_device_is_an_error_of_the_operating_system() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer = FrameWriter::new(full.as_raw_fd(), "/dev/full", Compression::None, 6);
        writer.write(b"abc").unwrap();
        assert_eq!(writer.flush().unwrap_err().errno, Some(libc::ENOSPC));
    }
}
