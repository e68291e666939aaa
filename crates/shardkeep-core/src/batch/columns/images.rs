//! The image column of a batch. All rows have one shape, from the schema or from the first image.

#![deny(clippy::indexing_slicing)]

use std::sync::OnceLock;

use super::block::Block;
use super::cells::{Purpose, SharedRows};
use super::row_error::RowErrorKind;
use crate::schema::ImageDType;
use shardkeep_image::{Decoder, ImageError, Pixels, header};

#[derive(Debug)]
enum Buffer {
    U8(SharedRows<u8>),
    F32(SharedRows<f32>),
}

#[derive(Debug)]
struct ImageArray {
    height: usize,
    width: usize,
    channels: usize,
    /// None if the memory could not be allocated.
    buffer: Option<Buffer>,
}

/// The pixels of a finished image column, with their shape (rows, height, width, channels).
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
    array: OnceLock<ImageArray>,
}

impl ImageStore {
    pub(super) fn new(
        rows: usize,
        channels: u8,
        dtype: ImageDType,
        size: Option<(usize, usize)>,
        purpose: Purpose,
    ) -> Self {
        Self { rows, channels: usize::from(channels), dtype, size, purpose, array: OnceLock::new() }
    }

    fn allocate(&self, height: usize, width: usize, channels: usize) -> ImageArray {
        let cells = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        let buffer = cells.and_then(|cells| match self.dtype {
            ImageDType::U8 => self.purpose.rows(self.rows, cells).map(Buffer::U8),
            ImageDType::F32 => self.purpose.rows(self.rows, cells).map(Buffer::F32),
        });
        ImageArray { height, width, channels, buffer }
    }

    /// Decode `bytes` into `row`.
    ///
    /// # Safety
    /// No other thread accesses this row.
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
        // An image that cannot be decoded must not determine the shape of the others.
        let mut first = None;
        let array = match self.array.get() {
            Some(array) => array,
            None => first.insert(self.allocate(height, width, channels)),
        };
        if (array.height, array.width, array.channels) != (height, width, channels) {
            let message = format!(
                "expected {}x{}x{} (height, width, channels) as in the first image of the batch, found {height}x{width}x{channels}; \
                 pass size= and channels= to Image to make them equal",
                array.height, array.width, array.channels
            );
            return Err((RowErrorKind::WrongShape, message));
        }
        let shape = (height, width, channels);
        let pixels = match &array.buffer {
            // SAFETY: the caller is the only one that accesses this row.
            Some(Buffer::U8(cells)) => Pixels::U8(unsafe { cells.row_mut(row) }),
            // SAFETY: the caller is the only one that accesses this row.
            Some(Buffer::F32(cells)) => Pixels::F32(unsafe { cells.row_mut(row) }),
            None => {
                let rows = self.rows;
                let message = format!("no memory for {rows} images of {height}x{width}x{channels}");
                return Err((RowErrorKind::Memory, message));
            }
        };
        decoder.decode(bytes, head, shape, pixels).map_err(unreadable)?;
        match first.map(|array| self.array.set(array)) {
            // Another thread has set the shape first, so decode into its array.
            // SAFETY: the caller is the only one that accesses this row.
            Some(Err(_)) => unsafe { self.decode(row, bytes, decoder) },
            _ => Ok(()),
        }
    }

    /// Return true if the next decoded image determines the shape.
    pub(super) fn needs_shape(&self) -> bool {
        (self.size.is_none() || self.channels == 0) && self.array.get().is_none()
    }

    /// Fill `row` with zeros.
    ///
    /// # Safety
    /// No other thread accesses this row.
    pub(super) unsafe fn clear(&self, row: usize) {
        match self.array.get().and_then(|array| array.buffer.as_ref()) {
            // SAFETY: the caller is the only one that accesses this row.
            Some(Buffer::U8(cells)) => unsafe { cells.row_mut(row) }.fill(0),
            // SAFETY: the caller is the only one that accesses this row.
            Some(Buffer::F32(cells)) => unsafe { cells.row_mut(row) }.fill(0.0),
            None => {}
        }
    }

    /// Return the column; without images its height and width are those of the schema, or 0. `None` without memory.
    pub(super) fn finish(self) -> Option<Finished> {
        let (height, width) = self.size.unwrap_or((0, 0));
        let empty = || self.allocate(height, width, self.channels);
        let (rows, array) = (self.rows, self.array.get().is_none().then(empty));
        let array = array.or_else(|| self.array.into_inner())?;
        let shape = [rows, array.height, array.width, array.channels];
        Some(match array.buffer? {
            Buffer::U8(cells) => Finished::U8(cells.into_block(), shape),
            Buffer::F32(cells) => Finished::F32(cells.into_block(), shape),
        })
    }
}
