//! Whole files for ranks: which rank reads which file, and how far each file is read after some records.
//!
//! `src/shardkeep/plan/file_assignment.py` and `interleave.py` describe the orders; states and receipts depend
//! on them, so a change of a result here needs a new version of the order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Return the rank of each file, -1 for an empty one: largest first, each to the rank with the least bytes so far.
///
/// Equal files are assigned in their order, equal ranks in ascending order.
pub fn balance(sizes: &[i64], world_size: u32) -> Vec<i64> {
    let mut files: Vec<(Reverse<i64>, usize)> = sizes
        .iter()
        .enumerate()
        .filter(|&(_, &size)| size > 0)
        .map(|(file, &size)| (Reverse(size), file))
        .collect();
    files.sort_unstable();
    let mut ranks: BinaryHeap<Reverse<(u64, u32)>> = (0..world_size).map(|rank| Reverse((0, rank))).collect();
    let mut rank_of = vec![-1; sizes.len()];
    for (Reverse(size), file) in files {
        let Some(mut least) = ranks.peek_mut() else { break };
        let Reverse((load, rank)) = &mut *least;
        *load = load.saturating_add(size.unsigned_abs());
        rank_of[file] = i64::from(*rank);
    }
    rank_of
}

/// Slots of one reader, each of which reads one file after another.
#[derive(Debug)]
pub struct Slots {
    /// Slot of each file, and the round that reads its first record.
    pub slot: Vec<i64>,
    pub begin: Vec<i64>,
    /// Round after the last one of each slot.
    pub ends: Vec<i64>,
}

impl Slots {
    /// Distribute files with these numbers of records over at most `most` slots: each to the slot that is free first.
    pub fn new(counts: &[i64], most: usize) -> Self {
        let mut begin = Vec::with_capacity(counts.len());
        let mut slot = Vec::with_capacity(counts.len());
        let first = most.min(counts.len());
        let mut free = BinaryHeap::with_capacity(first);
        for (number, &count) in counts[..first].iter().enumerate() {
            slot.push(number as i64);
            begin.push(0);
            free.push(Reverse((count, number)));
        }
        for &count in &counts[first..] {
            let Some(mut next) = free.peek_mut() else { break };
            let Reverse((end, number)) = &mut *next;
            slot.push(*number as i64);
            begin.push(*end);
            *end = end.saturating_add(count);
        }
        let mut ends = vec![0; first];
        for Reverse((end, number)) in free {
            ends[number] = end;
        }
        Self { slot, begin, ends }
    }

    /// Return how many records of each file are among the first `records` of the interleaved sequence.
    pub fn read_after(&self, counts: &[i64], records: i64) -> Vec<i64> {
        let mut sorted = self.ends.clone();
        sorted.sort_unstable();
        // Whole rounds up to the end of one slot after another, as long as the records suffice.
        let (mut round, mut left, mut busy) = (0_i64, records, self.ends.len() as i64);
        for end in sorted {
            let needed = (end - round).saturating_mul(busy);
            if needed > left {
                break;
            }
            (round, left, busy) = (end, left - needed, busy - 1);
        }
        if busy == 0 {
            return counts.to_vec();
        }
        let (rounds, mut more) = (left / busy, left % busy);
        let reached: Vec<i64> = self
            .ends
            .iter()
            .map(|&end| {
                let extra = i64::from(end > round && more > 0);
                more -= extra;
                end.min(round + rounds) + extra
            })
            .collect();
        let files = counts.iter().zip(&self.slot).zip(&self.begin);
        files.map(|((&count, &slot), &begin)| (reached[slot as usize] - begin).clamp(0, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_to_the_rank_with_the_least_bytes() {
        assert_eq!(balance(&[5, 9, 0, 4], 2), [1, 0, -1, 1]);
        assert_eq!(balance(&[1, 1, 1], 2), [0, 1, 0]);
        assert_eq!(balance(&[i64::MAX; 5], 2), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_file_takes_the_slot_that_is_free_first() {
        let slots = Slots::new(&[3, 1, 2], 2);
        assert_eq!((slots.slot, slots.begin, slots.ends), (vec![0, 1, 1], vec![0, 0, 1], vec![3, 3]));
        assert!(Slots::new(&[], 4).read_after(&[], 0).is_empty());
    }

    #[test]
    fn records_of_the_sequence_are_counted_for_each_file() {
        let counts = [3, 1, 2];
        let slots = Slots::new(&counts, 2);
        // The sequence is a b a c a c.
        let expected = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0], [2, 1, 1], [3, 1, 1], [3, 1, 2]];
        for (records, read) in (0..).zip(expected) {
            assert_eq!(slots.read_after(&counts, records), read);
        }
    }
}
