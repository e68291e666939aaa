//! Shards with their indexes, seen as one row of global record numbers.
#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::fdpool::VirtualFile;
use crate::framing::OVERHEAD_BYTES;

/// A file and where its frames start (`records + 1` offsets, see [`crate::scan`]).
#[derive(Debug)]
pub struct Shard {
    pub file: VirtualFile,
    pub starts: Vec<u64>,
}

/// All shards of a data set, in order: record numbers run through them.
#[derive(Debug)]
pub struct Dataset {
    shards: Vec<Shard>,
    /// The global number of the first record of each shard, and at the end the number of records.
    firsts: Vec<u64>,
    /// Global numbers, ascending, of what the index counts as a record although no frame was made out there.
    holes: Vec<u64>,
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub shard: usize,
    /// Record number inside its shard.
    pub index: u64,
    /// Where its frame starts.
    pub start: u64,
    /// Where its frame ends.
    pub end: u64,
    /// There is no frame, only bytes: nothing is read.
    pub hole: bool,
}

impl Place {
    /// Bytes of the frame; none of a hole.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        if self.hole { 0 } else { self.end - self.start }
    }

    /// Bytes of the payload; none of a hole.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.frame_bytes().saturating_sub(OVERHEAD_BYTES)
    }
}

impl Dataset {
    /// # Errors
    /// An index whose offsets do not ascend by at least an empty frame, so that nothing read through it
    /// could be right.
    pub fn new(shards: Vec<Shard>) -> Result<Self> {
        Self::with_holes(shards, Vec::new())
    }

    /// As [`new`](Self::new), of damaged files: `holes` are the global numbers, ascending, of stretches of bytes
    /// without a frame, which the index counts as one record each.
    ///
    /// # Errors
    /// As [`new`](Self::new); a hole may be of any length but nothing.
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
                return Err(Error::internal("an index whose offsets do not ascend").at(shard.file.path()));
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

    /// Find a record by its global number. `near` is the shard to try first.
    #[must_use]
    #[inline]
    pub fn locate(&self, record: u64, near: usize) -> Option<Place> {
        let holds = |shard: usize| {
            let (first, next) = (self.firsts.get(shard)?, self.firsts.get(shard + 1)?);
            (*first <= record && record < *next).then_some(())
        };
        let shard = match holds(near) {
            Some(()) => near,
            // The last shard whose first record is not beyond; shards without records are passed over.
            None => self.firsts.partition_point(|first| *first <= record).checked_sub(1)?,
        };
        let index = record - self.firsts.get(shard)?;
        let starts = &self.shards.get(shard)?.starts;
        let at = usize::try_from(index).ok()?;
        let hole = !self.holes.is_empty() && self.holes.binary_search(&record).is_ok();
        Some(Place { shard, index, start: *starts.get(at)?, end: *starts.get(at + 1)?, hole })
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
    fn every_record_is_found_whatever_shard_is_tried_first() {
        let data = dataset(&[0, 3, 0, 0, 1, 5, 0]).unwrap();
        assert_eq!(data.records(), 9);
        let want = [(1, 0), (1, 1), (1, 2), (4, 0), (5, 0), (5, 1), (5, 2), (5, 3), (5, 4)];
        for near in 0..9 {
            for (record, (shard, index)) in want.iter().enumerate() {
                let place = data.locate(record as u64, near).unwrap();
                assert_eq!((place.shard, place.index), (*shard, *index));
                assert_eq!((place.start, place.payload_bytes()), (index * 20, 4));
            }
            assert_eq!(data.locate(9, near), None);
        }
    }

    #[test]
    fn an_index_that_cannot_be_right_is_refused() {
        for starts in [vec![], vec![0, 15], vec![0, 20, 20], vec![20, 0]] {
            assert!(Dataset::new(vec![Shard { file: VirtualFile::new("x"), starts }]).is_err());
        }
    }

    #[test]
    fn holes_have_any_length_and_nothing_to_read() {
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
        let places: Vec<Place> = (0..4).map(|record| data.locate(record, 0).unwrap()).collect();
        assert_eq!(places.iter().map(|p| p.hole).collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!((places[2].start, places[2].end, places[2].payload_bytes()), (20, 23, 0));
        assert!(Dataset::with_holes(shards(&[&[0, 0]]), vec![0]).is_err());
    }
}
