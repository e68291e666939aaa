//! One record into one row: the fast way, and the careful way that also finds the words for an error.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::batch::{RowErrorKind, Store};
use super::parts::Ragged;
use super::schema::{DType, DefaultValue, Feature, Kind, Schema};
use crate::example::lists::FeatureView;
use crate::example::parse::{KeyOrder, entries};
use crate::image::Decoder;
use crate::wire::{Cursor, WireError};

/// What a thread keeps between records: the order of keys, the decoders' buffers.
#[derive(Debug, Default)]
pub struct Scratch {
    order: KeyOrder,
    decoder: Decoder,
    /// The number of the row that last had column i.
    stamps: Vec<u64>,
    now: u64,
    /// Images of the row at hand: column, and where in the record the image lies.
    images: Vec<(usize, std::ops::Range<usize>)>,
    /// The schema that `order` and `stamps` belong to; held, so that no other schema can take its address.
    schema: Option<Arc<Schema>>,
}

impl Scratch {
    /// Forgets the keys of another schema.
    pub(super) fn use_for(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_none_or(|held| !Arc::ptr_eq(held, schema)) {
            self.order = KeyOrder::default();
            self.stamps = vec![0; schema.features().len()];
            self.now = 0;
            self.schema = Some(Arc::clone(schema));
        }
    }
}

/// Why a row cannot be filled, before it is known where it lies.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) feature: Option<String>,
    pub(super) kind: RowErrorKind,
    pub(super) message: String,
}

impl From<WireError> for Problem {
    fn from(error: WireError) -> Self {
        Self {
            feature: None,
            kind: RowErrorKind::Malformed,
            message: format!("the record is not a tf.train.Example: {error}"),
        }
    }
}

/// The columns of a batch as one thread sees them while it fills one row.
pub(super) struct Row<'b> {
    pub(super) schema: &'b Schema,
    pub(super) stores: &'b [Store],
    pub(super) ragged: &'b mut [Ragged],
    pub(super) row: usize,
}

impl Row<'_> {
    /// Parses `record` into the row.
    ///
    /// # Safety
    /// The caller is the only one that touches this row of the batch.
    pub(super) unsafe fn fill(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), Problem> {
        scratch.images.clear();
        // SAFETY: as the caller promises; the same holds for the calls below.
        if unsafe { self.fast(record, scratch) }.is_none() {
            self.ragged.iter_mut().for_each(Ragged::rewind);
            scratch.images.clear();
            // SAFETY: see above.
            unsafe { self.careful(record, scratch) }?;
        }
        for (column, range) in scratch.images.drain(..) {
            let bytes = record.get(range).unwrap_or_default();
            if let Some(Store::Image(store)) = self.stores.get(column) {
                // SAFETY: see above.
                let done = unsafe { store.decode(self.row, bytes, &mut scratch.decoder) };
                done.map_err(|(kind, message)| self.problem(column, kind, message))?;
            }
        }
        self.ragged.iter_mut().for_each(Ragged::end_row);
        Ok(())
    }

    /// # Safety
    /// As [`Row::fill`].
    #[inline]
    unsafe fn fast(&mut self, record: &[u8], scratch: &mut Scratch) -> Option<()> {
        let Scratch { order, stamps, now, images, .. } = scratch;
        *now += 1;
        let mut seen = 0usize;
        let schema = self.schema;
        order.walk(record, schema, |column, value| {
            match stamps.get_mut(column) {
                Some(stamp) if *stamp != *now => *stamp = *now,
                _ => return false,
            }
            seen += 1;
            // SAFETY: as the caller promises.
            unsafe { self.store_fast(column, value, record, images) }
        })?;
        if seen == self.stores.len() {
            return Some(());
        }
        for column in 0..self.stores.len() {
            if stamps.get(column) != Some(&*now) {
                // SAFETY: as the caller promises.
                unsafe { self.absent(column) }.ok()?;
            }
        }
        Some(())
    }

    /// The encodings that every encoder writes; false sends the row to the careful way.
    ///
    /// # Safety
    /// As [`Row::fill`].
    #[inline]
    unsafe fn store_fast(
        &mut self,
        column: usize,
        value: &[u8],
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> bool {
        match self.stores.get(column) {
            Some(Store::Int64(cells)) => {
                // SAFETY: as the caller promises.
                let out = unsafe { cells.row_mut(self.row) };
                if let Some(payload) = packed(value, 0x1a)
                    && let [out] = out
                {
                    let mut cursor = Cursor::new(payload);
                    let Ok(number) = cursor.varint() else {
                        return false;
                    };
                    *out = number as i64;
                    return cursor.is_done();
                }
            }
            Some(Store::Float32(cells)) => {
                if let Some(payload) = packed(value, 0x12) {
                    // SAFETY: as the caller promises.
                    let out = unsafe { cells.row_mut(self.row) };
                    let (numbers, rest) = payload.as_chunks::<4>();
                    if !rest.is_empty() || numbers.len() != out.len() {
                        return false;
                    }
                    for (out, number) in out.iter_mut().zip(numbers) {
                        *out = f32::from_le_bytes(*number);
                    }
                    return true;
                }
            }
            _ => {}
        }
        let Ok(view) = FeatureView::new(value) else {
            return false;
        };
        // An unset kind counts as missing, which the careful way knows how to treat.
        // SAFETY: as the caller promises.
        view.dtype.is_some() && unsafe { self.store(column, &view, record, images) }.is_ok()
    }

    /// # Safety
    /// As [`Row::fill`].
    #[cold]
    unsafe fn careful(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), Problem> {
        let mut found: Vec<Option<FeatureView<'_>>> = vec![None; self.stores.len()];
        let mut broken: Option<(usize, WireError)> = None;
        entries(record, |key, pieces| {
            let Some(column) = self.schema.position(key) else {
                return;
            };
            let mut view = FeatureView::unset();
            for piece in pieces {
                if let Err(error) = view.merge(piece) {
                    broken = broken.or(Some((column, error)));
                }
            }
            if let Some(slot) = found.get_mut(column) {
                *slot = Some(view);
            }
        })?;
        if let Some((column, error)) = broken {
            return Err(self.problem(column, RowErrorKind::Malformed, error.to_string()));
        }
        for (column, view) in found.iter().enumerate() {
            match view {
                // SAFETY: as the caller promises.
                Some(view) if view.dtype.is_some() => unsafe {
                    self.store(column, view, record, &mut scratch.images)?;
                },
                // SAFETY: as the caller promises.
                _ => unsafe { self.absent(column)? },
            }
        }
        Ok(())
    }

    /// Stores the values of `view`, which has a kind, under all of the format's rules.
    ///
    /// # Safety
    /// As [`Row::fill`].
    unsafe fn store(
        &mut self,
        column: usize,
        view: &FeatureView<'_>,
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> Result<(), Problem> {
        let Some((feature, store)) = self.schema.features().get(column).zip(self.stores.get(column)) else {
            return Ok(());
        };
        let wanted = match &feature.kind {
            Kind::Fixed { dtype, .. } | Kind::Var { dtype } => *dtype,
            Kind::Image { .. } => DType::Bytes,
        };
        if view.dtype != Some(wanted) {
            let found = view.dtype.map_or("nothing", DType::name);
            let count = view.count().unwrap_or(0);
            let message = format!("wanted {}, found {found} ({})", describe(feature), values(count));
            return Err(self.problem(column, RowErrorKind::WrongDType, message));
        }
        let malformed = |error: WireError| Problem {
            feature: Some(feature.name.clone()),
            kind: RowErrorKind::Malformed,
            message: format!("its {} list is broken: {error}", wanted.name()),
        };
        let mut count = 0usize;
        match store {
            Store::Int64(cells) => {
                // SAFETY: as the caller promises.
                let mut out = unsafe { cells.row_mut(self.row) }.iter_mut();
                view.int64s(|value| {
                    count += 1;
                    out.next().into_iter().for_each(|out| *out = value);
                })
                .map_err(malformed)?;
            }
            Store::Float32(cells) => {
                // SAFETY: as the caller promises.
                let mut out = unsafe { cells.row_mut(self.row) }.iter_mut();
                view.floats(|value| {
                    count += 1;
                    out.next().into_iter().for_each(|out| *out = value);
                })
                .map_err(malformed)?;
            }
            Store::Ragged(index) => {
                match self.ragged.get_mut(*index) {
                    Some(Ragged::Int64 { values, .. }) => view.int64s(|value| values.push(value)),
                    Some(Ragged::Float32 { values, .. }) => view.floats(|value| values.push(value)),
                    Some(ragged) => view.bytes(|value| {
                        count += 1;
                        ragged.push_bytes(value);
                    }),
                    None => Ok(()),
                }
                .map_err(malformed)?;
                if matches!(feature.kind, Kind::Var { .. }) {
                    return Ok(());
                }
            }
            Store::Image(_) => {
                let mut image: &[u8] = &[];
                view.bytes(|value| {
                    count += 1;
                    image = value;
                })
                .map_err(malformed)?;
                // Where `image` lies in the record: a borrow of the record cannot be kept in the scratch.
                let start = (image.as_ptr() as usize).wrapping_sub(record.as_ptr() as usize);
                images.push((column, start..start.wrapping_add(image.len())));
            }
        }
        let elements = feature.elements();
        if count != elements {
            let message = format!("wanted {} ({}), found {count}", describe(feature), values(elements));
            return Err(self.problem(column, RowErrorKind::WrongShape, message));
        }
        Ok(())
    }

    /// Fills in for a feature that the record lacks.
    ///
    /// # Safety
    /// As [`Row::fill`].
    unsafe fn absent(&mut self, column: usize) -> Result<(), Problem> {
        let Some((feature, store)) = self.schema.features().get(column).zip(self.stores.get(column)) else {
            return Ok(());
        };
        let default = match &feature.kind {
            Kind::Var { .. } => return Ok(()),
            Kind::Fixed { default: Some(default), .. } => default,
            _ => {
                let message = format!("wanted {}, the record does not have it", describe(feature));
                return Err(self.problem(column, RowErrorKind::Missing, message));
            }
        };
        match (store, default) {
            (Store::Int64(cells), DefaultValue::Int64(values)) => {
                // SAFETY: as the caller promises.
                spread(unsafe { cells.row_mut(self.row) }, values);
            }
            (Store::Float32(cells), DefaultValue::Float32(values)) => {
                // SAFETY: as the caller promises.
                spread(unsafe { cells.row_mut(self.row) }, values);
            }
            (Store::Ragged(index), DefaultValue::Bytes(values)) => {
                if let Some(ragged) = self.ragged.get_mut(*index) {
                    let values = values.iter().cycle().take(feature.elements());
                    values.for_each(|value| ragged.push_bytes(value));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn problem(&self, column: usize, kind: RowErrorKind, message: String) -> Problem {
        let feature = self.schema.features().get(column).map(|feature| feature.name.clone());
        Problem { feature, kind, message }
    }
}

/// One default for all elements, or one for each.
fn spread<T: Copy>(out: &mut [T], values: &[T]) {
    match values {
        [value] => out.fill(*value),
        _ => out.iter_mut().zip(values).for_each(|(out, value)| *out = *value),
    }
}

/// The payload of a Feature that is one packed list and nothing else.
#[inline]
fn packed(value: &[u8], tag: u8) -> Option<&[u8]> {
    let rest = value.strip_prefix(&[tag])?;
    let mut cursor = Cursor::new(rest);
    let list = cursor.bytes().ok()?;
    if !cursor.is_done() {
        return None;
    }
    let rest = list.strip_prefix(&[0x0a])?;
    let mut cursor = Cursor::new(rest);
    let payload = cursor.bytes().ok()?;
    cursor.is_done().then_some(payload)
}

fn values(count: usize) -> String {
    format!("{count} value{}", if count == 1 { "" } else { "s" })
}

/// What the schema wants of a feature, in a few words.
fn describe(feature: &Feature) -> String {
    match &feature.kind {
        Kind::Fixed { dtype, shape, .. } => {
            let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
            let comma = if sides.len() == 1 { "," } else { "" };
            format!("{} of shape ({}{comma})", dtype.name(), sides.join(", "))
        }
        Kind::Var { dtype } => format!("any number of {}", dtype.name()),
        Kind::Image { .. } => "one image as bytes".into(),
    }
}
