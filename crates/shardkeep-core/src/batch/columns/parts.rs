//! Ragged columns. Each call of `fill` collects its rows in a [`Part`]; `finish` concatenates the parts in row order.

#![deny(clippy::indexing_slicing)]

use crate::schema::DType;

/// The values of one ragged column over a range of rows. `ends` counts values, `value_ends` bytes.
#[derive(Debug)]
pub(super) enum Ragged {
    Int64 { values: Vec<i64>, ends: Vec<usize> },
    Float32 { values: Vec<f32>, ends: Vec<usize> },
    Bytes { values: Vec<u8>, value_ends: Vec<usize>, ends: Vec<usize> },
}

impl Ragged {
    pub(super) fn new(dtype: DType, rows: usize) -> Self {
        let ends = Vec::with_capacity(rows);
        match dtype {
            DType::Int64 => Self::Int64 { values: Vec::new(), ends },
            DType::Float32 => Self::Float32 { values: Vec::new(), ends },
            DType::Bytes => Self::Bytes { values: Vec::new(), value_ends: Vec::new(), ends },
        }
    }

    /// End a row, which has the values pushed since the last call.
    pub(super) fn end_row(&mut self) {
        match self {
            Self::Int64 { values, ends } => ends.push(values.len()),
            Self::Float32 { values, ends } => ends.push(values.len()),
            Self::Bytes { value_ends, ends, .. } => ends.push(value_ends.len()),
        }
    }

    /// Remove the values pushed since the end of the last row.
    pub(super) fn rewind(&mut self) {
        match self {
            Self::Int64 { values, ends } => values.truncate(last(ends)),
            Self::Float32 { values, ends } => values.truncate(last(ends)),
            Self::Bytes { values, value_ends, ends } => {
                value_ends.truncate(last(ends));
                values.truncate(last(value_ends));
            }
        }
    }

    pub(super) fn push_bytes(&mut self, value: &[u8]) {
        if let Self::Bytes { values, value_ends, .. } = self {
            values.extend_from_slice(value);
            value_ends.push(values.len());
        }
    }
}

fn last(ends: &[usize]) -> usize {
    ends.last().copied().unwrap_or(0)
}

/// The ragged columns of rows `first_row ..`, in the order of the schema's ragged features.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) first_row: usize,
    pub(super) columns: Vec<Ragged>,
}

/// Offsets of rows, computed from the ends in the parts. Rows without a part have `absent` values each.
struct Offsets {
    offsets: Vec<i64>,
    rows: usize,
    absent: usize,
    total: usize,
}

impl Offsets {
    fn new(rows: usize, absent: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, rows, absent, total: 0 }
    }

    /// Add the absent values of rows before `row`; return their number.
    fn pad_to(&mut self, row: usize) -> usize {
        let before = self.total;
        while self.offsets.len() <= row.min(self.rows) {
            self.total += self.absent;
            self.offsets.push(self.total as i64);
        }
        self.total - before
    }

    fn append(&mut self, ends: &[usize]) {
        let base = self.total;
        self.offsets.extend(ends.iter().map(|end| (base + end) as i64));
        self.total += last(ends);
    }
}

/// Append the values of a part to those of a column of `total` values; a part that has them all is moved.
fn append_values<T>(all: &mut Vec<T>, mut values: Vec<T>, total: usize) {
    if all.is_empty() && values.len() == total {
        *all = values;
    } else {
        all.reserve(total - all.len());
        all.append(&mut values);
    }
}

/// Concatenate a numeric column into (values, row offsets).
pub(super) fn join<T>(rows: usize, parts: Vec<(usize, Vec<T>, Vec<usize>)>) -> (Vec<T>, Vec<i64>) {
    let mut offsets = Offsets::new(rows, 0);
    let mut all: Vec<T> = Vec::new();
    let total = parts.iter().map(|(_, values, _)| values.len()).sum();
    for (first_row, values, ends) in parts {
        offsets.pad_to(first_row);
        offsets.append(&ends);
        append_values(&mut all, values, total);
    }
    offsets.pad_to(rows);
    (all, offsets.offsets)
}

/// First row, bytes, ends of values in bytes, ends of rows in values.
pub(super) type BytesPart = (usize, Vec<u8>, Vec<usize>, Vec<usize>);

/// A bytes column: (bytes, offsets of values in bytes, offsets of rows in values).
pub(super) type JoinedBytes = (Vec<u8>, Vec<i64>, Vec<i64>);

/// Concatenate a bytes column; a row without a part gets `absent` empty values.
pub(super) fn join_bytes(rows: usize, absent: usize, parts: Vec<BytesPart>) -> JoinedBytes {
    let mut offsets = Offsets::new(rows, absent);
    let mut value_offsets = vec![0i64];
    let mut all: Vec<u8> = Vec::new();
    let total = parts.iter().map(|(_, values, ..)| values.len()).sum();
    for (first_row, values, value_ends, ends) in parts {
        let padded = offsets.pad_to(first_row);
        let base = all.len();
        value_offsets.extend(std::iter::repeat_n(base as i64, padded));
        value_offsets.extend(value_ends.iter().map(|end| (base + end) as i64));
        offsets.append(&ends);
        append_values(&mut all, values, total);
    }
    let padded = offsets.pad_to(rows);
    value_offsets.extend(std::iter::repeat_n(all.len() as i64, padded));
    (all, value_offsets, offsets.offsets)
}
