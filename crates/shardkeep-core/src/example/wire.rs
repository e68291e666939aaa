//! The protocol-buffer wire format, as far as `tf.train.Example` needs it.
//!
//! A [`Cursor`] walks over one message. It never indexes, never allocates and accepts what protobuf's own parsers
//! accept: varints of up to ten bytes (bits past the 64th are dropped), tags of up to five, groups that are skipped
//! as unknown fields (nested at most [`MAX_GROUP_DEPTH`] deep).
//! Format: <https://protobuf.dev/programming-guides/encoding/>.

#![deny(clippy::indexing_slicing)]

/// Unknown groups nested deeper than this are refused, as protobuf's default recursion limit does.
pub const MAX_GROUP_DEPTH: usize = 100;

/// The damage of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The message ends inside a varint, a fixed-width value or a length-delimited field.
    Truncated,
    /// A varint has more than ten bytes (a tag: more than five).
    LongVarint,
    /// Field number 0 or a number past 2^29 - 1.
    BadField,
    /// Wire type 6 or 7.
    BadWireType(u8),
    /// A group that ends without a start, under another number, or never; or nests too deep.
    BadGroup,
    /// A string field is not UTF-8.
    NotUtf8,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => write!(f, "a field runs past the end of its message"),
            Self::LongVarint => write!(f, "a varint does not end"),
            Self::BadField => write!(f, "a field number is out of range"),
            Self::BadWireType(wire) => write!(f, "wire type {wire} does not exist"),
            Self::BadGroup => write!(f, "a group is not closed as it was opened"),
            Self::NotUtf8 => write!(f, "a key is not UTF-8"),
        }
    }
}

impl std::error::Error for WireError {}

/// The wire type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Varint,
    Fixed64,
    Bytes,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// A position inside one message.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Create a cursor at the start of `message`.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Return the bytes that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Return true at the end of the message.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Take `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Take a varint; bits past the 64th are dropped, as protobuf does.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest.split_first() {
            Some((&byte, tail)) if byte < 0x80 => {
                self.rest = tail;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireError::Truncated } else { WireError::LongVarint })
    }

    /// Take a field's number and wire type; `None` at the end of the message.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<(u32, Wire)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let before = self.rest.len();
        let raw = self.varint()?;
        if before - self.rest.len() > 5 {
            return Err(WireError::LongVarint);
        }
        let raw = u32::try_from(raw).map_err(|_| WireError::BadField)?;
        let field = raw >> 3;
        if field == 0 {
            return Err(WireError::BadField);
        }
        let wire = match raw & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            other => return Err(WireError::BadWireType(other as u8)),
        };
        Ok(Some((field, wire)))
    }

    /// Take a length and as many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Truncated)?)
    }

    /// Take four bytes.
    #[inline]
    pub fn fixed32(&mut self) -> Result<[u8; 4], WireError> {
        let (head, tail) = self.rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Skip the value of a field.
    pub fn skip(&mut self, field: u32, wire: Wire) -> Result<(), WireError> {
        let mut open = [0u32; MAX_GROUP_DEPTH];
        let mut depth = 0usize;
        let (mut field, mut wire) = (field, wire);
        loop {
            match wire {
                Wire::Varint => drop(self.varint()?),
                Wire::Fixed64 => drop(self.take(8)?),
                Wire::Bytes => drop(self.bytes()?),
                Wire::Fixed32 => drop(self.take(4)?),
                Wire::GroupStart => {
                    *open.get_mut(depth).ok_or(WireError::BadGroup)? = field;
                    depth += 1;
                }
                Wire::GroupEnd => {
                    depth = depth.checked_sub(1).ok_or(WireError::BadGroup)?;
                    if open.get(depth) != Some(&field) {
                        return Err(WireError::BadGroup);
                    }
                }
            }
            if depth == 0 {
                return Ok(());
            }
            (field, wire) = self.tag()?.ok_or(WireError::BadGroup)?;
        }
    }
}

/// Return the fields of a message: tag (`field_number << 3 | wire_type`), start and end of the content. Of a varint
/// the second number is the value, and the third is 0. Groups are skipped.
///
/// # Errors
/// The message is not valid.
pub fn fields(message: &[u8]) -> Result<Vec<(u32, u64, u64)>, WireError> {
    let mut cursor = Cursor::new(message);
    let mut found = Vec::new();
    while let Some((field, wire)) = cursor.tag()? {
        let tag = |wire_type: u32| field << 3 | wire_type;
        let (wire_type, content) = match wire {
            Wire::Varint => {
                found.push((tag(0), cursor.varint()?, 0));
                continue;
            }
            Wire::Fixed64 => (1, cursor.take(8)?),
            Wire::Bytes => (2, cursor.bytes()?),
            Wire::Fixed32 => (5, cursor.take(4)?),
            Wire::GroupStart | Wire::GroupEnd => {
                cursor.skip(field, wire)?;
                continue;
            }
        };
        let end = (message.len() - cursor.rest().len()) as u64;
        found.push((tag(wire_type), end - content.len() as u64, end));
    }
    Ok(found)
}

/// Bytes that `value` takes as a varint: 1 to 10.
#[inline]
pub fn varint_len(value: u64) -> usize {
    // 9/64 per bit and one byte at least; exact for every width from 1 to 64 bits.
    ((64 - (value | 1).leading_zeros() as usize) * 9 + 64) / 64
}

/// Append `value` as a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, (1 << bits) | 1] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value:#x}");
                let mut cursor = Cursor::new(&out);
                assert_eq!(cursor.varint(), Ok(value));
                assert!(cursor.is_done());
            }
        }
    }

    #[test]
    fn a_varint_ends_within_ten_bytes() {
        assert_eq!(Cursor::new(&[0x80; 9]).varint(), Err(WireError::Truncated));
        assert_eq!(Cursor::new(&[0x80; 10]).varint(), Err(WireError::LongVarint));
        let mut overlong = [0xff; 10];
        overlong[9] = 0x7f;
        assert_eq!(Cursor::new(&overlong).varint(), Ok(u64::MAX));
    }

    #[test]
    fn tags_refuse_what_protobuf_refuses() {
        assert_eq!(Cursor::new(&[0x02]).tag(), Err(WireError::BadField));
        assert_eq!(Cursor::new(&[0x0e]).tag(), Err(WireError::BadWireType(6)));
        assert_eq!(Cursor::new(&[0x8a, 0x80, 0x80, 0x80, 0x80, 0x00]).tag(), Err(WireError::LongVarint));
        assert_eq!(Cursor::new(&[]).tag(), Ok(None));
    }

    #[test]
    fn groups_are_skipped_whole_or_refused() {
        let skip = |bytes: &[u8]| {
            let mut cursor = Cursor::new(bytes);
            let tag = cursor.tag()?;
            let (field, wire) = tag.ok_or(WireError::Truncated)?;
            cursor.skip(field, wire)?;
            Ok(cursor.rest().len())
        };
        assert_eq!(skip(&[0x1b, 0x08, 0x05, 0x23, 0x24, 0x1c, 0x07]), Ok(1));
        assert_eq!(skip(&[0x1b, 0x24]), Err(WireError::BadGroup));
        assert_eq!(skip(&[0x1b, 0x08, 0x05]), Err(WireError::BadGroup));
        assert_eq!(skip(&[0x1c]), Err(WireError::BadGroup));
        assert_eq!(skip(&[0x1b; 200]), Err(WireError::BadGroup));
    }

    #[test]
    fn a_length_past_the_end_is_truncated() {
        assert_eq!(Cursor::new(&[0x05, 1, 2]).bytes(), Err(WireError::Truncated));
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&huge).bytes(), Err(WireError::Truncated));
    }
}
