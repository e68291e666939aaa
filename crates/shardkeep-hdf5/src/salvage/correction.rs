//! Correction of a single flipped bit from a lookup3 checksum.
//!
//! lookup3 is not linear, so no table gives the bit: each bit is flipped in turn. Of `n` damaged bytes with more than one wrong bit,
//! a flip matches the checksum by chance with a probability of `8 n / 2^32`: 1 in 130,000 for 4 KiB, 1 in 11 million for a superblock.

use crate::format::lookup3::lookup3;
use crate::salvage::reader::flip;

/// Largest size of a structure: 32,768 flips take about 70 ms.
pub const LARGEST_BYTES: usize = 4096;

/// Return the number of the bit that is flipped in bytes that end with their checksum.
///
/// Return None if the checksum is right, no single flip makes it right, more than one does, or there are more than
/// `LARGEST_BYTES`.
#[must_use]
pub fn correct_flipped_bit(bytes: &[u8]) -> Option<usize> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    if bytes.len() > LARGEST_BYTES {
        return None;
    }
    let sum = u32::from_le_bytes(*sum);
    let wrong = lookup3(body) ^ sum;
    if wrong == 0 {
        return None;
    }
    let mut found = wrong.is_power_of_two().then(|| 8 * body.len() + wrong.trailing_zeros() as usize);
    let mut changed = body.to_vec();
    for bit in 0..8 * body.len() {
        flip(&mut changed, bit);
        if lookup3(&changed) == sum && found.replace(bit).is_some() {
            return None;
        }
        flip(&mut changed, bit);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_found() {
        let mut bytes: Vec<u8> = (0..=150).collect();
        bytes.extend(lookup3(&bytes).to_le_bytes());
        assert_eq!(correct_flipped_bit(&bytes), None);
        for bit in 0..8 * bytes.len() {
            flip(&mut bytes, bit);
            assert_eq!(correct_flipped_bit(&bytes), Some(bit));
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn two_flipped_bits_and_short_or_long_structures_are_left() {
        let mut bytes: Vec<u8> = (0..=150).collect();
        bytes.extend(lookup3(&bytes).to_le_bytes());
        for other in 1..8 * bytes.len() {
            flip(&mut bytes, 0);
            flip(&mut bytes, other);
            assert_eq!(correct_flipped_bit(&bytes), None);
            flip(&mut bytes, other);
            flip(&mut bytes, 0);
        }
        assert_eq!(correct_flipped_bit(&[0; 3]), None);
        assert_eq!(correct_flipped_bit(&[1; LARGEST_BYTES + 1]), None);
    }
}
