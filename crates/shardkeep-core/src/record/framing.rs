//! The TFRecord frame.
//!
//! ```text
//! u64 LE   length of the payload
//! u32 LE   masked CRC32C of those 8 bytes
//! length   payload
//! u32 LE   masked CRC32C of the payload
//! ```
//!
//! A file has no magic number, header, footer or index (tensorflow/core/lib/io/record_writer.h).
//! An empty file is a valid file and an empty payload a valid record.
#![deny(clippy::indexing_slicing)]

use crate::crc;
use crate::error::{Error, Kind};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 12;
/// Bytes after the payload.
pub const FOOTER_BYTES: usize = 4;
/// Bytes of a frame without its payload.
pub const OVERHEAD_BYTES: u64 = 16;

/// Return the header of a payload of `length` bytes.
#[must_use]
pub fn header(length: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    let (len, sum) = out.split_at_mut(8);
    len.copy_from_slice(&length.to_le_bytes());
    sum.copy_from_slice(&crc::mask(crc::crc32c_u64(length)).to_le_bytes());
    out
}

/// Return the footer of `payload`.
#[must_use]
pub fn footer(payload: &[u8]) -> [u8; FOOTER_BYTES] {
    crc::masked_crc32c(payload).to_le_bytes()
}

/// Append the whole frame of `payload`.
pub fn push(out: &mut Vec<u8>, payload: &[u8]) {
    out.reserve(payload.len() + OVERHEAD_BYTES as usize);
    out.extend_from_slice(&header(payload.len() as u64));
    out.extend_from_slice(payload);
    out.extend_from_slice(&footer(payload));
}

/// Return the payload length of a header.
///
/// # Errors
/// The header's checksum does not match. The caller adds path, record and offset.
#[inline]
pub fn parse_header(bytes: &[u8; HEADER_BYTES]) -> Result<u64, Error> {
    let (length, stored) = fields(bytes);
    let computed = crc::mask(crc::crc32c_u64(length));
    if stored == computed { Ok(length) } else { Err(bad_header(bytes, length, stored, computed)) }
}

/// Return the payload length of a header; None if its checksum does not match.
#[inline]
#[must_use]
pub fn length_of(bytes: &[u8; HEADER_BYTES]) -> Option<u64> {
    let (length, stored) = fields(bytes);
    (stored == crc::mask(crc::crc32c_u64(length))).then_some(length)
}

/// Return length and checksum as they are stored.
#[inline]
pub(crate) fn fields(bytes: &[u8; HEADER_BYTES]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, s0, s1, s2, s3] = *bytes;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([s0, s1, s2, s3]))
}

#[cold]
fn bad_header(bytes: &[u8; HEADER_BYTES], length: u64, stored: u32, computed: u32) -> Error {
    let message = if bytes.iter().all(|b| *b == 0) {
        "NUL bytes where a record header should be: a hole that was never written, or a power cut; \
         fetch or write the file again"
            .to_string()
    } else if stored == crc::crc32c_u64(length) {
        "the header has an unmasked CRC32C: the writer did not follow the TFRecord format".to_string()
    } else {
        format!(
            "the checksum of the length field is {stored:#010x}, want {computed:#010x}: the header is damaged"
        )
    };
    Error::new(Kind::Corrupt, message)
}

/// Check a payload against its footer.
///
/// # Errors
/// The checksum does not match. The caller adds path, record and offset.
#[inline]
pub fn check_payload(payload: &[u8], footer: [u8; FOOTER_BYTES]) -> Result<(), Error> {
    let stored = u32::from_le_bytes(footer);
    let computed = crc::masked_crc32c(payload);
    if stored == computed { Ok(()) } else { Err(bad_payload(stored, computed, payload.len())) }
}

#[cold]
fn bad_payload(stored: u32, computed: u32, length: usize) -> Error {
    Error::new(
        Kind::Corrupt,
        format!(
            "the checksum of the {length}-byte payload is {stored:#010x}, want {computed:#010x}: the record is damaged"
        ),
    )
}

/// A record that the file is too short for.
#[cold]
#[must_use]
pub fn truncated(what: &str, have: u64, want: u64) -> Error {
    Error::new(
        Kind::Truncated,
        format!("the file ends inside {what}: {have} of {want} bytes; a writer died or a copy was cut short"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_the_format_says() {
        let mut out = Vec::new();
        push(&mut out, b"abc");
        assert_eq!(out.len(), 3 + 16);
        let head: [u8; HEADER_BYTES] = out[..12].try_into().unwrap();
        assert_eq!(parse_header(&head), Ok(3));
        assert_eq!(check_payload(&out[12..15], out[15..].try_into().unwrap()), Ok(()));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut good = Vec::new();
        push(&mut good, b"some payload");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let head: [u8; HEADER_BYTES] = bad[..12].try_into().unwrap();
            let payload = &bad[12..bad.len() - 4];
            let foot: [u8; 4] = bad[bad.len() - 4..].try_into().unwrap();
            assert!(parse_header(&head).is_err() || check_payload(payload, foot).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_hole_and_an_unmasked_sum_are_named() {
        let hole = parse_header(&[0; 12]).unwrap_err();
        assert!(hole.message.contains("NUL"), "{hole}");
        let mut raw = [0; 12];
        raw[..8].copy_from_slice(&5_u64.to_le_bytes());
        raw[8..].copy_from_slice(&crc::crc32c_u64(5).to_le_bytes());
        assert!(parse_header(&raw).unwrap_err().message.contains("unmasked"));
    }
}
