//! Bits of a slice, the lowest of each byte first (RFC 1951).
#![deny(clippy::indexing_slicing)]

/// A position in a slice. After its end come zero bits.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Return the number of the next bit.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_past_end(&self) -> bool {
        self.at > self.bytes.len() * 8
    }

    pub(super) fn left_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.at / 8)
    }

    /// Return at least the next 57 bits.
    #[inline]
    pub(super) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        word >> (self.at % 8)
    }

    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
        self.at += count as usize;
    }

    /// Read up to 32 bits.
    pub(super) fn read(&mut self, count: u32) -> u64 {
        let value = self.peek() & ((1 << count) - 1);
        self.skip(count);
        value
    }

    /// Skip to the next whole byte; return the bits in between.
    pub(super) fn align(&mut self) -> u64 {
        let count = (8 - self.at % 8) % 8;
        self.read(count as u32)
    }

    /// Read up to `count` bytes; the position must be that of a byte.
    pub(super) fn whole_bytes(&mut self, count: usize) -> &'a [u8] {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let bytes = rest.get(..count).unwrap_or(rest);
        self.at += bytes.len() * 8;
        bytes
    }
}
