//! What becomes of damaged records.
#![deny(clippy::indexing_slicing)]

use std::sync::{Mutex, PoisonError};

use super::dataset::{Dataset, Place};
use crate::error::{Error, Kind, Result};
use crate::frame_repair;
use crate::framing::{self, FOOTER_BYTES, HEADER_BYTES};

/// What a damaged record does to its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// The batch is an error.
    #[default]
    Raise,
    /// Its row stays empty, and a [`Fault`] says so.
    Skip,
    /// If a single flipped bit is all that is wrong it is put right, and a [`Fault`] says so; otherwise as `Raise`.
    Repair,
}

/// A damaged record that did not end its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In the batch.
    pub row: usize,
    /// Whether the row has the record as it was written; otherwise it is empty.
    pub repaired: bool,
    /// Where the frame starts and ends.
    pub start: u64,
    pub end: u64,
    /// What is wrong with it, or what was put right: one line.
    pub what: String,
}

/// How the rows of one job are to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
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

impl Rules<'_> {
    /// Whether the frame, which may be put right, is to fill its row.
    #[inline]
    pub(super) fn admits(&self, row: usize, place: &Place, frame: Frame<'_>) -> Result<bool> {
        match check(&frame, self.verify) {
            Ok(()) => Ok(true),
            Err(error) => self.judge(row, place, frame, error),
        }
    }

    /// Leave out the row of a record that is damaged as `error` says, or give the error its place.
    #[cold]
    pub(super) fn skip(&self, row: usize, place: &Place, error: Error) -> Result<()> {
        if self.on_corrupt != OnCorrupt::Skip || error.kind != Kind::Corrupt {
            return Err(locate(error, self.data, place));
        }
        self.unchanged(place)?;
        self.note(row, place, false, error.message);
        Ok(())
    }

    /// The error of a place without a frame.
    #[cold]
    pub(super) fn hole(place: &Place) -> Error {
        let bytes = place.end - place.start;
        Error::new(
            Kind::Corrupt,
            format!("{bytes} bytes in which no record can be made out: the file is damaged"),
        )
    }

    #[cold]
    fn judge(&self, row: usize, place: &Place, frame: Frame<'_>, mut error: Error) -> Result<bool> {
        if self.on_corrupt == OnCorrupt::Repair && error.kind == Kind::Corrupt {
            self.unchanged(place)?;
            if let Some(what) = frame_repair::mend(frame.header, frame.payload, frame.footer) {
                self.note(row, place, true, what);
                return Ok(true);
            }
            error.message.push_str("; it is more than a single flipped bit, so it cannot be put right");
        }
        self.skip(row, place, error).map(|()| false)
    }

    /// What looks like damage may be somebody who writes to the file: that is not to be passed over.
    fn unchanged(&self, place: &Place) -> Result<()> {
        let written = self.data.shard(place.shard).and_then(|shard| shard.file.written_since_opened());
        written.map_or(Ok(()), |when| {
            let what = format!(
                "the file was written to ({when}) while it was being read; start again when it is whole"
            );
            Err(locate(Error::new(Kind::Changed, what), self.data, place))
        })
    }

    fn note(&self, row: usize, place: &Place, repaired: bool, what: String) {
        let fault = Fault { row, repaired, start: place.start, end: place.end, what };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }
}

/// A frame whose length the index knows.
#[inline]
fn check(frame: &Frame<'_>, verify: bool) -> Result<()> {
    let length = framing::parse_header(frame.header)?;
    if length != frame.payload.len() as u64 {
        return Err(Error::new(
            Kind::Changed,
            format!(
                "a record of {length} bytes where the index has one of {}: the file was rewritten after it was indexed",
                frame.payload.len()
            ),
        ));
    }
    if verify { framing::check_payload(frame.payload, *frame.footer) } else { Ok(()) }
}

#[cold]
pub(super) fn locate(error: Error, data: &Dataset, place: &Place) -> Error {
    let error = error.record(place.index).offset(place.start);
    match data.shard(place.shard) {
        Some(shard) => error.at(shard.file.path()),
        None => error,
    }
}
