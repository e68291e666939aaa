//! CRC32C (Castagnoli) and TFRecord's mask.
//!
//! With AVX-512 the long form is `crc-fast`, from a kilobyte on: below, its dispatch and its start cost more than the sum itself.
//! Elsewhere on x86-64 the instruction for CRC32C is used. It takes eight bytes a cycle, and so does carry-less multiplication of
//! 256 bits, in other units of the processor: where it exists, the two share the data (figures in docs/design/reading.md).
//! The CRC of a frame's length is one instruction.

/// TensorFlow's constant, `tsl/lib/hash/crc32c.h`.
const MASK_DELTA: u32 = 0xa282_ead8;

/// Data of this size and more are for `crc-fast`, if the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 1024;

/// Return the CRC32C of `data`.
#[inline]
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if (data.len() < SHORT_BYTES || !std::arch::is_x86_feature_detected!("avx512vl"))
        && std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        if data.len() >= x86::SHARED_BYTES
            && std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
        {
            // SAFETY: the processor has all four, as checked on the lines above.
            return unsafe { x86::crc32c_shared(data) };
        }
        // SAFETY: the processor has both, as checked on the lines above.
        return unsafe { x86::crc32c_thirds(data) };
    }
    // The checksum of a 32-bit algorithm comes in the low half.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// Return the CRC32C of bytes with the CRC32C `before`, followed by `data`.
#[inline]
#[must_use]
pub fn crc32c_after(before: u32, data: &[u8]) -> u32 {
    crc32c_shifted(before, data.len() as u64) ^ crc32c(data)
}

/// Return the part of the CRC32C of joined data that stems from its first part, of the CRC32C `before`, if `bytes` bytes
/// follow it: `crc32c(a + b) == crc32c_shifted(crc32c(a), b.len()) ^ crc32c(b)`.
#[must_use]
pub fn crc32c_shifted(before: u32, bytes: u64) -> u32 {
    let factors = POWERS.iter().enumerate().filter(|(k, _)| bytes >> k & 1 == 1);
    if before == 0 { 0 } else { factors.fold(before, |crc, (_, power)| product(crc, *power)) }
}

/// Powers of x modulo the polynomial: `x^(8 * 2^k)`.
static POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    // x^8; the highest bit is the coefficient of x^0.
    let mut power = 1 << (31 - 8);
    let mut k = 0;
    while k < 64 {
        powers[k] = power;
        power = product(power, power);
        k += 1;
    }
    powers
};

/// Castagnoli, reflected.
pub(crate) const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Return the product of two polynomials modulo Castagnoli's, all reflected.
const fn product(a: u32, b: u32) -> u32 {
    let mut sum = 0;
    let mut power = b;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        sum ^= power & (a >> bit & 1).wrapping_neg();
        power = (power >> 1) ^ (POLYNOMIAL & (power & 1).wrapping_neg());
    }
    sum
}

/// CRC32C of data that comes in parts.
#[derive(Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Crc32c {
    #[must_use]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    #[must_use]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Return the CRC32C of the eight little-endian bytes of `value`.
#[inline]
#[must_use]
pub fn crc32c_u64(value: u64) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2, as checked on the line above.
        return unsafe { x86::crc32c_u64(value) };
    }
    crc32c(&value.to_le_bytes())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
        _mm_extract_epi64, _mm_xor_si128, _mm256_castsi128_si256, _mm256_castsi256_si128,
        _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_set_epi64x, _mm256_xor_si256,
    };

    use super::power_of_x;

    #[target_feature(enable = "sse4.2")]
    pub fn crc32c_u64(value: u64) -> u32 {
        !(_mm_crc32_u64(u64::from(u32::MAX), value) as u32)
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub fn crc32c_thirds(data: &[u8]) -> u32 {
        let (long, data) = data.as_chunks::<{ 3 * 8 * 24 }>();
        let (short, data) = data.as_chunks::<{ 3 * 8 * 8 }>();
        let mut crc = u64::from(u32::MAX);
        for block in long {
            crc = thirds::<24>(crc, block);
        }
        for block in short {
            crc = thirds::<8>(crc, block);
        }
        !serial(crc, data)
    }

    #[target_feature(enable = "sse4.2")]
    fn serial(crc: u64, data: &[u8]) -> u32 {
        let (words, bytes) = data.as_chunks();
        let crc = words.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        bytes.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
    }

    /// Continue a CRC with three times `WORDS` words.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn thirds<const WORDS: usize>(crc: u64, block: &[u8]) -> u64 {
        let (words, _) = block.as_chunks();
        let (first, rest) = words.split_at_checked(WORDS).unwrap_or_default();
        let (second, third) = rest.split_at_checked(WORDS).unwrap_or_default();
        let (mut a, mut b, mut c) = (crc, 0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
        joined(a, b, c, &SHIFTS[WORDS])
    }

    /// Return the CRC of three parts from the CRC of each, if the second and the third have the words of `shifts`.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn joined(a: u64, b: u64, c: u64, shifts: &[u64; 2]) -> u64 {
        let shifted = |crc: u64, power: u64| {
            _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(power as i64), 0)
        };
        let both = _mm_xor_si128(shifted(a, shifts[1]), shifted(b, shifts[0]));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(both) as u64) ^ c
    }

    /// The factors by which a CRC is shifted over that many words, and over twice as many.
    static SHIFTS: [[u64; 2]; 70] = {
        let mut shifts = [[0; 2]; 70];
        let mut words = 1;
        while words < shifts.len() {
            shifts[words] = [factor(64 * words as u64), factor(128 * words as u64)];
            words += 1;
        }
        shifts
    };

    /// Return `x^bits` for a carry-less product: 32 bits are from the place of the factor in its 64 bits, or from the
    /// instruction that reduces the product, and one is from the reflection.
    const fn factor(bits: u64) -> u64 {
        power_of_x(bits - 33) as u64
    }

    /// From this size on sharing is worth its start.
    pub const SHARED_BYTES: usize = 256;
    /// Of each unit of data three registers are multiplied, and a quarter is for the instruction.
    const UNIT_BYTES: usize = 128;
    const FOLDED_BYTES: usize = 96;
    /// Parts for which [`SHIFTS`] is large enough.
    const PART_BYTES: usize = 4096;

    #[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
    pub fn crc32c_shared(mut data: &[u8]) -> u32 {
        let mut crc = u64::from(u32::MAX);
        while let Some((part, rest)) = data.split_at_checked(PART_BYTES) {
            crc = shared(crc, part);
            data = rest;
        }
        !(shared(crc, data) as u32)
    }

    /// Continue a CRC with at most a part.
    #[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
    fn shared(crc: u64, data: &[u8]) -> u64 {
        let units = data.len() / UNIT_BYTES;
        if units == 0 || data.len() > PART_BYTES {
            return u64::from(serial(crc, data));
        }
        // First the blocks, then two runs of words, then less than two words.
        let words = (data.len() - FOLDED_BYTES * units) / 16;
        let rest = &data[FOLDED_BYTES * units + 16 * words..];
        let block = |i| {
            // SAFETY: `i < units`, and the blocks are the first of `data`.
            loaded(unsafe { &*data.as_ptr().add(FOLDED_BYTES * i).cast() })
        };
        let step = |sum, i| {
            // SAFETY: `i < 2 * words`, and the words end where `rest` starts.
            let word =
                unsafe { data.as_ptr().add(FOLDED_BYTES * units + 8 * i).cast::<u64>().read_unaligned() };
            _mm_crc32_u64(sum, word)
        };
        let mut a_sum = block(0);
        a_sum[0] = _mm256_xor_si256(a_sum[0], _mm256_set_epi64x(0, 0, 0, crc as i64));
        let (mut b_sum, mut c_sum) = (0, 0);
        // Each unit has 32 bytes for the words, so that there are two of each run for a block.
        for i in 1..units {
            for word in [2 * i - 2, 2 * i - 1] {
                b_sum = step(b_sum, word);
                c_sum = step(c_sum, words + word);
            }
            for (sum, next) in a_sum.iter_mut().zip(block(i)) {
                *sum = folded_over::<{ 8 * FOLDED_BYTES as u64 }>(*sum, next);
            }
        }
        for word in 2 * units - 2..words {
            b_sum = step(b_sum, word);
            c_sum = step(c_sum, words + word);
        }
        let [x, y, z] = a_sum;
        let sum = folded_over::<256>(folded_over::<256>(x, y), z);
        // The halves of the register are 128 bits apart; the upper one is the later one.
        let sum = folded_over::<128>(sum, _mm256_castsi128_si256(_mm256_extracti128_si256(sum, 1)));
        let sum = _mm256_castsi256_si128(sum);
        let a_sum =
            _mm_crc32_u64(_mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64), _mm_extract_epi64(sum, 1) as u64);
        u64::from(serial(joined(a_sum, b_sum, c_sum, &SHIFTS[words]), rest))
    }

    /// Return `next` plus `sum`, which precedes it by `BITS`, for each 128 bits.
    #[target_feature(enable = "avx2,vpclmulqdq")]
    fn folded_over<const BITS: u64>(sum: __m256i, next: __m256i) -> __m256i {
        let (low, high) = const { (factor(BITS + 64) as i64, factor(BITS) as i64) };
        let factors = _mm256_set_epi64x(high, low, high, low);
        let low = _mm256_clmulepi64_epi128(sum, factors, 0x00);
        let high = _mm256_clmulepi64_epi128(sum, factors, 0x11);
        _mm256_xor_si256(_mm256_xor_si256(low, high), next)
    }

    #[target_feature(enable = "avx2")]
    fn loaded(block: &[u8; FOLDED_BYTES]) -> [__m256i; 3] {
        // SAFETY: both types have 96 bytes, of which any values are valid.
        unsafe { std::mem::transmute::<[u8; FOLDED_BYTES], [__m256i; 3]>(*block) }
    }
}

/// Return `x^exponent` modulo the polynomial, reflected.
#[cfg(target_arch = "x86_64")]
const fn power_of_x(exponent: u64) -> u32 {
    let (mut result, mut power, mut rest) = (1 << 31, 1 << 30, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = product(result, power);
        }
        power = product(power, power);
        rest >>= 1;
    }
    result
}

/// Return the masked CRC, which TFRecord stores so that the CRC of data that contains CRCs stays useful.
#[inline]
#[must_use]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// Return the CRC of a masked CRC.
#[inline]
#[must_use]
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

/// Return the masked CRC32C of `data`.
#[inline]
#[must_use]
pub fn masked_crc32c(data: &[u8]) -> u32 {
    mask(crc32c(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc32c(b""), 0xa282_ead8);
        assert_eq!(masked_crc32c(&[0; 8]), 0x0798_0329);
        assert_eq!(unmask(0x0798_0329), crc32c(&[0; 8]));
    }

    #[test]
    fn a_checksum_continues_after_a_cut() {
        let data: Vec<u8> = (0..1000_u32).map(|i| (i * 7) as u8).collect();
        for cut in [0, 1, 8, 499, 1000] {
            let (a, b) = data.split_at(cut);
            assert_eq!(crc32c_after(crc32c(a), b), crc32c(&data), "cut at {cut}");
            assert_eq!(crc32c_shifted(crc32c(a), b.len() as u64) ^ crc32c(b), crc32c(&data), "cut at {cut}");
        }
    }

    type Form = fn(&[u8]) -> u32;

    /// Each form that this processor has, also those that `crc32c` does not choose for a length.
    fn forms() -> Vec<(&'static str, Form)> {
        let mut forms: Vec<(&str, Form)> = vec![
            ("chosen", crc32c),
            ("crc-fast", |data| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32),
        ];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("sse4.2") && std::arch::is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has both, as checked on the line above.
            forms.push(("thirds", |data| unsafe { x86::crc32c_thirds(data) }));
            if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("vpclmulqdq")
            {
                // SAFETY: the processor has these two as well.
                forms.push(("shared", |data| unsafe { x86::crc32c_shared(data) }));
            }
        }
        forms
    }

    /// Return the CRC32C of each prefix of `data` by the definition, bit by bit.
    fn by_definition(data: &[u8]) -> Vec<u32> {
        let mut sum = u32::MAX;
        let mut sums = vec![!sum];
        for byte in data {
            sum ^= u32::from(*byte);
            for _ in 0..8 {
                sum = (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            }
            sums.push(!sum);
        }
        sums
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut value = 1_u64;
        let next = || {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (value >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn all_forms_have_the_sum_of_the_definition_at_all_lengths_and_alignments() {
        let data = noise(2048 + 32);
        for start in 0..32 {
            let data = &data[start..];
            for (length, sum) in by_definition(&data[..2048]).into_iter().enumerate() {
                for (name, form) in forms() {
                    assert_eq!(form(&data[..length]), sum, "{name}, {length} bytes from {start}");
                }
            }
        }
    }

    #[test]
    fn all_forms_have_the_sum_of_the_definition_around_multiples_of_a_part() {
        let data = noise(3 * 4096 + 300);
        for (length, sum) in
            by_definition(&data).into_iter().enumerate().filter(|(n, _)| n % 4096 < 300 || n % 4096 > 3960)
        {
            for (name, form) in forms() {
                assert_eq!(form(&data[..length]), sum, "{name}, {length} bytes");
            }
        }
    }

    #[test]
    fn the_short_form_equals_the_long_one() {
        let mut value = 1_u64;
        for _ in 0..1000 {
            assert_eq!(crc32c_u64(value), crc32c(&value.to_le_bytes()));
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
    }
}
