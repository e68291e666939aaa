//! The inverse DCT of libjpeg ("islow", jidctint.c), which gives the same bytes as libjpeg-turbo's: 13-bit constants,
//! two bits of extra precision between the passes.
//!
//! Sums of two inputs wrap at 16 bits and the first pass saturates to 16 bits, as in the vector code of libjpeg-turbo and of
//! this crate; no image of an encoder reaches these limits.

#![allow(clippy::indexing_slicing, reason = "rows and columns below 8, of blocks of 8 by 8")]

use super::entropy::Block;

pub(super) const CONST_BITS: i32 = 13;
pub(super) const PASS1_BITS: i32 = 2;

pub(super) const F_0_298: i32 = 2446;
pub(super) const F_0_390: i32 = 3196;
pub(super) const F_0_541: i32 = 4433;
pub(super) const F_0_765: i32 = 6270;
pub(super) const F_0_899: i32 = 7373;
pub(super) const F_1_175: i32 = 9633;
pub(super) const F_1_501: i32 = 12299;
pub(super) const F_1_847: i32 = 15137;
pub(super) const F_1_961: i32 = 16069;
pub(super) const F_2_053: i32 = 16819;
pub(super) const F_2_562: i32 = 20995;
pub(super) const F_3_072: i32 = 25172;

/// Transform one dimension of eight inputs; the result is scaled by 2^13.
#[inline(always)]
fn butterfly(x: [i16; 8]) -> [i32; 8] {
    let sum = |a: i16, b: i16| i32::from(a.wrapping_add(b));
    let dot = |a: i32, fa: i32, b: i32, fb: i32| (a * fa).wrapping_add(b * fb);
    let [_, x1, x2, x3, _, x5, x6, x7] = x.map(i32::from);
    let even3 = dot(x2, F_0_541 + F_0_765, x6, F_0_541);
    let even2 = dot(x2, F_0_541, x6, F_0_541 - F_1_847);
    let even0 = sum(x[0], x[4]) << CONST_BITS;
    let even1 = i32::from(x[0].wrapping_sub(x[4])) << CONST_BITS;
    let (e0, e3) = (even0.wrapping_add(even3), even0.wrapping_sub(even3));
    let (e1, e2) = (even1.wrapping_add(even2), even1.wrapping_sub(even2));

    let (s3, s4) = (sum(x[3], x[7]), sum(x[1], x[5]));
    let z3 = dot(s3, F_1_175 - F_1_961, s4, F_1_175);
    let z4 = dot(s3, F_1_175, s4, F_1_175 - F_0_390);
    let odd0 = dot(x7, F_0_298 - F_0_899, x1, -F_0_899).wrapping_add(z3);
    let odd1 = dot(x5, F_2_053 - F_2_562, x3, -F_2_562).wrapping_add(z4);
    let odd2 = dot(x5, -F_2_562, x3, F_3_072 - F_2_562).wrapping_add(z3);
    let odd3 = dot(x7, -F_0_899, x1, F_1_501 - F_0_899).wrapping_add(z4);
    [
        e0.wrapping_add(odd3),
        e1.wrapping_add(odd2),
        e2.wrapping_add(odd1),
        e3.wrapping_add(odd0),
        e3.wrapping_sub(odd0),
        e2.wrapping_sub(odd1),
        e1.wrapping_sub(odd2),
        e0.wrapping_sub(odd3),
    ]
}

/// Shift right with rounding.
#[inline(always)]
fn descale(value: i32, bits: i32) -> i32 {
    value.wrapping_add(1 << (bits - 1)) >> bits
}

/// Return the samples of `block`, whose coefficients are multiplied by `quant`.
#[inline(always)]
pub(super) fn block(block: &Block, quant: &Block) -> [[u8; 8]; 8] {
    let mut columns = [[0i16; 8]; 8];
    for (column, cells) in columns.iter_mut().enumerate() {
        let input = std::array::from_fn(|row| {
            let at = 8 * row + column;
            block[at].wrapping_mul(quant[at])
        });
        *cells = butterfly(input).map(|value| {
            descale(value, CONST_BITS - PASS1_BITS).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
        });
    }
    std::array::from_fn(|row| {
        butterfly(std::array::from_fn(|column| columns[column][row]))
            .map(|value| (descale(value, CONST_BITS + PASS1_BITS + 3).clamp(-128, 127) + 128) as u8)
    })
}

/// Return the sample value of a block with only the first coefficient.
#[inline(always)]
pub(super) fn flat(block: &Block, quant: &Block) -> u8 {
    let value = i32::from(block[0].wrapping_mul(quant[0]));
    (((value + 4) >> 3).clamp(-128, 127) + 128) as u8
}

/// Transform two adjacent blocks into eight rows of 16 samples that are `stride` apart.
pub(super) fn pair(blocks: [&Block; 2], quant: &Block, out: &mut [u8], stride: usize) {
    let [left, right] = blocks.map(|one| block(one, quant));
    for ((row, left), right) in out.chunks_mut(stride).zip(left).zip(right) {
        if let Some((to_left, rest)) = row.split_first_chunk_mut::<8>() {
            *to_left = left;
            if let Some(to_right) = rest.first_chunk_mut::<8>() {
                *to_right = right;
            }
        }
    }
}
