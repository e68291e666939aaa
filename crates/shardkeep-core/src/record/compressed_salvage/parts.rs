//! Parts of a damaged file, as they are found.
#![deny(clippy::indexing_slicing)]

use std::collections::VecDeque;

use super::frames::Found;
use crate::error::Result;
use crate::record::writer::FrameWriter;

/// Outcome of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Kept,
    Repaired,
    Lost,
}

/// Part of a file: records with one outcome and reason, or bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub outcome: Outcome,
    pub reason: String,
    /// Number of records.
    pub items: u64,
    /// Range of compressed bytes, where it is known.
    pub start: Option<u64>,
    pub stop: Option<u64>,
    /// Number of the first record; bytes without a recognisable record count as one.
    pub record: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) list: Vec<Part>,
    /// Records that were kept or corrected.
    pub(super) records: u64,
    pub(super) next_record: u64,
    /// Start of the member, before its first record.
    pub(super) begin: Option<u64>,
    /// Damaged blocks of which the decoded bytes come later.
    pub(super) blocks: VecDeque<(u64, u64, String)>,
}

impl Parts {
    /// Add a part of the decoded bytes, and write its record.
    pub(super) fn add(&mut self, found: Found<'_>, writer: &mut Option<&mut FrameWriter>) -> Result<()> {
        if let Found::Whole(payload) | Found::Repaired(payload, _) = &found {
            if let Some(writer) = writer {
                writer.write(payload)?;
            }
            self.records += 1;
        }
        match found {
            Found::Whole(_) => self.add_record(Outcome::Kept, "whole records"),
            Found::Repaired(_, what) => self.add_record(Outcome::Repaired, &what),
            Found::Damaged => self
                .add_record(Outcome::Lost, "the checksum of the payload is wrong by more than a flipped bit"),
            Found::Hole => self.lost("decoded bytes without a recognisable record"),
        }
        Ok(())
    }

    fn add_record(&mut self, outcome: Outcome, reason: &str) {
        if outcome == Outcome::Lost {
            self.flush_blocks();
        }
        let start = self.begin.take();
        match self.list.last_mut() {
            Some(last) if last.outcome == outcome && last.reason == reason => last.items += 1,
            _ => self.list.push(Part {
                outcome,
                reason: reason.to_string(),
                items: 1,
                start: start.filter(|_| outcome == Outcome::Kept),
                stop: None,
                record: Some(self.next_record),
            }),
        }
        self.next_record += 1;
    }

    /// Add decoded bytes in which no record is recognised.
    pub(super) fn lost(&mut self, reason: &str) {
        self.begin = None;
        self.next_record += 1;
        if !self.blocks.is_empty() {
            return self.flush_blocks();
        }
        let record = Some(self.next_record - 1);
        match self.list.last_mut() {
            Some(last) if last.outcome == Outcome::Lost && last.reason == reason => {}
            _ => self.list.push(Part {
                outcome: Outcome::Lost,
                reason: reason.to_string(),
                items: 0,
                start: None,
                stop: None,
                record,
            }),
        }
    }

    /// Add compressed bytes that hold no record.
    pub(super) fn push_bytes(&mut self, outcome: Outcome, start: u64, stop: u64, reason: String) {
        let (start, stop) = (Some(start), Some(stop));
        self.list.push(Part { outcome, reason, items: 0, start, stop, record: None });
    }

    /// Add the damaged blocks, now that their place in the decoded bytes is known.
    pub(super) fn flush_blocks(&mut self) {
        while let Some((start, stop, reason)) = self.blocks.pop_front() {
            self.push_bytes(Outcome::Lost, start, stop, reason);
        }
    }

    /// End the last part, if it has records, at a place in the file.
    pub(super) fn close(&mut self, stop: u64) {
        if let Some(last) = self.list.last_mut()
            && last.outcome == Outcome::Kept
            && last.start.is_some()
        {
            last.stop = Some(stop);
        }
    }
}
