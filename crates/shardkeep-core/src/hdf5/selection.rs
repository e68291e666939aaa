//! A selection as it is written in a file (`H5S__hyper_serialize` and its like): all of a dataspace, or one box.

use super::cursor::{Cursor, Known, NotKnown};
use super::messages::MOST_DIMENSIONS;

const HYPERSLAB: u32 = 2;
const ALL: u32 = 3;
const REGULAR: u8 = 1;

/// What is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    All,
    /// One box of so many dimensions.
    Box(usize),
}

/// Take a selection; of a box, `low` and `high` (exclusive) get a number for each dimension.
///
/// # Errors
/// It is of another kind, has no end, or is damaged.
pub fn take_selection(cursor: &mut Cursor<'_>, low: &mut Vec<i64>, high: &mut Vec<i64>) -> Known<Selection> {
    let (kind, version) = (cursor.u32()?, cursor.u32()?);
    match (kind, version) {
        (ALL, 1) => {
            cursor.take(8)?;
            Ok(Selection::All)
        }
        (HYPERSLAB, 1) => {
            cursor.take(8)?;
            block(cursor, 4, low, high)
        }
        (HYPERSLAB, 2 | 3) => {
            let flags = cursor.u8()?;
            let width = if version == 2 {
                cursor.take(4)?;
                8
            } else {
                usize::from(cursor.u8()?)
            };
            match (flags, width) {
                (REGULAR, 2 | 4 | 8) => regular(cursor, width, low, high),
                (0, 2 | 4 | 8) => block(cursor, width, low, high),
                _ => Err(NotKnown("another kind of hyperslab")),
            }
        }
        _ => Err(NotKnown("another kind of selection")),
    }
}

/// Start, stride, count and block size of each dimension.
fn regular(
    cursor: &mut Cursor<'_>,
    width: usize,
    low: &mut Vec<i64>,
    high: &mut Vec<i64>,
) -> Known<Selection> {
    let dimensions = dimensions(cursor)?;
    for _ in 0..dimensions {
        let start = cursor.number(width)?;
        let stride = cursor.number(width)?;
        let count = cursor.address(width)?.ok_or(NotKnown("a selection without an end"))?;
        let block = cursor.address(width)?.ok_or(NotKnown("a selection without an end"))?;
        if count == 0 || block == 0 || (count > 1 && stride != block) {
            return Err(NotKnown("not one box"));
        }
        let end = count.checked_mul(block).and_then(|length| start.checked_add(length));
        low.push(signed(start)?);
        high.push(signed(end.ok_or(NotKnown("a selection beyond all dimensions"))?)?);
    }
    Ok(Selection::Box(dimensions))
}

/// A list of blocks, which has to be one.
fn block(cursor: &mut Cursor<'_>, width: usize, low: &mut Vec<i64>, high: &mut Vec<i64>) -> Known<Selection> {
    let dimensions = dimensions(cursor)?;
    if cursor.number(width)? != 1 {
        return Err(NotKnown("not one box"));
    }
    let mut starts = *cursor;
    cursor.take(dimensions * width)?;
    for _ in 0..dimensions {
        let (start, last) = (starts.number(width)?, cursor.number(width)?);
        if start > last {
            return Err(NotKnown("a box that ends before it begins"));
        }
        low.push(signed(start)?);
        high.push(signed(last)?.checked_add(1).ok_or(NotKnown("a selection beyond all dimensions"))?);
    }
    Ok(Selection::Box(dimensions))
}

fn dimensions(cursor: &mut Cursor<'_>) -> Known<usize> {
    let dimensions = cursor.length(4)?;
    if (1..=MOST_DIMENSIONS).contains(&dimensions) {
        Ok(dimensions)
    } else {
        Err(NotKnown("a selection of another number of dimensions"))
    }
}

pub(super) fn signed(number: u64) -> Known<i64> {
    i64::try_from(number).map_err(|_| NotKnown("a number beyond 63 bits"))
}
