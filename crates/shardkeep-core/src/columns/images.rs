//! The image column of a batch: one frame size for all rows, known from the schema or from the first image.

#![deny(clippy::indexing_slicing)]

use std::sync::OnceLock;

use super::batch::RowErrorKind;
use super::block::Block;
use super::cells::{Purpose, SharedRows};
use super::schema::ImageDType;
use crate::image::{Decoder, ImageError, Pixels, header};

#[derive(Debug)]
enum Buffer {
    U8(SharedRows<u8>),
    F32(SharedRows<f32>),
}

#[derive(Debug)]
struct Frame {
    height: usize,
    width: usize,
    channels: usize,
    /// None: the memory for it could not be had.
    buffer: Option<Buffer>,
}

/// The pixels of a finished image column with their shape (rows, height, width, channels).
pub(super) enum Finished {
    U8(Block<u8>, [usize; 4]),
    F32(Block<f32>, [usize; 4]),
}

#[derive(Debug)]
pub(super) struct ImageStore {
    rows: usize,
    channels: usize,
    dtype: ImageDType,
    size: Option<(usize, usize)>,
    purpose: Purpose,
    frame: OnceLock<Frame>,
}

impl ImageStore {
    pub(super) fn new(
        rows: usize,
        channels: u8,
        dtype: ImageDType,
        size: Option<(usize, usize)>,
        purpose: Purpose,
    ) -> Self {
        Self { rows, channels: usize::from(channels), dtype, size, purpose, frame: OnceLock::new() }
    }

    fn make_frame(&self, height: usize, width: usize, channels: usize) -> Frame {
        let cells = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        let buffer = cells.and_then(|cells| match self.dtype {
            ImageDType::U8 => self.purpose.rows(self.rows, cells).map(Buffer::U8),
            ImageDType::F32 => self.purpose.rows(self.rows, cells).map(Buffer::F32),
        });
        Frame { height, width, channels, buffer }
    }

    /// Decodes `bytes` into `row`.
    ///
    /// # Safety
    /// The caller is the only one that touches this row.
    pub(super) unsafe fn decode(
        &self,
        row: usize,
        bytes: &[u8],
        decoder: &mut Decoder,
    ) -> Result<(), (RowErrorKind, String)> {
        let unreadable = |error: ImageError| (RowErrorKind::Image, error.0);
        let head = header(bytes).map_err(unreadable)?;
        let channels = if self.channels == 0 { head.channels } else { self.channels };
        let (height, width) = self.size.unwrap_or((head.height, head.width));
        // A first image that cannot be decoded is not the measure of the others.
        let mut first = None;
        let frame = match self.frame.get() {
            Some(frame) => frame,
            None => first.insert(self.make_frame(height, width, channels)),
        };
        if (frame.height, frame.width, frame.channels) != (height, width, channels) {
            let message = format!(
                "wanted {}x{}x{} (height, width, channels) as the batch's first image has, found {height}x{width}x{channels}; \
                 pass size= and channels= to Image to make them equal",
                frame.height, frame.width, frame.channels
            );
            return Err((RowErrorKind::WrongShape, message));
        }
        let shape = (height, width, channels);
        let pixels = match &frame.buffer {
            // SAFETY: as the caller promises.
            Some(Buffer::U8(cells)) => Pixels::U8(unsafe { cells.row_mut(row) }),
            // SAFETY: as the caller promises.
            Some(Buffer::F32(cells)) => Pixels::F32(unsafe { cells.row_mut(row) }),
            None => {
                let rows = self.rows;
                let message = format!("no memory for {rows} images of {height}x{width}x{channels}");
                return Err((RowErrorKind::Memory, message));
            }
        };
        decoder.decode(bytes, head, shape, pixels).map_err(unreadable)?;
        match first.map(|frame| self.frame.set(frame)) {
            // Another thread was faster: into its frame, then.
            // SAFETY: as the caller promises.
            Some(Err(_)) => unsafe { self.decode(row, bytes, decoder) },
            _ => Ok(()),
        }
    }

    /// Whether the next image that is decoded says how large all must be.
    pub(super) fn lacks_frame(&self) -> bool {
        (self.size.is_none() || self.channels == 0) && self.frame.get().is_none()
    }

    /// Puts zeros into `row`.
    ///
    /// # Safety
    /// The caller is the only one that touches this row.
    pub(super) unsafe fn clear(&self, row: usize) {
        match self.frame.get().and_then(|frame| frame.buffer.as_ref()) {
            // SAFETY: as the caller promises.
            Some(Buffer::U8(cells)) => unsafe { cells.row_mut(row) }.fill(0),
            // SAFETY: as the caller promises.
            Some(Buffer::F32(cells)) => unsafe { cells.row_mut(row) }.fill(0.0),
            None => {}
        }
    }

    /// The column; without any image its height and width are those of the schema, or 0. `None`: no memory.
    pub(super) fn finish(self) -> Option<Finished> {
        let (height, width) = self.size.unwrap_or((0, 0));
        let empty = || self.make_frame(height, width, self.channels);
        let (rows, frame) = (self.rows, self.frame.get().is_none().then(empty));
        let frame = frame.or_else(|| self.frame.into_inner())?;
        let shape = [rows, frame.height, frame.width, frame.channels];
        Some(match frame.buffer? {
            Buffer::U8(cells) => Finished::U8(cells.into_block(), shape),
            Buffer::F32(cells) => Finished::F32(cells.into_block(), shape),
        })
    }
}
