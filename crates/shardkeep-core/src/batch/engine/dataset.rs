//! Shards with their indexes, as one sequence of global record numbers.
#![deny(clippy::indexing_slicing)]

use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Result, try_resize};
use crate::io::descriptor_pool::VirtualFile;
use crate::record::framing::OVERHEAD_BYTES;
use crate::record::positions::Positions;

/// Largest size of a shard whose content is kept, and of all that is kept. If a data set has more shards than there are
/// descriptors, a small shard is read whole when it is read again: to open it for each of its records, as a shuffled order
/// would, takes longer than to read them all.
const KEPT_SHARD_BYTES: u64 = 64 << 10;
const KEPT_BYTES: u64 = 64 << 20;

/// A file and the offsets of its frames.
#[derive(Debug)]
pub struct Shard {
    pub file: VirtualFile,
    positions: Positions,
    content: OnceLock<Vec<u8>>,
}

impl Shard {
    #[must_use]
    pub fn packed(file: VirtualFile, positions: Positions) -> Self {
        Self { file, positions, content: OnceLock::new() }
    }

    /// # Errors
    /// The offsets do not ascend.
    pub fn new(file: VirtualFile, starts: &[u64]) -> Result<Self> {
        let positions = Positions::of(starts).map_err(|e| e.at(file.path()))?;
        Ok(Self::packed(file, positions))
    }
}

/// All shards of a data set, in order; records are numbered through all of them.
#[derive(Debug)]
pub struct Dataset {
    shards: Vec<Shard>,
    /// Global number of the first record of each shard, then the number of all records.
    firsts: Vec<u64>,
    /// Global numbers, ascending, of byte ranges without a frame that the index counts as records.
    holes: Vec<u64>,
    /// Number of bytes of contents that may still be kept.
    free_bytes: AtomicU64,
}

/// Location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSpan {
    pub shard: usize,
    /// Record number in its shard.
    pub index: u64,
    /// Offset of the frame.
    pub start: u64,
    /// Offset after the frame.
    pub end: u64,
    /// True for a byte range without a frame, which is not read.
    pub hole: bool,
}

impl RecordSpan {
    /// Size of the frame; 0 for a hole.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        if self.hole { 0 } else { self.end - self.start }
    }

    /// Size of the payload; 0 for a hole.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.frame_bytes().saturating_sub(OVERHEAD_BYTES)
    }
}

impl Dataset {
    #[must_use]
    pub fn new(shards: Vec<Shard>) -> Self {
        Self::with_holes(shards, Vec::new())
    }

    /// As [`new`](Self::new), for damaged files. `holes` are the global numbers, ascending, of byte ranges without a frame,
    /// each of which the index counts as one record.
    #[must_use]
    pub fn with_holes(shards: Vec<Shard>, holes: Vec<u64>) -> Self {
        let mut firsts = vec![0_u64];
        let mut total = 0_u64;
        for shard in &shards {
            total += shard.positions.records();
            firsts.push(total);
        }
        Self { shards, firsts, holes, free_bytes: AtomicU64::new(KEPT_BYTES) }
    }

    #[must_use]
    pub fn records(&self) -> u64 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Fill `bufs` from byte `offset` of a shard; return less than their length only at its end.
    ///
    /// # Errors
    /// As [`VirtualFile::read_whole_at`].
    pub(super) fn read(&self, shard: &Shard, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let content = match shard.content.get() {
            None if shard.file.may_be_closed() => self.keep(shard),
            content => content,
        };
        let Some(content) = content else { return shard.file.read_whole_at(bufs, offset) };
        let mut rest = usize::try_from(offset).ok().and_then(|at| content.get(at..)).unwrap_or_default();
        let before = rest.len();
        for buf in bufs {
            let (now, later) = rest.split_at(buf.len().min(rest.len()));
            if let Some(room) = buf.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            rest = later;
        }
        Ok(before - rest.len())
    }

    /// Read a small shard whole. None if it is not small, if too much is kept already, or if it cannot be read, which
    /// the read of a record reports.
    #[cold]
    #[allow(deprecated, reason = "the new name of fetch_update, try_update, needs Rust 1.95")]
    fn keep<'s>(&self, shard: &'s Shard) -> Option<&'s Vec<u8>> {
        let bytes = shard.positions.size_bytes();
        if bytes > KEPT_SHARD_BYTES {
            return None;
        }
        let less = |free: u64| free.checked_sub(bytes);
        self.free_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        if Self::read_whole(shard, bytes).is_none_or(|content| shard.content.set(content).is_err()) {
            self.free_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        shard.content.get()
    }

    fn read_whole(shard: &Shard, bytes: u64) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        try_resize(&mut content, usize::try_from(bytes).ok()?).ok()?;
        let got = shard.file.read_whole_at(&mut [IoSliceMut::new(&mut content)], 0).ok()?;
        content.truncate(got);
        Some(content)
    }

    #[must_use]
    pub fn shard(&self, number: usize) -> Option<&Shard> {
        self.shards.get(number)
    }

    /// Locate a record by its global number. `near` is the shard to try first. Returns None for a number that does not exist,
    /// or a frame that is shorter than an empty one.
    #[must_use]
    #[inline]
    pub fn locate(&self, record: u64, near: usize) -> Option<RecordSpan> {
        let holds = |shard: usize| {
            let (first, next) = (self.firsts.get(shard)?, self.firsts.get(shard + 1)?);
            (*first <= record && record < *next).then_some(())
        };
        let shard = match holds(near) {
            Some(()) => near,
            // The last shard whose first record is not after `record`; empty shards are passed over.
            None => self.firsts.partition_point(|first| *first <= record).checked_sub(1)?,
        };
        let index = record - self.firsts.get(shard)?;
        let (start, end) = self.shards.get(shard)?.positions.frame(index)?;
        let hole = !self.holes.is_empty() && self.holes.binary_search(&record).is_ok();
        let least = if hole { 1 } else { OVERHEAD_BYTES };
        (end.checked_sub(start)? >= least).then_some(RecordSpan { shard, index, start, end, hole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(starts: &[u64]) -> Shard {
        Shard::new(VirtualFile::new("x"), starts).unwrap()
    }

    fn dataset(counts: &[u64]) -> Dataset {
        Dataset::new(counts.iter().map(|n| shard(&(0..=*n).map(|i| i * 20).collect::<Vec<u64>>())).collect())
    }

    #[test]
    fn records_are_located_with_any_first_shard() {
        let data = dataset(&[0, 3, 0, 0, 1, 5, 0]);
        assert_eq!(data.records(), 9);
        let want = [(1, 0), (1, 1), (1, 2), (4, 0), (5, 0), (5, 1), (5, 2), (5, 3), (5, 4)];
        for near in 0..9 {
            for (record, (shard, index)) in want.iter().enumerate() {
                let span = data.locate(record as u64, near).unwrap();
                assert_eq!((span.shard, span.index), (*shard, *index));
                assert_eq!((span.start, span.payload_bytes()), (index * 20, 4));
            }
            assert_eq!(data.locate(9, near), None);
        }
    }

    #[test]
    fn an_impossible_index_is_refused() {
        for starts in [vec![], vec![0, 20, 20], vec![20, 0]] {
            assert!(Shard::new(VirtualFile::new("x"), &starts).is_err());
        }
        assert_eq!(Dataset::new(vec![shard(&[0, 15])]).locate(0, 0), None);
    }

    #[test]
    fn holes_have_any_length_and_no_payload() {
        let shards = || vec![shard(&[0, 20]), shard(&[0, 20, 23, 43])];
        assert_eq!(Dataset::new(shards()).locate(2, 0), None);
        assert_eq!(Dataset::with_holes(shards(), vec![1]).locate(2, 0), None);
        let data = Dataset::with_holes(shards(), vec![2]);
        let spans: Vec<RecordSpan> = (0..4).map(|record| data.locate(record, 0).unwrap()).collect();
        assert_eq!(spans.iter().map(|p| p.hole).collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!((spans[2].start, spans[2].end, spans[2].payload_bytes()), (20, 23, 0));
    }
}
