//! Serialised selections (`H5S__hyper_serialize` and others): all of a dataspace, or one box.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::MOST_DIMENSIONS;

const HYPERSLAB: u32 = 2;
const ALL: u32 = 3;
const REGULAR: u8 = 1;

/// The kind of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    All,
    /// One box with this number of dimensions.
    Box(usize),
}

/// Take a selection; for a box, append a number for each dimension to `low` and `high` (exclusive).
///
/// # Errors
/// The selection is of another kind, has no end, or is damaged.
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

/// Take start, stride, count and block size of each dimension.
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

/// Take a list of blocks, which must have one entry.
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

pub(crate) fn signed(number: u64) -> Known<i64> {
    i64::try_from(number).map_err(|_| NotKnown("a number beyond 63 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn take(bytes: &[u8]) -> Known<(Selection, Vec<i64>, Vec<i64>)> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        let mut cursor = Cursor::new(bytes);
        let selection = take_selection(&mut cursor, &mut low, &mut high)?;
        assert_eq!(cursor.rest(), [0; 0]);
        Ok((selection, low, high))
    }

    #[test]
    fn all_of_it() {
        assert_eq!(take(&numbers(&[3, 1, 0, 0])), Ok((Selection::All, vec![], vec![])));
        assert!(take(&numbers(&[0, 1, 0, 0])).is_err(), "nothing");
        assert!(take(&numbers(&[1, 1, 0, 0])).is_err(), "points");
    }

    #[test]
    fn a_list_of_one_block() {
        let block = numbers(&[2, 1, 0, 24, 2, 1, 4, 0, 11, 5]);
        assert_eq!(take(&block), Ok((Selection::Box(2), vec![4, 0], vec![12, 6])));
        assert!(take(&numbers(&[2, 1, 0, 24, 2, 1, 4, 0, 3, 5])).is_err(), "it ends before it begins");
        assert!(take(&numbers(&[2, 1, 0, 24, 1, 2, 0, 1, 2, 3])).is_err(), "two blocks");
        assert!(take(&numbers(&[2, 1, 0, 24, 33, 1])).is_err(), "33 dimensions");
    }

    #[test]
    fn a_regular_one_of_each_width() {
        for width in [2_usize, 4, 8] {
            let regular = |axes: &[[u64; 4]]| {
                let mut bytes = numbers(&[2, 3]);
                bytes.extend([1, width as u8]);
                bytes.extend((axes.len() as u32).to_le_bytes());
                for number in axes.iter().flatten() {
                    bytes.extend(number.to_le_bytes().get(..width).unwrap());
                }
                bytes
            };
            let expected = Ok((Selection::Box(2), vec![7, 3], vec![9, 13]));
            assert_eq!(take(&regular(&[[7, 1, 2, 1], [3, 5, 2, 5]])), expected);
            assert_eq!(take(&regular(&[[7, 9, 1, 2], [3, 1, 1, 10]])), expected);
            for odd in [[0, 2, 2, 1], [0, 1, u64::MAX, 1], [0, 1, 1, u64::MAX], [0, 1, 0, 1]] {
                assert!(take(&regular(&[odd])).is_err(), "{odd:?}");
            }
        }
        let beyond = [&numbers(&[2, 2])[..], &[1, 0, 0, 0, 0], &numbers(&[1])].concat();
        let numbers = [u64::MAX - 5, 1, 7, 1].map(u64::to_le_bytes).concat();
        assert!(take(&[beyond, numbers].concat()).is_err());
    }
}
