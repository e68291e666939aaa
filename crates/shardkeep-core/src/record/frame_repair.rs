//! Correction of single flipped bits of a frame of known length.
#![deny(clippy::indexing_slicing)]

use crate::record::bit_flip::{self, Flip};
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES};

/// Description of a header that was restored from the start of the next frame.
pub(crate) const HEADER_MADE_AGAIN: &str = "the header was made again from the length that the index has";

/// Correct a flipped bit of the header, and one of payload and footer. Return a description of the bits; None if nothing is
/// wrong, or if more is wrong: then nothing is changed.
///
/// The length is known from the start of the next frame. So a header with more than one flipped bit can be
/// restored, if the checksum of the payload is right.
pub fn correct_flipped_bits(
    header: &mut [u8; HEADER_BYTES],
    payload: &mut [u8],
    footer: &mut [u8; FOOTER_BYTES],
) -> Option<String> {
    let mut done: Vec<String> = Vec::new();
    let good = framing::header(payload.len() as u64);
    let whole = framing::check_payload(payload, *footer).is_ok();
    if *header != good {
        let mut corrected = *header;
        match bit_flip::correct_header(&mut corrected) {
            Some(flip) if corrected == good => done.push(describe(flip, "length")),
            _ if whole && framing::parse_header(header).is_err() => {
                done.push(HEADER_MADE_AGAIN.to_string());
            }
            _ => return None,
        }
    }
    if !whole {
        done.push(describe(bit_flip::correct(payload, footer)?, "payload"));
    }
    *header = good;
    (!done.is_empty()).then(|| done.join("; "))
}

pub(crate) fn describe(flip: Flip, field: &str) -> String {
    match flip {
        Flip::Data(bit) => format!("bit {} of byte {} of the {field} was flipped", bit % 8, bit / 8),
        Flip::Checksum(bit) => {
            format!("bit {} of byte {} of the checksum of the {field} was flipped", bit % 8, bit / 8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(frame: &[u8]) -> ([u8; 12], Vec<u8>, [u8; 4]) {
        let (header, rest) = frame.split_first_chunk().unwrap();
        let (payload, footer) = rest.split_last_chunk().unwrap();
        (*header, payload.to_vec(), *footer)
    }

    #[test]
    fn every_bit_of_a_frame() {
        for payload in [&b""[..], b"x", b"a record of some bytes"] {
            let mut frame = Vec::new();
            framing::push(&mut frame, payload);
            let good = parts(&frame);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                let (mut header, mut body, mut footer) = parts(&frame);
                let what = correct_flipped_bits(&mut header, &mut body, &mut footer).unwrap();
                assert!(
                    what.contains("was flipped") && what.contains(&format!("bit {} of", bit % 8)),
                    "{what}"
                );
                assert_eq!((header, body, footer), good);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            let (mut header, mut body, mut footer) = good;
            assert_eq!(correct_flipped_bits(&mut header, &mut body, &mut footer), None, "nothing is wrong");
        }
    }

    #[test]
    fn other_damage_is_not_changed() {
        let mut frame = Vec::new();
        framing::push(&mut frame, b"a record of some bytes");
        // One bit of the header, two of the payload.
        for byte in [3, 14, 15] {
            frame[byte] ^= 1;
        }
        let before = parts(&frame);
        let (mut header, mut body, mut footer) = before.clone();
        assert_eq!(correct_flipped_bits(&mut header, &mut body, &mut footer), None);
        assert_eq!((header, body, footer), before);
    }

    #[test]
    fn a_whole_header_of_another_length_is_no_flip() {
        let (_, mut body, mut footer) = parts(&{
            let mut frame = Vec::new();
            framing::push(&mut frame, b"four");
            frame
        });
        assert_eq!(correct_flipped_bits(&mut framing::header(5), &mut body, &mut footer), None);
    }
}
