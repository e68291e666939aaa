//! Shards with their indexes, as one sequence of global record numbers.
#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::io::descriptor_pool::VirtualFile;
use crate::record::framing::OVERHEAD_BYTES;

/// A file and the offsets of its frames (`records + 1` of them, see [`crate::record::scan`]).
#[derive(Debug)]
pub struct Shard {
    pub file: VirtualFile,
    pub starts: Vec<u64>,
}

/// All shards of a data set, in order; records are numbered through all of them.
#[derive(Debug)]
pub struct Dataset {
    shards: Vec<Shard>,
    /// Global number of the first record of each shard, then the number of all records.
    firsts: Vec<u64>,
    /// Global numbers, ascending, of byte ranges without a frame that the index counts as records.
    holes: Vec<u64>,
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
    /// # Errors
    /// The offsets of an index do not ascend by at least the size of an empty frame.
    pub fn new(shards: Vec<Shard>) -> Result<Self> {
        Self::with_holes(shards, Vec::new())
    }

    /// As [`new`](Self::new), for damaged files. `holes` are the global numbers, ascending, of byte ranges without a frame,
    /// each of which the index counts as one record.
    ///
    /// # Errors
    /// As [`new`](Self::new); a hole may have any length except 0.
    pub fn with_holes(shards: Vec<Shard>, holes: Vec<u64>) -> Result<Self> {
        let mut firsts = vec![0_u64];
        let mut total = 0_u64;
        for shard in &shards {
            let least = |record: usize| {
                let hole = !holes.is_empty() && holes.binary_search(&(total + record as u64)).is_ok();
                if hole { 1 } else { OVERHEAD_BYTES }
            };
            let ascends = shard.starts.windows(2).enumerate().all(
                |(i, w)| matches!(w, [a, b] if b.checked_sub(*a).is_some_and(|n| n >= OVERHEAD_BYTES || n >= least(i))),
            );
            if shard.starts.is_empty() || !ascends {
                return Err(Error::internal("the offsets of an index do not ascend").at(shard.file.path()));
            }
            total += shard.starts.len() as u64 - 1;
            firsts.push(total);
        }
        Ok(Self { shards, firsts, holes })
    }

    #[must_use]
    pub fn records(&self) -> u64 {
        self.firsts.last().copied().unwrap_or(0)
    }

    #[must_use]
    pub fn shard(&self, number: usize) -> Option<&Shard> {
        self.shards.get(number)
    }

    /// Locate a record by its global number. `near` is the shard to try first.
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
        let starts = &self.shards.get(shard)?.starts;
        let at = usize::try_from(index).ok()?;
        let hole = !self.holes.is_empty() && self.holes.binary_search(&record).is_ok();
        Some(RecordSpan { shard, index, start: *starts.get(at)?, end: *starts.get(at + 1)?, hole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(counts: &[u64]) -> Result<Dataset> {
        let shard =
            |n: &u64| Shard { file: VirtualFile::new("x"), starts: (0..=*n).map(|i| i * 20).collect() };
        Dataset::new(counts.iter().map(shard).collect())
    }

    #[test]
    fn records_are_located_with_any_first_shard() {
        let data = dataset(&[0, 3, 0, 0, 1, 5, 0]).unwrap();
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
        for starts in [vec![], vec![0, 15], vec![0, 20, 20], vec![20, 0]] {
            assert!(Dataset::new(vec![Shard { file: VirtualFile::new("x"), starts }]).is_err());
        }
    }

    #[test]
    fn holes_have_any_length_and_no_payload() {
        let shards = |starts: &[&[u64]]| {
            starts
                .iter()
                .map(|s| Shard { file: VirtualFile::new("x"), starts: s.to_vec() })
                .collect::<Vec<_>>()
        };
        let starts: [&[u64]; 2] = [&[0, 20], &[0, 20, 23, 43]];
        assert!(Dataset::new(shards(&starts)).is_err());
        assert!(Dataset::with_holes(shards(&starts), vec![1]).is_err());
        let data = Dataset::with_holes(shards(&starts), vec![2]).unwrap();
        let spans: Vec<RecordSpan> = (0..4).map(|record| data.locate(record, 0).unwrap()).collect();
        assert_eq!(spans.iter().map(|p| p.hole).collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!((spans[2].start, spans[2].end, spans[2].payload_bytes()), (20, 23, 0));
        assert!(Dataset::with_holes(shards(&[&[0, 0]]), vec![0]).is_err());
    }
}
