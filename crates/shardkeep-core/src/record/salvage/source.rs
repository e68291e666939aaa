//! The file that is searched: bytes at any offset, and the CRC of any range in constant time.
//!
//! Any four bytes may be the length of a payload, so a search may ask for the CRC of many long ranges that overlap. The CRC of
//! the bytes before each multiple of [`STEP_BYTES`] is kept. The CRC of a range follows from that of two prefixes, so that
//! every byte is read once, whatever the lengths in the file are.
#![deny(clippy::indexing_slicing)]

use std::collections::VecDeque;

use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::io::descriptor_pool::VirtualFile;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

const BLOCK_BYTES: usize = 256 << 10;
pub(super) const STEP_BYTES: u64 = 4096;
/// Shorter ranges are read.
const DIRECT_BYTES: u64 = 16 << 10;

#[derive(Debug)]
pub(super) struct Source {
    file: VirtualFile,
    pub(super) size: u64,
    /// Around the position of the search.
    near: Window,
    /// Where a range ends.
    far: Window,
    /// CRCs of the bytes from `base` to each multiple of `STEP_BYTES` after it.
    marks: VecDeque<u32>,
    base: u64,
    /// Bytes of which a CRC was computed.
    #[cfg(test)]
    pub(super) summed: u64,
}

#[derive(Debug, Default)]
struct Window {
    base: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn get(&self, at: u64, want: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.base)?).ok()?;
        self.bytes.get(from..from.checked_add(want)?)
    }

    fn rest(&self, at: u64) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(at.checked_sub(self.base)?).ok()?..)
    }

    fn load(&mut self, file: &VirtualFile, at: u64, length: usize) -> Result<()> {
        self.bytes.resize(length, 0);
        self.base = at;
        let got = file.read_at(&mut self.bytes, at)?;
        self.bytes.truncate(got);
        Ok(())
    }
}

impl Source {
    pub(super) fn new(file: VirtualFile) -> Result<Self> {
        let size = file.size()?;
        let (near, far) = Default::default();
        Ok(Self {
            file,
            size,
            near,
            far,
            marks: VecDeque::from([0]),
            base: 0,
            #[cfg(test)]
            summed: 0,
        })
    }

    pub(super) fn file(&self) -> &VirtualFile {
        &self.file
    }

    /// Return all bytes in memory from `at`, at least `want`, which must be inside the file.
    pub(super) fn bytes_from(&mut self, at: u64, want: usize) -> Result<&[u8]> {
        if self.near.get(at, want).is_none() {
            let length = self.block(at, BLOCK_BYTES.max(want));
            self.near.load(&self.file, at, length)?;
        }
        self.near.rest(at).filter(|bytes| bytes.len() >= want).ok_or_else(|| changed(&self.file, at))
    }

    /// Return `want` bytes at `at`, which must be inside the file; they need not be near the last ones.
    pub(super) fn far_bytes(&mut self, at: u64, want: usize) -> Result<&[u8]> {
        if self.near.get(at, want).is_none() && self.far.get(at, want).is_none() {
            let length = self.block(at, (STEP_BYTES as usize).max(want));
            self.far.load(&self.file, at, length)?;
        }
        let found = self.near.get(at, want).or_else(|| self.far.get(at, want));
        found.ok_or_else(|| changed(&self.file, at))
    }

    fn block(&self, at: u64, block: usize) -> usize {
        self.size.saturating_sub(at).min(block as u64) as usize
    }

    /// Return the 12 bytes at `at`; None if the file ends before.
    pub(super) fn header(&mut self, at: u64) -> Result<Option<[u8; HEADER_BYTES]>> {
        if at.checked_add(HEADER_BYTES as u64).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        Ok(self.far_bytes(at, HEADER_BYTES)?.first_chunk().copied())
    }

    /// Return the end of the frame of a payload of `length` bytes; None if it is beyond the end of the file.
    pub(super) fn frame_end(&self, at: u64, length: u64) -> Option<u64> {
        at.checked_add(OVERHEAD_BYTES)?.checked_add(length).filter(|end| *end <= self.size)
    }

    /// Return true if the header at `at` has the right checksum.
    pub(super) fn is_header(&mut self, at: u64) -> Result<bool> {
        Ok(self.header(at)?.is_some_and(|header| framing::length_of(&header).is_some()))
    }

    /// Return the CRC of the payload of a frame, and the masked one that is stored after it.
    pub(super) fn sums(&mut self, start: u64, end: u64) -> Result<(u32, u32)> {
        let footer = end - FOOTER_BYTES as u64;
        let computed = self.crc(start + HEADER_BYTES as u64, footer)?;
        let stored = self.far_bytes(footer, FOOTER_BYTES)?.first_chunk().copied().unwrap_or_default();
        Ok((computed, u32::from_le_bytes(stored)))
    }

    /// Return true if the bytes between header and end of a frame are a payload and its checksum.
    pub(super) fn is_payload(&mut self, start: u64, end: u64) -> Result<bool> {
        let (computed, stored) = self.sums(start, end)?;
        Ok(crc::mask(computed) == stored)
    }

    /// Return the CRC of a range.
    pub(super) fn crc(&mut self, from: u64, to: u64) -> Result<u32> {
        let length = to.saturating_sub(from);
        #[cfg(test)]
        {
            self.summed += if length <= DIRECT_BYTES { length } else { 0 };
        }
        if length <= DIRECT_BYTES {
            return Ok(crc::crc32c(self.far_bytes(from, length as usize)?));
        }
        if from < self.base {
            return self.crc_by_reading(from, to);
        }
        let (before, all) = (self.prefix(from)?, self.prefix(to)?);
        Ok(crc::crc32c_shifted(before, length) ^ all)
    }

    /// Forget what ranges that begin before `at` need.
    pub(super) fn forget_before(&mut self, at: u64) {
        let steps = at.saturating_sub(self.base) / STEP_BYTES;
        if steps >= self.marks.len() as u64 {
            self.restart(at);
        } else {
            self.marks.drain(..steps as usize);
            self.base += steps * STEP_BYTES;
        }
    }

    /// Begin again: the next ranges start at `at` or later.
    pub(super) fn restart(&mut self, at: u64) {
        (self.base, self.marks) = (at, VecDeque::from([0]));
    }

    /// Return the CRC of all bytes before `at` since an origin that is the same for all `at`.
    fn prefix(&mut self, at: u64) -> Result<u32> {
        let mut last = self.base + (self.marks.len() as u64 - 1) * STEP_BYTES;
        while at >= last + STEP_BYTES {
            let steps = (at - last).min(BLOCK_BYTES as u64) / STEP_BYTES;
            #[cfg(test)]
            {
                self.summed += steps * STEP_BYTES;
            }
            let mut sum = self.marks.back().copied().unwrap_or_default();
            let mut found = Vec::with_capacity(steps as usize);
            for step in self.far_bytes(last, (steps * STEP_BYTES) as usize)?.chunks(STEP_BYTES as usize) {
                sum = crc::crc32c_after(sum, step);
                found.push(sum);
            }
            self.marks.extend(found);
            last += steps * STEP_BYTES;
        }
        let step = (at - self.base) / STEP_BYTES;
        let before = self.marks.get(step as usize).copied().unwrap_or_default();
        let start = self.base + step * STEP_BYTES;
        #[cfg(test)]
        {
            self.summed += at - start;
        }
        Ok(crc::crc32c_after(before, self.far_bytes(start, (at - start) as usize)?))
    }

    fn crc_by_reading(&mut self, from: u64, to: u64) -> Result<u32> {
        let mut sum = 0;
        let mut at = from;
        while at < to {
            let part = (to - at).min(BLOCK_BYTES as u64);
            sum = crc::crc32c_after(sum, self.far_bytes(at, part as usize)?);
            at += part;
        }
        Ok(sum)
    }
}

#[cold]
fn changed(file: &VirtualFile, at: u64) -> Error {
    Error::new(Kind::Changed, "the file became shorter while it was being read").at(file.path()).offset(at)
}
