//! Parsing of one record into one row: a fast path, and a strict path that also reports errors.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use super::cells::Cells;
use super::images::ImageStore;
use super::parts::Ragged;
use super::row_error::RowErrorKind;
use super::scratch::Scratch;
use crate::example::content::DecodeError;
use crate::example::layout::one_varint;
use crate::example::lists::FeatureView;
use crate::example::parse::{FoundValue, KnownKey, entries, only_features};
use crate::example::wire::{Cursor, WireError};
use crate::schema::{DType, DefaultValue, Feature, Kind, Schema};

/// Names that an error lists; a record may have thousands.
const LISTED: usize = 12;

/// The error of a feature, without the row.
#[derive(Debug)]
pub(super) struct FeatureError {
    pub(super) feature: Option<String>,
    pub(super) kind: RowErrorKind,
    pub(super) message: String,
}

impl From<DecodeError> for FeatureError {
    fn from(error: DecodeError) -> Self {
        Self {
            feature: None,
            kind: match error {
                DecodeError::Malformed(_) => RowErrorKind::Malformed,
                DecodeError::Other(_) => RowErrorKind::OtherMessage,
            },
            message: format!("the record is not a tf.train.Example: {error}"),
        }
    }
}

/// Destination of the values of a feature: the claimed rows of its column.
#[derive(Debug)]
pub(super) enum Target<'b> {
    Int64(Cells<'b, i64>),
    Float32(Cells<'b, f32>),
    /// The index among the ragged columns of a part.
    Ragged(usize),
    Image {
        images: &'b ImageStore,
        first_row: usize,
    },
}

/// The claimed rows of a batch, which one thread fills.
pub(super) struct Rows<'b> {
    pub(super) schema: &'b Schema,
    /// One target for each feature.
    pub(super) targets: Vec<Target<'b>>,
    pub(super) ragged: Vec<Ragged>,
    /// The current row, counted from the first claimed row.
    pub(super) row: usize,
}

impl Rows<'_> {
    /// Parse `record` into the current row.
    pub(super) fn fill(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), FeatureError> {
        scratch.images.clear();
        if self.parse_fast(record, scratch).is_none() {
            self.ragged.iter_mut().for_each(Ragged::rewind);
            scratch.images.clear();
            self.parse_strict(record, scratch)?;
        }
        for (column, range) in scratch.images.drain(..) {
            let bytes = record.get(range).unwrap_or_default();
            if let Some(Target::Image { images, first_row }) = self.targets.get(column) {
                // SAFETY: the maker of these targets has claimed the row.
                let done = unsafe { images.decode(first_row + self.row, bytes, &mut scratch.decoder) };
                done.map_err(|(kind, message)| self.feature_error(column, kind, message))?;
            }
        }
        self.ragged.iter_mut().for_each(Ragged::end_row);
        Ok(())
    }

    /// Remove the content of the current row.
    pub(super) fn clear(&mut self) {
        self.ragged.iter_mut().for_each(Ragged::rewind);
        for target in &mut self.targets {
            match target {
                Target::Int64(cells) => cells.row(self.row).fill(0),
                Target::Float32(cells) => cells.row(self.row).fill(0.0),
                // SAFETY: the maker of these targets has claimed the row.
                Target::Image { images, first_row } => unsafe { images.clear(*first_row + self.row) },
                Target::Ragged(_) => {}
            }
        }
    }

    fn parse_fast(&mut self, record: &[u8], scratch: &mut Scratch) -> Option<()> {
        let Scratch { order, last_seen, row_number, images, .. } = scratch;
        let mut seen = 0usize;
        let (entries, steps) =
            self.parse_usual_entries(only_features(record)?, order.known(), record, images, &mut seen)?;
        if entries.is_empty() && seen == self.targets.len() {
            return Some(());
        }
        *row_number += 1;
        for column in order.known().get(..steps)?.iter().filter_map(|known| known.column) {
            *last_seen.get_mut(column)? = *row_number;
        }
        order.walk(entries, steps, self.schema, |column, found| {
            match last_seen.get_mut(column) {
                Some(last) if *last != *row_number => *last = *row_number,
                _ => return false,
            }
            seen += 1;
            match found {
                FoundValue::Payload { bytes, payload_bytes } => {
                    self.store_payload(column, bytes, payload_bytes, record, images).is_some()
                }
                FoundValue::Feature(value) => self.store_feature(column, value, record, images),
            }
        })?;
        if seen == self.targets.len() {
            return Some(());
        }
        for column in 0..self.targets.len() {
            if last_seen.get(column) != Some(&*row_number) {
                self.store_default(column, record).ok()?;
            }
        }
        Some(())
    }

    /// Parse entries while they are the expected ones in the expected order, so that no key occurs twice. Returns the
    /// remaining bytes and the number of entries; `seen` counts those with a column.
    #[inline]
    fn parse_usual_entries<'a>(
        &mut self,
        mut entries: &'a [u8],
        known: &[KnownKey],
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
        seen: &mut usize,
    ) -> Option<(&'a [u8], usize)> {
        let mut steps = 0usize;
        for KnownKey { column, layout, .. } in known {
            let Some((bytes, length)) = layout.as_ref().and_then(|layout| layout.open(entries)) else {
                break;
            };
            entries = bytes.get(length..)?;
            steps += 1;
            let Some(column) = *column else { continue };
            *seen += 1;
            match self.targets.get_mut(column)? {
                Target::Int64(Cells { cells, width: 1 }) => {
                    *cells.get_mut(self.row)? = one_varint(bytes, length)? as i64;
                }
                Target::Float32(Cells { cells, width: 1 }) if length == 4 => {
                    *cells.get_mut(self.row)? = f32::from_le_bytes(*bytes.first_chunk()?);
                }
                _ => self.store_payload(column, bytes, length, record, images)?,
            }
        }
        Some((entries, steps))
    }

    /// Store the first `length` bytes of `bytes`, a packed list or a byte string. `None` requires the strict path.
    fn store_payload(
        &mut self,
        column: usize,
        bytes: &[u8],
        length: usize,
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> Option<()> {
        match self.targets.get_mut(column)? {
            Target::Int64(Cells { cells, width: 1 }) => {
                *cells.get_mut(self.row)? = one_varint(bytes, length)? as i64;
            }
            Target::Int64(cells) => {
                let mut packed = Cursor::new(bytes.get(..length)?);
                for out in cells.row(self.row) {
                    *out = packed.varint().ok()? as i64;
                }
                return packed.is_done().then_some(());
            }
            Target::Float32(cells) => {
                let (numbers, rest) = bytes.get(..length)?.as_chunks::<4>();
                let out = cells.row(self.row);
                if !rest.is_empty() || numbers.len() != out.len() {
                    return None;
                }
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = f32::from_le_bytes(*number);
                }
            }
            Target::Ragged(index) => match self.ragged.get_mut(*index)? {
                Ragged::Int64 { values, .. } => {
                    let mut packed = Cursor::new(bytes.get(..length)?);
                    while !packed.is_done() {
                        values.push(packed.varint().ok()? as i64);
                    }
                }
                Ragged::Float32 { values, .. } => {
                    let (numbers, rest) = bytes.get(..length)?.as_chunks::<4>();
                    if !rest.is_empty() {
                        return None;
                    }
                    values.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
                }
                ragged => ragged.push_bytes(bytes.get(..length)?),
            },
            Target::Image { .. } => images.push((column, range_in(record, bytes.get(..length)?))),
        }
        Some(())
    }

    /// Store a parsed Feature; false requires the strict path.
    fn store_feature(
        &mut self,
        column: usize,
        value: &[u8],
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> bool {
        let Ok(view) = FeatureView::new(value) else {
            return false;
        };
        // An unset kind counts as missing, which only the strict path handles.
        view.dtype.is_some() && self.store(column, &view, record, images).is_ok()
    }

    #[cold]
    fn parse_strict(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), FeatureError> {
        let mut found: Vec<Option<FeatureView<'_>>> = vec![None; self.targets.len()];
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
            return Err(self.feature_error(column, RowErrorKind::Malformed, error.to_string()));
        }
        for (column, view) in found.iter().enumerate() {
            match view {
                Some(view) if view.dtype.is_some() => {
                    self.store(column, view, record, &mut scratch.images)?;
                }
                _ => self.store_default(column, record)?,
            }
        }
        Ok(())
    }

    /// Store the values of `view`, which has a kind, according to all rules of the format.
    fn store(
        &mut self,
        column: usize,
        view: &FeatureView<'_>,
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> Result<(), FeatureError> {
        let Some((feature, target)) = self.schema.features().get(column).zip(self.targets.get_mut(column))
        else {
            return Ok(());
        };
        let expected = match &feature.kind {
            Kind::Fixed { dtype, .. } | Kind::Var { dtype } => *dtype,
            Kind::Image { .. } => DType::Bytes,
        };
        if view.dtype != Some(expected) {
            let found = view.dtype.map_or("nothing", DType::name);
            let count = view.count().unwrap_or(0);
            let message = format!("expected {}, found {found} ({})", describe(feature), values(count));
            return Err(self.feature_error(column, RowErrorKind::WrongDType, message));
        }
        let malformed = |error: WireError| FeatureError {
            feature: Some(feature.name.clone()),
            kind: RowErrorKind::Malformed,
            message: format!("its {} list is malformed: {error}", expected.name()),
        };
        let mut count = 0usize;
        match target {
            Target::Int64(cells) => {
                let mut out = cells.row(self.row).iter_mut();
                view.int64s(|value| {
                    count += 1;
                    out.next().into_iter().for_each(|out| *out = value);
                })
                .map_err(malformed)?;
            }
            Target::Float32(cells) => {
                let mut out = cells.row(self.row).iter_mut();
                view.floats(|value| {
                    count += 1;
                    out.next().into_iter().for_each(|out| *out = value);
                })
                .map_err(malformed)?;
            }
            Target::Ragged(index) => {
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
            Target::Image { .. } => {
                let mut image: &[u8] = &[];
                view.bytes(|value| {
                    count += 1;
                    image = value;
                })
                .map_err(malformed)?;
                images.push((column, range_in(record, image)));
            }
        }
        let elements = feature.elements();
        if count != elements {
            let message = format!("expected {} ({}), found {count}", describe(feature), values(elements));
            return Err(self.feature_error(column, RowErrorKind::WrongShape, message));
        }
        Ok(())
    }

    /// Store the default of a feature that the record lacks.
    fn store_default(&mut self, column: usize, record: &[u8]) -> Result<(), FeatureError> {
        let Some((feature, target)) = self.schema.features().get(column).zip(self.targets.get_mut(column))
        else {
            return Ok(());
        };
        let default = match &feature.kind {
            Kind::Var { .. } => return Ok(()),
            Kind::Fixed { default: Some(default), .. } => default,
            _ => {
                let found = names(record, &feature.name);
                let message = format!("expected {}, but the record has {found}", describe(feature));
                return Err(self.feature_error(column, RowErrorKind::Missing, message));
            }
        };
        match (target, default) {
            (Target::Int64(cells), DefaultValue::Int64(values)) => {
                broadcast(cells.row(self.row), values);
            }
            (Target::Float32(cells), DefaultValue::Float32(values)) => {
                broadcast(cells.row(self.row), values);
            }
            (Target::Ragged(index), DefaultValue::Bytes(values)) => {
                if let Some(ragged) = self.ragged.get_mut(*index) {
                    let values = values.iter().cycle().take(feature.elements());
                    values.for_each(|value| ragged.push_bytes(value));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn feature_error(&self, column: usize, kind: RowErrorKind, message: String) -> FeatureError {
        let feature = self.schema.features().get(column).map(|feature| feature.name.clone());
        FeatureError { feature, kind, message }
    }
}

/// Copy one default to all elements, or one default to each.
fn broadcast<T: Copy>(out: &mut [T], values: &[T]) {
    match values {
        [value] => out.fill(*value),
        _ => out.iter_mut().zip(values).for_each(|(out, value)| *out = *value),
    }
}

/// Return the range of `part` in `record`, because the scratch cannot borrow from the record.
fn range_in(record: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(record.as_ptr() as usize);
    start..start.wrapping_add(part.len())
}

fn values(count: usize) -> String {
    format!("{count} value{}", if count == 1 { "" } else { "s" })
}

/// List the features of a record that lacks one of the schema, for messages.
fn names(record: &[u8], missing: &str) -> String {
    let mut found = BTreeSet::new();
    // A record that is not valid was refused before.
    let _ = entries(record, |key, _| _ = found.insert(String::from_utf8_lossy(key)));
    if found.contains(missing) {
        return "it without values".into();
    }
    let mut listed: Vec<String> = found.iter().take(LISTED).map(|name| format!("{name:?}")).collect();
    match found.len() {
        0 => return "no features".into(),
        count if count > LISTED => listed.push(format!("{} more", count - LISTED)),
        _ => {}
    }
    format!("only {}", listed.join(", "))
}

/// Describe a feature of the schema, for messages.
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
