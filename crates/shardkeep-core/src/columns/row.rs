//! One record into one row: the fast way, and the careful way that also finds the words for an error.

#![deny(clippy::indexing_slicing)]

use super::batch::RowErrorKind;
use super::cells::Cells;
use super::images::ImageStore;
use super::parts::Ragged;
use super::schema::{DType, DefaultValue, Feature, Kind, Schema};
use super::scratch::Scratch;
use crate::example::layout::one_varint;
use crate::example::lists::FeatureView;
use crate::example::parse::{Found, Known, entries, only_features};
use crate::wire::{Cursor, WireError};

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

/// Where the values of a feature go: the claimed rows of its column.
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

/// The columns of a batch as one thread sees them while it fills the rows that it claimed.
pub(super) struct Rows<'b> {
    pub(super) schema: &'b Schema,
    /// One for each feature.
    pub(super) targets: Vec<Target<'b>>,
    pub(super) ragged: Vec<Ragged>,
    /// The row at hand, counted from the first of them.
    pub(super) row: usize,
}

impl Rows<'_> {
    /// Parses `record` into the row.
    pub(super) fn fill(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), Problem> {
        scratch.images.clear();
        if self.fast(record, scratch).is_none() {
            self.ragged.iter_mut().for_each(Ragged::rewind);
            scratch.images.clear();
            self.careful(record, scratch)?;
        }
        for (column, range) in scratch.images.drain(..) {
            let bytes = record.get(range).unwrap_or_default();
            if let Some(Target::Image { images, first_row }) = self.targets.get(column) {
                // SAFETY: who made these targets holds the claim on the row.
                let done = unsafe { images.decode(first_row + self.row, bytes, &mut scratch.decoder) };
                done.map_err(|(kind, message)| self.problem(column, kind, message))?;
            }
        }
        self.ragged.iter_mut().for_each(Ragged::end_row);
        Ok(())
    }

    /// Takes back what the row at hand has got.
    pub(super) fn clear(&mut self) {
        self.ragged.iter_mut().for_each(Ragged::rewind);
        for target in &mut self.targets {
            match target {
                Target::Int64(cells) => cells.row(self.row).fill(0),
                Target::Float32(cells) => cells.row(self.row).fill(0.0),
                // SAFETY: who made these targets holds the claim on the row.
                Target::Image { images, first_row } => unsafe { images.clear(*first_row + self.row) },
                Target::Ragged(_) => {}
            }
        }
    }

    fn fast(&mut self, record: &[u8], scratch: &mut Scratch) -> Option<()> {
        let Scratch { order, stamps, now, images, .. } = scratch;
        let mut seen = 0usize;
        let (entries, steps) =
            self.straight(only_features(record)?, order.known(), record, images, &mut seen)?;
        if entries.is_empty() && seen == self.targets.len() {
            return Some(());
        }
        *now += 1;
        for column in order.known().get(..steps)?.iter().filter_map(|known| known.column) {
            *stamps.get_mut(column)? = *now;
        }
        order.walk(entries, steps, self.schema, |column, found| {
            match stamps.get_mut(column) {
                Some(stamp) if *stamp != *now => *stamp = *now,
                _ => return false,
            }
            seen += 1;
            match found {
                Found::Payload { bytes, payload_bytes } => {
                    self.store_payload(column, bytes, payload_bytes, record, images).is_some()
                }
                Found::Feature(value) => self.store_feature(column, value, record, images),
            }
        })?;
        if seen == self.targets.len() {
            return Some(());
        }
        for column in 0..self.targets.len() {
            if stamps.get(column) != Some(&*now) {
                self.absent(column).ok()?;
            }
        }
        Some(())
    }

    /// Takes entries as long as they are the usual ones at their usual places, which means that no key comes twice.
    /// Returns what is left, and how many were taken; `seen` are those of
    /// them that a column has.
    #[inline]
    fn straight<'a>(
        &mut self,
        mut entries: &'a [u8],
        known: &[Known],
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
        seen: &mut usize,
    ) -> Option<(&'a [u8], usize)> {
        let mut steps = 0usize;
        for Known { column, layout, .. } in known {
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

    /// The first `length` bytes of `bytes`, which are one packed list or one byte string; `None` sends the row to the
    /// careful way.
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
            Target::Image { .. } => images.push((column, place_in(record, bytes.get(..length)?))),
        }
        Some(())
    }

    /// A Feature that was parsed; false sends the row to the careful way.
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
        // An unset kind counts as missing, which the careful way knows how to treat.
        view.dtype.is_some() && self.store(column, &view, record, images).is_ok()
    }

    #[cold]
    fn careful(&mut self, record: &[u8], scratch: &mut Scratch) -> Result<(), Problem> {
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
            return Err(self.problem(column, RowErrorKind::Malformed, error.to_string()));
        }
        for (column, view) in found.iter().enumerate() {
            match view {
                Some(view) if view.dtype.is_some() => {
                    self.store(column, view, record, &mut scratch.images)?;
                }
                _ => self.absent(column)?,
            }
        }
        Ok(())
    }

    /// Stores the values of `view`, which has a kind, under all of the format's rules.
    fn store(
        &mut self,
        column: usize,
        view: &FeatureView<'_>,
        record: &[u8],
        images: &mut Vec<(usize, std::ops::Range<usize>)>,
    ) -> Result<(), Problem> {
        let Some((feature, target)) = self.schema.features().get(column).zip(self.targets.get_mut(column))
        else {
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
                images.push((column, place_in(record, image)));
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
    fn absent(&mut self, column: usize) -> Result<(), Problem> {
        let Some((feature, target)) = self.schema.features().get(column).zip(self.targets.get_mut(column))
        else {
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
        match (target, default) {
            (Target::Int64(cells), DefaultValue::Int64(values)) => {
                spread(cells.row(self.row), values);
            }
            (Target::Float32(cells), DefaultValue::Float32(values)) => {
                spread(cells.row(self.row), values);
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

/// Where `part` lies in `record`: a borrow of the record cannot be kept in the scratch.
fn place_in(record: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(record.as_ptr() as usize);
    start..start.wrapping_add(part.len())
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
