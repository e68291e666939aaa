//! Encoding of columns as Examples, for `Writer.write_examples` of the Python API.

#![deny(clippy::indexing_slicing)]

use super::encode::{FeatureValue, encode};
use crate::error::{Error, Result};

/// A column whose values of one row become one feature.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub values: Values<'a>,
    pub cut: Cut<'a>,
}

/// The concatenated values of all rows.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Bytes(&'a [&'a [u8]]),
}

/// Division of the values into rows.
#[derive(Debug, Clone, Copy)]
pub enum Cut<'a> {
    /// The same number of values in each row.
    Every(usize),
    /// The values between two offsets.
    Offsets(&'a [i64]),
}

impl<'a> Rows<'a> {
    fn of(&self, row: usize) -> Option<FeatureValue<'a>> {
        let (from, to) = match self.cut {
            Cut::Every(width) => (row.checked_mul(width)?, row.checked_add(1)?.checked_mul(width)?),
            Cut::Offsets(offsets) => {
                let at = |i: usize| offsets.get(i).and_then(|at| usize::try_from(*at).ok());
                (at(row)?, at(row + 1)?)
            }
        };
        Some(match self.values {
            Values::Int64(values) => FeatureValue::Int64(values.get(from..to)?),
            Values::Float32(values) => FeatureValue::Float(values.get(from..to)?),
            Values::Bytes(values) => FeatureValue::Bytes(values.get(from..to)?),
        })
    }
}

/// Encode rows one by one and call `each` with the bytes.
///
/// # Errors
/// A column does not have the row, or `each` failed.
pub fn encode_rows(
    columns: &[(&str, Rows<'_>)],
    rows: usize,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut features = Vec::with_capacity(columns.len());
    for row in 0..rows {
        features.clear();
        for (name, column) in columns {
            let value =
                column.of(row).ok_or_else(|| Error::internal(format!("column {name:?} has no row {row}")))?;
            features.push((*name, value));
        }
        each(&encode(&features))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_encoded_as_by_encode() {
        let strings: [&[u8]; 2] = [b"x", b""];
        let columns = [
            ("a", Rows { values: Values::Int64(&[1, 2, 3, 4]), cut: Cut::Every(2) }),
            ("b", Rows { values: Values::Float32(&[0.5]), cut: Cut::Offsets(&[0, 0, 1]) }),
            ("c", Rows { values: Values::Bytes(&strings), cut: Cut::Every(1) }),
        ];
        let mut got = Vec::new();
        encode_rows(&columns, 2, |row| {
            got.push(row.to_vec());
            Ok(())
        })
        .unwrap();
        let want = |a, b, c| {
            encode(&[
                ("a", FeatureValue::Int64(a)),
                ("b", FeatureValue::Float(b)),
                ("c", FeatureValue::Bytes(c)),
            ])
        };
        assert_eq!(got, [want(&[1, 2], &[], &[b"x"]), want(&[3, 4], &[0.5], &[b""])]);
        assert!(encode_rows(&columns, 3, |_| Ok(())).is_err());
    }
}
