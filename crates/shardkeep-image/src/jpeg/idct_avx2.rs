//! [`super::idct`] for two blocks at once: one in the lower half of every register, one in the upper.

#![allow(clippy::indexing_slicing, reason = "rows and columns below 8, of blocks of 8 by 8")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_madd_epi16,
    _mm256_mullo_epi16, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permute4x64_epi64, _mm256_set_m128i,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_srai_epi32, _mm256_sub_epi16,
    _mm256_sub_epi32, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64,
};

use super::entropy::Block;
use super::idct::{
    CONST_BITS, F_0_298, F_0_390, F_0_541, F_0_765, F_0_899, F_1_175, F_1_501, F_1_847, F_1_961, F_2_053,
    F_2_562, F_3_072, PASS1_BITS,
};

/// A row of a block.
#[inline]
#[target_feature(enable = "avx2")]
fn row(block: &Block, number: usize) -> __m128i {
    let row: &[i16; 8] = &block.as_chunks().0[number];
    // SAFETY: the sixteen bytes of the array are read; no alignment is asked for.
    unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
}

/// Two factors for the pairs of `_mm256_madd_epi16`.
#[inline]
#[target_feature(enable = "avx2")]
fn factors(low: i32, high: i32) -> __m256i {
    _mm256_set1_epi32(high << 16 | low & 0xffff)
}

/// 32-bit values of the first and the last four columns.
#[derive(Clone, Copy)]
struct Wide(__m256i, __m256i);

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Wide, b: Wide) -> Wide {
    Wide(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn sub(a: Wide, b: Wide) -> Wide {
    Wide(_mm256_sub_epi32(a.0, b.0), _mm256_sub_epi32(a.1, b.1))
}

/// Return `a * factors.0 + b * factors.1` for pairs of `a` and `b` that are made by [`zip`].
#[inline]
#[target_feature(enable = "avx2")]
fn dot(pairs: Wide, factors: __m256i) -> Wide {
    Wide(_mm256_madd_epi16(pairs.0, factors), _mm256_madd_epi16(pairs.1, factors))
}

#[inline]
#[target_feature(enable = "avx2")]
fn zip(a: __m256i, b: __m256i) -> Wide {
    Wide(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b))
}

/// Transform one dimension, descaled by `SHIFT` bits and saturated to 16. `SHORT`: the last four inputs are zero.
#[inline]
#[target_feature(enable = "avx2")]
fn butterfly<const SHIFT: i32, const SHORT: bool>(x: [__m256i; 8]) -> [__m256i; 8] {
    let zero = _mm256_setzero_si256();
    // A 16-bit value in the upper half of 32 bits is the value times 2^16.
    let widen = |value: __m256i| {
        let Wide(low, high) = zip(zero, value);
        Wide(_mm256_srai_epi32::<{ 16 - CONST_BITS }>(low), _mm256_srai_epi32::<{ 16 - CONST_BITS }>(high))
    };
    let (even0, even1, even2, even3, odd);
    if SHORT {
        even0 = widen(x[0]);
        even1 = even0;
        let x2 = zip(x[2], zero);
        even3 = dot(x2, factors(F_0_541 + F_0_765, 0));
        even2 = dot(x2, factors(F_0_541, 0));
        let x13 = zip(x[1], x[3]);
        // The sums of the long form with x5 = x7 = 0.
        odd = [
            dot(x13, factors(F_1_175 - F_0_899, F_1_175 - F_1_961)),
            dot(x13, factors(F_1_175 - F_0_390, F_1_175 - F_2_562)),
            dot(x13, factors(F_1_175, F_1_175 - F_1_961 + F_3_072 - F_2_562)),
            dot(x13, factors(F_1_175 - F_0_390 + F_1_501 - F_0_899, F_1_175)),
        ];
    } else {
        even0 = widen(_mm256_add_epi16(x[0], x[4]));
        even1 = widen(_mm256_sub_epi16(x[0], x[4]));
        let x26 = zip(x[2], x[6]);
        even3 = dot(x26, factors(F_0_541 + F_0_765, F_0_541));
        even2 = dot(x26, factors(F_0_541, F_0_541 - F_1_847));
        let sums = zip(_mm256_add_epi16(x[3], x[7]), _mm256_add_epi16(x[1], x[5]));
        let z3 = dot(sums, factors(F_1_175 - F_1_961, F_1_175));
        let z4 = dot(sums, factors(F_1_175, F_1_175 - F_0_390));
        let (x71, x53) = (zip(x[7], x[1]), zip(x[5], x[3]));
        odd = [
            add(dot(x71, factors(F_0_298 - F_0_899, -F_0_899)), z3),
            add(dot(x53, factors(F_2_053 - F_2_562, -F_2_562)), z4),
            add(dot(x53, factors(-F_2_562, F_3_072 - F_2_562)), z3),
            add(dot(x71, factors(-F_0_899, F_1_501 - F_0_899)), z4),
        ];
    }
    let half = _mm256_set1_epi32(1 << (SHIFT - 1));
    let rounded = |value: Wide| Wide(_mm256_add_epi32(value.0, half), _mm256_add_epi32(value.1, half));
    let (even0, even1) = (rounded(even0), rounded(even1));
    let (e0, e3) = (add(even0, even3), sub(even0, even3));
    let (e1, e2) = (add(even1, even2), sub(even1, even2));
    let narrow = |value: Wide| {
        _mm256_packs_epi32(_mm256_srai_epi32::<SHIFT>(value.0), _mm256_srai_epi32::<SHIFT>(value.1))
    };
    [
        narrow(add(e0, odd[3])),
        narrow(add(e1, odd[2])),
        narrow(add(e2, odd[1])),
        narrow(add(e3, odd[0])),
        narrow(sub(e3, odd[0])),
        narrow(sub(e2, odd[1])),
        narrow(sub(e1, odd[2])),
        narrow(sub(e0, odd[3])),
    ]
}

/// Transpose both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let ([a, b], [c, d]) = (zip_rows(r[0], r[1]), zip_rows(r[2], r[3]));
    let ([e, f], [g, h]) = (zip_rows(r[4], r[5]), zip_rows(r[6], r[7]));
    let quads = |a, b| [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)];
    let ([a, b], [c, d]) = (quads(a, c), quads(b, d));
    let ([e, f], [g, h]) = (quads(e, g), quads(f, h));
    let halves = |a, b| [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
    let ([c0, c1], [c2, c3]) = (halves(a, e), halves(b, f));
    let ([c4, c5], [c6, c7]) = (halves(c, g), halves(d, h));
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

#[inline]
#[target_feature(enable = "avx2")]
fn zip_rows(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)]
}

/// Transform two adjacent blocks into eight rows of 16 samples that are `stride` apart. `SHORT`: all coefficients but
/// those of the first four rows and columns are zero.
#[target_feature(enable = "avx2")]
pub(super) fn pair<const SHORT: bool>(blocks: [&Block; 2], quant: &Block, out: &mut [u8], stride: usize) {
    let [left, right] = blocks;
    let mut x = [_mm256_setzero_si256(); 8];
    for (number, x) in x.iter_mut().enumerate().take(if SHORT { 4 } else { 8 }) {
        let both = _mm256_set_m128i(row(right, number), row(left, number));
        *x = _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(row(quant, number)));
    }
    let columns = transpose(butterfly::<{ CONST_BITS - PASS1_BITS }, SHORT>(x));
    let rows = butterfly::<{ CONST_BITS + PASS1_BITS + 3 }, SHORT>(columns);
    // Each vector is a column of samples: they are packed to bytes and transposed again.
    let pack = |a, b| _mm256_packs_epi16(rows[a], rows[b]);
    let (c04, c26, c15, c37) = (pack(0, 4), pack(2, 6), pack(1, 5), pack(3, 7));
    let (c01, c45) = (_mm256_unpacklo_epi8(c04, c15), _mm256_unpackhi_epi8(c04, c15));
    let (c23, c67) = (_mm256_unpacklo_epi8(c26, c37), _mm256_unpackhi_epi8(c26, c37));
    let (top, bottom) = (_mm256_unpacklo_epi16(c01, c23), _mm256_unpackhi_epi16(c01, c23));
    let (top_right, bottom_right) = (_mm256_unpacklo_epi16(c45, c67), _mm256_unpackhi_epi16(c45, c67));
    let two_rows = [
        _mm256_unpacklo_epi32(top, top_right),
        _mm256_unpackhi_epi32(top, top_right),
        _mm256_unpacklo_epi32(bottom, bottom_right),
        _mm256_unpackhi_epi32(bottom, bottom_right),
    ];
    let mut lines = out.chunks_mut(stride);
    for two in two_rows {
        // Row, next row of the left block, then of the right one: the middle two are swapped.
        let two = _mm256_add_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(two), _mm256_set1_epi8(-128));
        for line in [_mm256_castsi256_si128(two), _mm256_extracti128_si256::<1>(two)] {
            if let Some(to) = lines.next().and_then(<[u8]>::first_chunk_mut::<16>) {
                // SAFETY: the sixteen bytes of the array are written; no alignment is asked for.
                unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), line) };
            }
        }
    }
}
