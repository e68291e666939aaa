//! Numbers and names from bytes, and the error of the reader.

use std::fmt;

/// The reason why metadata was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The reader does not support it: ask HDF5.
    NotKnown(&'static str),
    /// No writer leaves this state, and HDF5 refuses it, loops or crashes: do not ask HDF5.
    Damaged {
        what: &'static str,
        /// Offset of the structure from the first byte of the file; None while it is not known.
        offset_bytes: Option<u64>,
    },
}

pub use Unread::NotKnown;

pub type Known<T> = Result<T, Unread>;

impl Unread {
    #[must_use]
    pub const fn damaged(what: &'static str) -> Self {
        Self::Damaged { what, offset_bytes: None }
    }

    /// Set the offset of damage that has none yet.
    #[must_use]
    pub fn at(self, here: u64) -> Self {
        match self {
            Self::Damaged { what, offset_bytes: None } => Self::Damaged { what, offset_bytes: Some(here) },
            other => other,
        }
    }

    /// Convert "not known" to damage, for a structure that must exist.
    #[must_use]
    pub fn as_damage(self) -> Self {
        match self {
            NotKnown(what) => Self::damaged(what),
            damaged => damaged,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotKnown(what) | Self::Damaged { what, .. }) = self;
        f.write_str(what)
    }
}

impl std::error::Error for Unread {}

/// A position in bytes, which are taken from the front. All numbers of HDF5's metadata are little-endian.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Take `length` bytes.
    ///
    /// # Errors
    /// The bytes end before, as for the other methods.
    pub fn take(&mut self, length: usize) -> Known<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(NotKnown("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Take a number of 1 to 8 bytes.
    pub fn number(&mut self, width: usize) -> Known<u64> {
        let mut bytes = [0; 8];
        let target = bytes.get_mut(..width).ok_or(NotKnown("a number of more than 8 bytes"))?;
        target.copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn u8(&mut self) -> Known<u8> {
        Ok(self.number(1)? as u8)
    }

    pub fn u16(&mut self) -> Known<u16> {
        Ok(self.number(2)? as u16)
    }

    pub fn u32(&mut self) -> Known<u32> {
        Ok(self.number(4)? as u32)
    }

    /// Take a number that counts bytes or items in memory.
    pub fn length(&mut self, width: usize) -> Known<usize> {
        usize::try_from(self.number(width)?).map_err(|_| NotKnown("a length beyond memory"))
    }

    /// Take an address; None for the undefined address.
    pub fn address(&mut self, width: usize) -> Known<Option<u64>> {
        let address = self.number(width)?;
        let nowhere = u64::MAX.checked_shr(64_u32.saturating_sub(8 * width as u32)).unwrap_or(0);
        Ok(Some(address).filter(|address| *address != nowhere))
    }

    /// Take the bytes before the next NUL byte, and that byte.
    pub fn text(&mut self) -> Known<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == 0).ok_or(NotKnown("a text without an end"))?;
        let text = self.take(length)?;
        self.take(1)?;
        Ok(text)
    }

    /// Take bytes that must equal `bytes`.
    ///
    /// # Errors
    /// The next bytes differ.
    pub fn expect(&mut self, bytes: &[u8], otherwise: &'static str) -> Known<()> {
        if self.take(bytes.len())? == bytes { Ok(()) } else { Err(NotKnown(otherwise)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_width() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(cursor.u8(), Ok(1));
        assert_eq!(cursor.u16(), Ok(0x0302));
        assert_eq!(cursor.number(3), Ok(0x0006_0504));
        assert!(cursor.u32().is_err());
        assert_eq!(cursor.rest(), [7, 8, 9]);
        assert_eq!(Cursor::new(&bytes).number(8), Ok(0x0807_0605_0403_0201));
        assert!(Cursor::new(&bytes).number(9).is_err());
    }

    #[test]
    fn nowhere_has_all_bits_of_its_width() {
        assert_eq!(Cursor::new(&[255; 8]).address(8), Ok(None));
        assert_eq!(Cursor::new(&[255; 8]).address(4), Ok(None));
        assert_eq!(Cursor::new(&[255, 255, 255, 127]).address(4), Ok(Some(0x7fff_ffff)));
        assert_eq!(Cursor::new(&[255, 255, 255, 255, 0, 0, 0, 0]).address(8), Ok(Some(0xffff_ffff)));
    }

    #[test]
    fn a_text_needs_its_end() {
        let mut cursor = Cursor::new(b"ab\0\0c");
        assert_eq!(cursor.text(), Ok(b"ab".as_slice()));
        assert_eq!(cursor.text(), Ok(b"".as_slice()));
        assert!(cursor.text().is_err());
    }
}
