//! Treatment of damaged records.
#![deny(clippy::indexing_slicing)]

use std::sync::{Mutex, PoisonError};

use super::dataset::{Dataset, RecordSpan};
use crate::error::{Error, Kind, Result};
use crate::record::frame_repair;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES};

/// Effect of a damaged record on its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// The batch fails with an error.
    #[default]
    Raise,
    /// The row stays empty, and a [`Fault`] reports it.
    Skip,
    /// A single flipped bit is corrected, and a [`Fault`] reports it; other damage is treated as by `Raise`.
    Repair,
}

/// A damaged record that did not fail its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Row in the batch.
    pub row: usize,
    /// True if the row has the corrected record; false if it is empty.
    pub repaired: bool,
    /// Byte offsets of the frame in its file.
    pub start: u64,
    pub end: u64,
    /// The damage or the correction, in one line.
    pub what: String,
}

/// Verification and treatment of damage for the rows of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadPolicy<'a> {
    pub(super) data: &'a Dataset,
    pub(super) verify: bool,
    pub(super) on_corrupt: OnCorrupt,
    pub(super) faults: &'a Mutex<Vec<Fault>>,
}

/// The parts of a frame in memory.
#[derive(Debug)]
pub(super) struct Frame<'f> {
    pub(super) header: &'f mut [u8; HEADER_BYTES],
    pub(super) payload: &'f mut [u8],
    pub(super) footer: &'f mut [u8; FOOTER_BYTES],
}

impl ReadPolicy<'_> {
    /// Check a frame and possibly corrects it. Returns false if its row must be skipped.
    #[inline]
    pub(super) fn accept(&self, row: usize, span: &RecordSpan, frame: Frame<'_>) -> Result<bool> {
        match check(&frame, self.verify) {
            Ok(()) => Ok(true),
            Err(error) => self.handle_damage(row, span, frame, error),
        }
    }

    /// Skip the row of a record with the damage `error`, or return the error with its location.
    #[cold]
    pub(super) fn skip(&self, row: usize, span: &RecordSpan, error: Error) -> Result<()> {
        if self.on_corrupt != OnCorrupt::Skip || error.kind != Kind::Corrupt {
            return Err(locate(error, self.data, span));
        }
        self.check_unchanged(span)?;
        self.record_fault(row, span, false, error.message);
        Ok(())
    }

    /// Return the error of a byte range without a frame.
    #[cold]
    pub(super) fn hole(span: &RecordSpan) -> Error {
        let bytes = span.end - span.start;
        Error::new(Kind::Corrupt, format!("{bytes} bytes without a recognisable record: the file is damaged"))
    }

    #[cold]
    fn handle_damage(
        &self,
        row: usize,
        span: &RecordSpan,
        frame: Frame<'_>,
        mut error: Error,
    ) -> Result<bool> {
        if self.on_corrupt == OnCorrupt::Repair && error.kind == Kind::Corrupt {
            self.check_unchanged(span)?;
            if let Some(what) = frame_repair::correct_flipped_bits(frame.header, frame.payload, frame.footer)
            {
                self.record_fault(row, span, true, what);
                return Ok(true);
            }
            error.message.push_str("; it is more than a single flipped bit, so it cannot be repaired");
        }
        self.skip(row, span, error).map(|()| false)
    }

    /// Fail if the file was written since it was opened: apparent damage may be a write of another process.
    fn check_unchanged(&self, span: &RecordSpan) -> Result<()> {
        let written = self.data.shard(span.shard).and_then(|shard| shard.file.written_since_opened());
        written.map_or(Ok(()), |when| {
            let what = format!(
                "the file was written to ({when}) while it was being read; start again when it is complete"
            );
            Err(locate(Error::new(Kind::Changed, what), self.data, span))
        })
    }

    fn record_fault(&self, row: usize, span: &RecordSpan, repaired: bool, what: String) {
        let fault = Fault { row, repaired, start: span.start, end: span.end, what };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }
}

/// Check a frame whose length is in the index.
#[inline]
fn check(frame: &Frame<'_>, verify: bool) -> Result<()> {
    let length = framing::parse_header(frame.header)?;
    if length != frame.payload.len() as u64 {
        return Err(Error::new(
            Kind::Changed,
            format!(
                "the record has {length} bytes, but {} in the index: the file was rewritten after it was indexed",
                frame.payload.len()
            ),
        ));
    }
    if verify { framing::check_payload(frame.payload, *frame.footer) } else { Ok(()) }
}

#[cold]
pub(super) fn locate(error: Error, data: &Dataset, span: &RecordSpan) -> Error {
    let error = error.record(span.index).offset(span.start);
    match data.shard(span.shard) {
        Some(shard) => error.at(shard.file.path()),
        None => error,
    }
}
