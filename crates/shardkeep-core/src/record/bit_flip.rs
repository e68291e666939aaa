//! Position of a single flipped bit of a record, from its checksum alone.
//!
//! A CRC is linear, so the difference between the CRC that was stored and the one that was computed (the *syndrome*)
//! depends on the flipped bits only. For one flipped bit that `j` bits follow, the syndrome is `x^(32 + j)` modulo the
//! polynomial, and `j` is a discrete logarithm. CRC32C's polynomial is `x + 1` times a primitive one of degree 31, so
//! these powers are all different up to 2^31 - 1 bits, 256 MiB: one baby-step giant-step search over a table of 2^14
//! entries finds the position in (bits / 2^14) steps of a few nanoseconds, without reading the data.
//!
//! The limits of the method:
//!
//! * Two flipped bits of the data have an even syndrome (`x + 1` divides the polynomial), one has an odd one.
//! * TFRecord stores the CRC masked, by a rotation and an *addition*. A flipped bit of the stored field is therefore
//!   found in the masked form. If a flip could be in either, or one flip of the data together with one of the
//!   field has the same syndrome, the result is None. The remaining errors are two flips of the data that equal
//!   one of the field through a carry of the mask: about one in 2 * 10^8 double flips.
//! * Any other damage has the syndrome of a flipped bit by chance once in `2^32 / (bits + 32)`; [`MOST_BYTES`] bounds that.

use std::sync::LazyLock;

use crate::crc::{self, POLYNOMIAL};
use crate::record::framing::{FOOTER_BYTES, HEADER_BYTES};

/// Longest record that is repaired: in longer ones arbitrary damage would equal a flipped bit in more than one of 512
/// cases. (The method itself works up to 256 MiB.)
pub const MOST_BYTES: usize = 1 << 20;

const BABY_STEPS: u32 = 1 << 14;
const SLOTS: usize = 1 << 15;
const CHECKSUM_BITS: u32 = 32;

/// Position of the flipped bit. Bit `b` of a field is bit `b % 8`, the lowest being 0, of its byte `b / 8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flip {
    Data(u64),
    /// In the four stored bytes of the masked CRC.
    Checksum(u32),
}

/// Return the bit that must be flipped in `length` bytes with the CRC32C `computed`, or in their masked CRC `stored`, so that
/// the two agree; None unless exactly one such bit exists.
#[must_use]
pub fn find(length: u64, computed: u32, stored: u32) -> Option<Flip> {
    let bits = length.checked_mul(8).filter(|_| length <= MOST_BYTES as u64)?;
    let place = |stored: u32| logarithm(crc::unmask(stored) ^ computed, bits).map(|j| bits - 1 - j);
    let difference = stored ^ crc::mask(computed);
    let in_data = place(stored);
    let flip = match (difference.count_ones(), in_data) {
        // No error; or two bits of the field; or one bit that may be in either.
        (0 | 2, _) | (1, Some(_)) => return None,
        (1, None) => Flip::Checksum(difference.trailing_zeros()),
        _ => Flip::Data(in_data?),
    };
    let with_one_more = (0..CHECKSUM_BITS).any(|bit| place(stored ^ (1 << bit)).is_some());
    (!with_one_more).then_some(flip)
}

/// Correct a flipped bit in `data` or in `sum`, its masked CRC. Return its position, or None if nothing was changed.
pub fn correct(data: &mut [u8], sum: &mut [u8; FOOTER_BYTES]) -> Option<Flip> {
    let flip = find(data.len() as u64, crc::crc32c(data), u32::from_le_bytes(*sum))?;
    let (bytes, bit): (&mut [u8], u64) = match flip {
        Flip::Data(bit) => (data, bit),
        Flip::Checksum(bit) => (sum, u64::from(bit)),
    };
    *bytes.get_mut(usize::try_from(bit / 8).ok()?)? ^= 1 << (bit % 8);
    Some(flip)
}

/// As [`correct`], for the length and its checksum in front of a record.
pub fn correct_header(header: &mut [u8; HEADER_BYTES]) -> Option<Flip> {
    let (length, sum) = header.split_last_chunk_mut::<FOOTER_BYTES>()?;
    correct(length, sum)
}

/// The `j < bits` with `x^(32 + j) == syndrome`.
fn logarithm(mut syndrome: u32, bits: u64) -> Option<u64> {
    // Every power of x is 1 at x = 1, and so are all odd numbers of flips.
    if syndrome.count_ones().is_multiple_of(2) {
        return None;
    }
    let mut passed = 0;
    while passed < bits {
        if let Some(baby) = TABLES.baby(syndrome) {
            return Some(passed + u64::from(baby)).filter(|j| *j < bits);
        }
        syndrome = TABLES.giant(syndrome);
        passed += u64::from(BABY_STEPS);
    }
    None
}

static TABLES: LazyLock<Box<Tables>> = LazyLock::new(Tables::new);

struct Tables {
    /// `x^(32 + j)` and `j`, by hash; the power 0 marks a free slot.
    baby: Vec<(u32, u32)>,
    /// Quotients of each byte of a syndrome by `x^BABY_STEPS`.
    giant: [[u32; 256]; 4],
}

impl Tables {
    fn new() -> Box<Self> {
        let mut tables = Box::new(Self { baby: vec![(0, 0); SLOTS], giant: [[0; 256]; 4] });
        let mut power = POLYNOMIAL;
        for j in 0..BABY_STEPS {
            let mut slot = slot_of(power);
            while tables.baby.get(slot).is_some_and(|(taken, _)| *taken != 0) {
                slot = (slot + 1) % SLOTS;
            }
            if let Some(free) = tables.baby.get_mut(slot) {
                *free = (power, j);
            }
            power = times_x(power);
        }
        for (byte, images) in tables.giant.iter_mut().enumerate() {
            for bit in 0..8 {
                let image = (0..BABY_STEPS).fold(1_u32 << (byte * 8 + bit), |value, _| by_x(value));
                for (value, sum) in images.iter_mut().enumerate() {
                    if value >> bit & 1 == 1 {
                        *sum ^= image;
                    }
                }
            }
        }
        tables
    }

    fn baby(&self, power: u32) -> Option<u32> {
        let mut slot = slot_of(power);
        loop {
            match self.baby.get(slot)? {
                (0, _) => return None,
                (found, j) if *found == power => return Some(*j),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    fn giant(&self, value: u32) -> u32 {
        let images = self.giant.iter().zip(value.to_le_bytes());
        images.fold(0, |sum, (images, byte)| sum ^ images.get(usize::from(byte)).copied().unwrap_or(0))
    }
}

fn slot_of(power: u32) -> usize {
    (power.wrapping_mul(0x9e37_79b1) >> 17) as usize
}

fn times_x(value: u32) -> u32 {
    (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 }
}

fn by_x(value: u32) -> u32 {
    if value >> 31 == 1 { ((value ^ POLYNOMIAL) << 1) | 1 } else { value << 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed ^ (mixed >> 31)
        }

        fn bytes(&mut self, length: usize) -> Vec<u8> {
            (0..length).map(|_| self.next() as u8).collect()
        }
    }

    fn flipped(data: &[u8], sum: [u8; 4], bit: usize) -> (Vec<u8>, [u8; 4]) {
        let (mut data, mut sum) = (data.to_vec(), sum);
        match bit.checked_sub(data.len() * 8) {
            None => data[bit / 8] ^= 1 << (bit % 8),
            Some(bit) => sum[bit / 8] ^= 1 << (bit % 8),
        }
        (data, sum)
    }

    fn sum_of(data: &[u8]) -> [u8; 4] {
        crc::masked_crc32c(data).to_le_bytes()
    }

    #[test]
    fn every_bit_of_small_records_and_of_their_checksums_is_put_right() {
        let mut random = Random(1);
        for length in (0..80).chain([127, 128, 255, 256]) {
            let data = random.bytes(length);
            let sum = sum_of(&data);
            for bit in 0..length * 8 + 32 {
                let (mut bad, mut bad_sum) = flipped(&data, sum, bit);
                let flip = correct(&mut bad, &mut bad_sum).expect("a single flip is found");
                assert_eq!((bad.as_slice(), bad_sum), (data.as_slice(), sum), "bit {bit} of {length}");
                let want = match bit.checked_sub(length * 8) {
                    None => Flip::Data(bit as u64),
                    Some(bit) => Flip::Checksum(bit as u32),
                };
                assert_eq!(flip, want);
            }
        }
    }

    #[test]
    fn every_bit_of_a_header_is_put_right() {
        for length in [0, 1, 11, 1700, 51_000, 1 << 31, 1 << 40, u64::MAX] {
            let good = crate::record::framing::header(length);
            for bit in 0..HEADER_BYTES * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(correct_header(&mut bad).is_some());
                assert_eq!(bad, good, "bit {bit} of the header of {length} bytes");
            }
        }
    }

    #[test]
    fn flips_of_long_records_are_found_or_left_alone() {
        let mut random = Random(2);
        let mut found = 0;
        for length in [1700, 51_000, MOST_BYTES] {
            let data = random.bytes(length);
            let sum = sum_of(&data);
            for at in (0..100).map(|_| random.next() as usize % (length * 8 + 32)) {
                let (mut bad, mut bad_sum) = flipped(&data, sum, at);
                if correct(&mut bad, &mut bad_sum).is_some() {
                    assert_eq!((&bad, bad_sum), (&data, sum));
                    found += 1;
                }
            }
        }
        assert!(found > 285, "a few in a hundred of the largest could be two flips as well: {found} of 300");
        assert_eq!(find(MOST_BYTES as u64 + 1, 0, 1), None);
    }

    #[test]
    fn all_pairs_of_flips_of_small_records_are_left_alone() {
        let mut random = Random(3);
        for length in [0, 1, 8, 31] {
            let data = random.bytes(length);
            let sum = sum_of(&data);
            let bits = length * 8 + 32;
            for (a, b) in (0..bits).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let (once, once_sum) = flipped(&data, sum, a);
                let (mut bad, mut bad_sum) = flipped(&once, once_sum, b);
                assert_eq!(correct(&mut bad, &mut bad_sum), None, "bits {a} and {b} of {length} bytes");
            }
        }
    }

    #[test]
    fn pairs_of_flips_of_larger_records_are_left_alone() {
        let mut random = Random(4);
        for length in [1700, 51_000, MOST_BYTES] {
            let data = random.bytes(length);
            let sum = sum_of(&data);
            let bits = length * 8;
            let pick = |random: &mut Random| {
                // A third of them in the checksum.
                if random.next().is_multiple_of(3) {
                    bits + random.next() as usize % 32
                } else {
                    random.next() as usize % bits
                }
            };
            for _ in 0..60_000_000 / bits.max(3000) {
                let (a, b) = (pick(&mut random), pick(&mut random));
                if a == b {
                    continue;
                }
                let (once, once_sum) = flipped(&data, sum, a);
                let (mut bad, mut bad_sum) = flipped(&once, once_sum, b);
                assert_eq!(correct(&mut bad, &mut bad_sum), None, "bits {a} and {b} of {length} bytes");
            }
        }
    }

    #[test]
    fn garbage_passes_for_a_flip_as_rarely_as_the_mathematics_say() {
        let mut random = Random(5);
        let length = 51_000_u64;
        let tries = 300_000;
        let taken =
            (0..tries).filter(|_| find(length, random.next() as u32, random.next() as u32).is_some()).count();
        // One in 2^32 / 408,032: 28 are expected.
        assert!((8..60).contains(&taken), "{taken} of {tries}");
    }

    #[test]
    fn what_is_whole_is_not_touched() {
        for length in [0, 1, 1700] {
            let data = Random(6).bytes(length);
            assert_eq!(find(length as u64, crc::crc32c(&data), crc::masked_crc32c(&data)), None);
        }
    }
}
