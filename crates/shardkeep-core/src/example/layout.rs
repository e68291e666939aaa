//! Recognition, without parsing, of a map entry in the form that encoders write.
//!
//! A feature of one packed list, or of one byte string, is a payload after a head that is almost the same in each record,
//! since protobuf writes lengths before the data:
//!
//! ```text
//! 0a E  0a k key  12 V  kind L  0a P  payload        E = P + k + 8, V = P + 4, L = P + 2
//! ```
//!
//! The head is therefore known except for P, its last byte, and while E is below 128 every length is one byte. Any eight
//! bytes of the head are then `base + P * ones`, and a few comparisons of words recognise such an entry. All other entries
//! are parsed.

#![deny(clippy::indexing_slicing)]

use crate::schema::{DType, Kind};

/// Eight bytes of the head: `base + length * ones`.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    base: u64,
    ones: u64,
}

impl Word {
    /// Return 0 if the eight bytes are those of the head of a payload of `length` bytes.
    #[inline]
    fn differs(self, bytes: &[u8; 8], length: u64) -> u64 {
        u64::from_le_bytes(*bytes) ^ self.base.wrapping_add(self.ones.wrapping_mul(length))
    }
}

/// The head of the entries of one key.
#[derive(Debug, Clone)]
pub struct Layout {
    first: Word,
    last: Word,
    /// Words between the first and the last one, if these do not cover the head.
    between: Box<[Word]>,
    head_bytes: usize,
    /// The longest payload for which all lengths are one byte.
    longest: u64,
}

impl Layout {
    /// Return the layout of `key_field` (tag, length, text) with values of `kind`. With `kind` None the payload is the whole
    /// Feature, for a key without a column. `None`: entries of this key must be parsed.
    pub fn new(key_field: &[u8], kind: Option<&Kind>) -> Option<Self> {
        let value: &[u8] = match kind {
            None => &[0x12, 0],
            Some(kind) => match one_list_of(kind)? {
                DType::Bytes => &[0x12, 4, 0x0a, 2, 0x0a, 0],
                DType::Float32 => &[0x12, 4, 0x12, 2, 0x0a, 0],
                DType::Int64 => &[0x12, 4, 0x1a, 2, 0x0a, 0],
            },
        };
        let entry_bytes = u8::try_from(key_field.len() + value.len()).ok()?;
        let longest = 0x7f_u8.checked_sub(entry_bytes)?;
        let head = [&[0x0a, entry_bytes], key_field, value].concat();
        let after_key = 2 + key_field.len();
        let is_length = |at: usize| at == 1 || (at > after_key && (at - after_key) % 2 == 1);
        let ones: Vec<u8> = (0..head.len()).map(|at| u8::from(is_length(at))).collect();
        let word = |at: usize| {
            let eight = |bytes: &[u8]| bytes.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight));
            Some(Word { base: eight(&head)?, ones: eight(&ones)? })
        };
        let between = (8..head.len().saturating_sub(8)).step_by(8).map(word).collect::<Option<_>>()?;
        let (first, last) = (word(0)?, word(head.len().checked_sub(8)?)?);
        Some(Self { first, last, between, head_bytes: head.len(), longest: u64::from(longest) })
    }

    /// Return the bytes from the payload of the first entry on, and the length of the payload; the next entries follow it.
    /// `None`: the entry must be parsed.
    #[inline]
    pub fn open<'a>(&self, entries: &'a [u8]) -> Option<(&'a [u8], usize)> {
        let (head, rest) = entries.split_at_checked(self.head_bytes)?;
        let length = u64::from(*head.last()?);
        let mut wrong = self.first.differs(head.first_chunk()?, length);
        wrong |= self.last.differs(head.last_chunk()?, length);
        if !self.between.is_empty() {
            let (_, middle) = head.split_first_chunk::<8>()?;
            for (word, bytes) in self.between.iter().zip(middle.as_chunks().0) {
                wrong |= word.differs(bytes, length);
            }
        }
        let fits = wrong == 0 && length <= self.longest && length as usize <= rest.len();
        fits.then_some((rest, length as usize))
    }
}

/// Return the kind of list with all values of a row, if encoders write it as one payload.
fn one_list_of(kind: &Kind) -> Option<DType> {
    match kind {
        Kind::Fixed { dtype: DType::Bytes, shape, .. } => {
            (shape.iter().product::<usize>() == 1).then_some(DType::Bytes)
        }
        Kind::Fixed { dtype, .. } | Kind::Var { dtype } => Some(*dtype),
        Kind::Image { .. } => Some(DType::Bytes),
    }
}

/// Masks of a varint of one to eight bytes in a word: numeric bits, continuation bits, and the continuation bits that are
/// set.
const VARINT_BITS: [[u64; 3]; 8] =
    [bits_of(1), bits_of(2), bits_of(3), bits_of(4), bits_of(5), bits_of(6), bits_of(7), bits_of(8)];

const fn bits_of(length: u32) -> [u64; 3] {
    let unused = 64 - 8 * length;
    let more = 0x8080_8080_8080_8080 >> unused;
    [0x7f7f_7f7f_7f7f_7f7f >> unused, more, more >> 8]
}

/// Decode the first `length` bytes of `bytes`, if they are exactly one varint.
#[inline]
pub fn one_varint(bytes: &[u8], length: usize) -> Option<u64> {
    let Some((eight, [bits, more, set])) = bytes.first_chunk().zip(VARINT_BITS.get(length.wrapping_sub(1)))
    else {
        return slow_varint(bytes, length);
    };
    let word = u64::from_le_bytes(*eight);
    if word & more != *set {
        return None;
    }
    let word = word & bits;
    // Seven bits of each byte, combined in pairs.
    let word = (word & 0x00ff_00ff_00ff_00ff) | ((word & 0xff00_ff00_ff00_ff00) >> 1);
    let word = (word & 0x0000_ffff_0000_ffff) | ((word & 0xffff_0000_ffff_0000) >> 2);
    Some((word & 0xffff_ffff) | ((word & 0xffff_ffff_0000_0000) >> 4))
}

#[cold]
fn slow_varint(bytes: &[u8], length: usize) -> Option<u64> {
    let mut cursor = crate::example::wire::Cursor::new(bytes.get(..length)?);
    let number = cursor.varint().ok()?;
    cursor.is_done().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::wire::{Cursor, put_varint, varint_len};

    #[test]
    fn varints_of_every_length_are_decoded_as_by_the_cursor() {
        for bits in 0..64 {
            for value in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) | 1, 0x5a5a_5a5a_5a5a_5a5a >> bits] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let length = varint_len(value);
                for behind in 0..9 {
                    bytes.resize(length + behind, 0xc3);
                    assert_eq!(one_varint(&bytes, length), Some(value));
                    assert_eq!(one_varint(&bytes, length - 1), None, "truncated");
                    assert_eq!(one_varint(&bytes, length + 1), None, "followed by a byte");
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_none_and_an_overlong_varint_is_decoded() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut bytes = state.to_le_bytes().to_vec();
            // Many of them have continuation bits in most bytes.
            bytes.iter_mut().skip((state >> 60) as usize % 3).for_each(|byte| *byte |= 0x80 * (*byte & 1));
            bytes.extend_from_slice(&(state >> 17).to_le_bytes());
            for length in 0..=bytes.len() {
                let mut cursor = Cursor::new(&bytes[..length]);
                let wanted = cursor.varint().ok().filter(|_| cursor.is_done());
                assert_eq!(one_varint(&bytes, length), wanted, "{length} of {bytes:02x?}");
                assert_eq!(one_varint(&bytes[..length], length), wanted, "{length} of {bytes:02x?}");
            }
        }
    }

    /// Return the payload, if the parser finds an entry of this key with exactly one packed int64 list.
    fn parsed<'a>(entries: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
        let take = |message: &'a [u8], tag: u8| {
            let mut cursor = Cursor::new(message.strip_prefix(&[tag])?);
            Some((cursor.bytes().ok()?, cursor.rest()))
        };
        let whole = |message: &'a [u8], tag: u8| {
            take(message, tag).filter(|(_, rest)| rest.is_empty()).map(|one| one.0)
        };
        let (found, value) = take(take(entries, 0x0a)?.0, 0x0a)?;
        (found == key).then_some(())?;
        whole(whole(whole(value, 0x12)?, 0x1a)?, 0x0a)
    }

    fn entry(key: &[u8], payload: &[u8]) -> Vec<u8> {
        let field = |tag: u8, content: &[u8]| {
            let mut out = vec![tag];
            put_varint(&mut out, content.len() as u64);
            out.extend_from_slice(content);
            out
        };
        let value = field(0x12, &field(0x1a, &field(0x0a, payload)));
        field(0x0a, &[field(0x0a, key), value].concat())
    }

    #[test]
    fn a_layout_accepts_only_entries_that_the_parser_accepts() {
        let kind = Kind::Var { dtype: DType::Int64 };
        for key_bytes in [0, 1, 3, 5, 6, 7, 13, 14, 15, 22, 23, 40, 110, 119, 120, 130, 300] {
            let key = &vec![b'k'; key_bytes];
            let mut key_field = vec![0x0a];
            put_varint(&mut key_field, key_bytes as u64);
            key_field.extend_from_slice(key);
            let Some(layout) = Layout::new(&key_field, Some(&kind)) else {
                assert!(key_bytes > 119, "{key_bytes}");
                continue;
            };
            for payload_bytes in [0, 1, 2, 9, 90, 119, 128, 255, 256, 300] {
                let good = entry(key, &vec![0x81; payload_bytes]);
                let longest = 119_usize.saturating_sub(key_bytes);
                assert_eq!(layout.open(&good).is_some(), payload_bytes <= longest);
                for at in 0..good.len() {
                    assert!(layout.open(&good[..at]).is_none(), "cut at {at}");
                    for value in 0..=255 {
                        let mut bytes = good.clone();
                        bytes[at] = value;
                        if let Some((behind, length)) = layout.open(&bytes) {
                            assert_eq!(parsed(&bytes, key), behind.get(..length), "{bytes:02x?}");
                        }
                    }
                }
            }
        }
    }
}
