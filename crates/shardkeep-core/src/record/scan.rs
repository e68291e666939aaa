//! Scans for the start offsets of frames, the index of random access and plans.
#![deny(clippy::indexing_slicing)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Kind, Result};
use crate::io::descriptor_pool::VirtualFile;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

/// Large enough that the time of a system call is negligible, small enough for the L2 cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Payloads from here on are stepped over instead of read, when they need not be verified.
const HOP_BYTES: u64 = 16 << 10;

/// Where each frame of `file` starts, and at the end where the file does: `records + 1` offsets.
///
/// Every header's checksum is checked, since a wrong length would lead astray; payloads are checked
/// only if `verify`.
///
/// # Errors
/// Damage or a partial record at the end, with record number and offset.
pub fn frame_starts(file: &VirtualFile, verify: bool) -> Result<Vec<u64>> {
    frame_starts_of_part(file, 0, 0, u64::MAX, verify)
}

/// [`frame_starts`] of a part: from the frame of number `first` at byte `from` up to the first frame that
/// does not start before `until`; its start, or the end of the file, is the last offset.
///
/// # Errors
/// As [`frame_starts`]; or the file ends before `from`.
pub fn frame_starts_of_part(
    file: &VirtualFile,
    from: u64,
    first: u64,
    until: u64,
    verify: bool,
) -> Result<Vec<u64>> {
    let size = file.size()?;
    if from > size {
        return Err(Error::new(Kind::Changed, "the file became shorter").at(file.path()).offset(size));
    }
    let mut window = Window { file, size, base: from, buf: Vec::new() };
    let mut starts = vec![from];
    let mut at = from;
    while at < size.min(until) {
        let known = starts.len();
        at = right_frames(window.loaded(at), at, until, verify, &mut starts);
        if starts.len() > known {
            continue;
        }
        let record = first + (starts.len() as u64 - 1);
        let place = |e: Error| e.at(file.path()).record(record).offset(at);
        let rest = size - at;
        if rest < HEADER_BYTES as u64 {
            return Err(place(framing::truncated("a record header", rest, HEADER_BYTES as u64)));
        }
        let bytes = window.get(at, HEADER_BYTES)?;
        let header = bytes.first_chunk().ok_or_else(|| Error::internal("a window shorter than asked for"))?;
        let length = framing::parse_header(header).map_err(place)?;
        let whole = length.checked_add(OVERHEAD_BYTES).filter(|whole| *whole <= rest);
        let Some(whole) = whole else {
            return Err(place(framing::truncated(
                "a record",
                rest - HEADER_BYTES as u64,
                length.saturating_add(FOOTER_BYTES as u64),
            )));
        };
        if verify {
            let frame = window.get(at, usize::try_from(whole).map_err(|_| too_large(file, record, at))?)?;
            let (body, footer) =
                frame.split_last_chunk().ok_or_else(|| Error::internal("a frame without a footer"))?;
            let payload = body.get(HEADER_BYTES..).unwrap_or_default();
            framing::check_payload(payload, *footer).map_err(place)?;
        }
        at += whole;
        starts.push(at);
    }
    Ok(starts)
}

/// Step over the whole and right frames of `bytes`, which lie at `at`, and return where the next one starts.
///
/// It stops at a frame that is cut or damaged, which the caller examines and describes.
fn right_frames(mut bytes: &[u8], mut at: u64, until: u64, verify: bool, starts: &mut Vec<u64>) -> u64 {
    while at < until
        && let Some((header, rest)) = bytes.split_first_chunk()
        && let Some(length) = framing::length_of(header)
        && let Some((payload, rest)) =
            usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
        && let Some((footer, rest)) = rest.split_first_chunk()
        && (!verify || framing::check_payload(payload, *footer).is_ok())
    {
        at += length + OVERHEAD_BYTES;
        starts.push(at);
        bytes = rest;
    }
    at
}

/// [`frame_starts`] of several files, by `threads` threads; the first error of the lowest file wins.
///
/// # Errors
/// As [`frame_starts`].
pub fn frame_starts_of(files: &[VirtualFile], verify: bool, threads: usize) -> Result<Vec<Vec<u64>>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<Result<Vec<u64>>>>> = Mutex::new((0..files.len()).map(|_| None).collect());
    let work = || {
        while let Some((i, file)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            files.get(i).map(|file| (i, file))
        } {
            let starts = frame_starts(file, verify);
            if let Ok(mut found) = found.lock()
                && let Some(place) = found.get_mut(i)
            {
                *place = Some(starts);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, files.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().map_err(|_| Error::internal("a scanning thread died"))?;
    found
        .into_iter()
        .map(|one| one.unwrap_or_else(|| Err(Error::internal("a file was not scanned"))))
        .collect()
}

#[cold]
fn too_large(file: &VirtualFile, record: u64, at: u64) -> Error {
    Error::new(Kind::Corrupt, "a record larger than the address space")
        .at(file.path())
        .record(record)
        .offset(at)
}

/// A part of the file in memory.
struct Window<'a> {
    file: &'a VirtualFile,
    size: u64,
    base: u64,
    buf: Vec<u8>,
}

impl Window<'_> {
    /// Return the bytes in memory from `at` on.
    fn loaded(&self, at: u64) -> &[u8] {
        at.checked_sub(self.base)
            .and_then(|from| self.buf.get(usize::try_from(from).ok()?..))
            .unwrap_or_default()
    }

    /// Return `want` bytes at `at`, which must be inside the file.
    fn get(&mut self, at: u64, want: usize) -> Result<&[u8]> {
        let end = at + want as u64;
        if at < self.base || end > self.base + self.buf.len() as u64 {
            // After a hop over a large payload only a header is wanted: read little.
            let hop = at > self.base + self.buf.len() as u64 + HOP_BYTES;
            let block = if hop { 4096 } else { BLOCK_BYTES };
            let length = (self.size - at).min(block.max(want) as u64) as usize;
            self.buf.resize(length, 0);
            self.base = at;
            let got = self.file.read_at(&mut self.buf, at)?;
            self.buf.truncate(got);
        }
        let from = (at - self.base) as usize;
        self.buf.get(from..from + want).ok_or_else(|| {
            Error::new(Kind::Changed, "the file became shorter while it was being read")
                .at(self.file.path())
                .offset(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn scan(bytes: &[u8], verify: bool) -> Result<Vec<u64>> {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = Scratch::new(&format!("scan-{serial}"));
        let path = folder.join("x");
        std::fs::write(&path, bytes).unwrap();
        frame_starts(&VirtualFile::new(&path), verify)
    }

    fn file(lengths: &[usize]) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for (i, length) in lengths.iter().enumerate() {
            framing::push(&mut bytes, &vec![i as u8; *length]);
            starts.push(bytes.len() as u64);
        }
        (bytes, starts)
    }

    #[test]
    fn sizes_around_the_block_and_the_hop() {
        let block = BLOCK_BYTES;
        for lengths in [
            vec![],
            vec![0],
            vec![0, 1, 0],
            vec![block - 16, 3, block - 15, block - 17, block, 2 * block + 1, 0, 5],
            vec![40_000; 30],
        ] {
            let (bytes, starts) = file(&lengths);
            assert_eq!(scan(&bytes, true).unwrap(), starts);
            assert_eq!(scan(&bytes, false).unwrap(), starts);
        }
    }

    #[test]
    fn parts_join_to_the_whole() {
        let (bytes, starts) = file(&[5, 0, 300_000, 7, 20_000, 1]);
        let folder = Scratch::new("scan-parts");
        let path = folder.join("x");
        std::fs::write(&path, &bytes).unwrap();
        let shard = VirtualFile::new(&path);
        for step in [1, 17, 100_000, u64::MAX] {
            let mut joined = vec![0];
            while let Some(at) = joined.last().copied().filter(|at| *at < bytes.len() as u64) {
                let until = at.saturating_add(step);
                let part = frame_starts_of_part(&shard, at, joined.len() as u64 - 1, until, true).unwrap();
                assert!(part.len() > 1 && *part.last().unwrap() >= until.min(bytes.len() as u64));
                joined.extend_from_slice(&part[1..]);
            }
            assert_eq!(joined, starts);
        }
        let end = bytes.len() as u64;
        assert_eq!(frame_starts_of_part(&shard, end, 6, u64::MAX, true).unwrap(), [end]);
        let error = frame_starts_of_part(&shard, end - 1, 6, u64::MAX, true).unwrap_err();
        assert_eq!((error.kind, error.record, error.offset_bytes), (Kind::Truncated, Some(6), Some(end - 1)));
        let error = frame_starts_of_part(&shard, end + 1, 6, u64::MAX, true).unwrap_err();
        assert_eq!((error.kind, error.offset_bytes), (Kind::Changed, Some(end)));
    }

    #[test]
    fn every_cut_is_an_error_unless_it_is_between_records() {
        let (bytes, starts) = file(&[5, 0, 7]);
        for cut in 0..bytes.len() {
            let result = scan(&bytes[..cut], false);
            if starts.contains(&(cut as u64)) {
                assert!(result.is_ok());
            } else {
                assert_eq!(result.unwrap_err().kind, Kind::Truncated, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_length_with_a_right_checksum_but_no_bytes_behind_it_allocates_nothing() {
        for length in [1_u64 << 40, u64::MAX, u64::MAX - 15] {
            let (mut bytes, _) = file(&[5]);
            bytes.extend_from_slice(&framing::header(length));
            bytes.extend_from_slice(&[0; 50]);
            let error = scan(&bytes, true).unwrap_err();
            assert_eq!((error.kind, error.record, error.offset_bytes), (Kind::Truncated, Some(1), Some(21)));
        }
    }
}
