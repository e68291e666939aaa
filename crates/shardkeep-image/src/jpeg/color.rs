//! Conversion of YCbCr to RGB in libjpeg's fixed point (jdcolor.c: 16 fractional bits, rounded), and of other
//! components to channels.

/// `1.402`, `1.772`, `0.71414`, `0.34414` times 2^16.
const CR_RED: i32 = 91_881;
const CB_BLUE: i32 = 116_130;
const CR_GREEN: i32 = 46_802;
const CB_GREEN: i32 = 22_554;
const HALF: i32 = 1 << 15;

/// Convert rows of Y, Cb and Cr to three bytes a pixel in `out`; the rows are at least as long.
pub(super) fn ycbcr_to_rgb(rows: [&[u8]; 3], out: &mut [u8]) {
    let [y, cb, cr] = rows;
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (((pixel, &y), &cb), &cr) in pixels.iter_mut().zip(y).zip(cb).zip(cr) {
        let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
        let red = y + ((CR_RED * cr + HALF) >> 16);
        let green = y + ((-CB_GREEN * cb - CR_GREEN * cr + HALF) >> 16);
        let blue = y + ((CB_BLUE * cb + HALF) >> 16);
        *pixel = [red, green, blue].map(|value| value.clamp(0, 255) as u8);
    }
}

/// Interleave rows of three components to three bytes a pixel.
pub(super) fn interleave(rows: [&[u8]; 3], out: &mut [u8]) {
    let [red, green, blue] = rows;
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (((pixel, &red), &green), &blue) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [red, green, blue];
    }
}

/// Convert rows of red, green and blue to grey (jdcolor.c, `rgb_gray_convert`).
pub(super) fn rgb_to_grey(rows: [&[u8]; 3], out: &mut [u8]) {
    let [red, green, blue] = rows;
    for (((out, &red), &green), &blue) in out.iter_mut().zip(red).zip(green).zip(blue) {
        let sum = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue);
        *out = ((sum + HALF.cast_unsigned()) >> 16) as u8;
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    //! The same for 32 pixels at once.

    use std::arch::x86_64::{
        __m128i, __m256i, _mm_storeu_si128, _mm256_add_epi16, _mm256_add_epi32, _mm256_castsi256_si128,
        _mm256_cmpgt_epi8, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_mulhrs_epi16, _mm256_packs_epi32, _mm256_packus_epi16, _mm256_set1_epi8, _mm256_set1_epi16,
        _mm256_set1_epi32, _mm256_setr_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16,
        _mm256_srai_epi32, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpacklo_epi8,
        _mm256_unpacklo_epi16, _mm256_xor_si256,
    };

    use super::{CB_GREEN, CR_GREEN, HALF};

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: the 32 bytes of the array are read; no alignment is asked for.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// Bytes of 32 pixels, and four bytes that are written after them.
    const GROUP: usize = 100;

    const RED: i16 = 13_173;
    const BLUE: i16 = 29_033;

    /// Convert rows of Y, Cb and Cr to three bytes a pixel in `out`; the rows are at least as long.
    #[target_feature(enable = "avx2")]
    pub(in crate::jpeg) fn ycbcr_to_rgb([y, cb, cr]: [&[u8]; 3], out: &mut [u8]) {
        let mut done = 0;
        let groups = y.as_chunks::<32>().0.iter().zip(cb.as_chunks::<32>().0).zip(cr.as_chunks::<32>().0);
        for ((y, cb), cr) in groups {
            let Some(out) = out.get_mut(3 * done..).and_then(<[u8]>::first_chunk_mut) else { break };
            pixels([load(y), load(cb), load(cr)], out);
            done += 32;
        }
        if let (Some(y), Some(cb), Some(cr), Some(out)) =
            (y.get(done..), cb.get(done..), cr.get(done..), out.get_mut(3 * done..))
        {
            super::ycbcr_to_rgb([y, cb, cr], out);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn pixels([y, cb, cr]: [__m256i; 3], out: &mut [u8; GROUP]) {
        let zero = _mm256_setzero_si256();
        let sign = _mm256_set1_epi8(-128);
        let (cb, cr) = (_mm256_xor_si256(cb, sign), _mm256_xor_si256(cr, sign));
        let (cb_sign, cr_sign) = (_mm256_cmpgt_epi8(zero, cb), _mm256_cmpgt_epi8(zero, cr));
        let low = channels(
            _mm256_unpacklo_epi8(y, zero),
            _mm256_unpacklo_epi8(cb, cb_sign),
            _mm256_unpacklo_epi8(cr, cr_sign),
        );
        let high = channels(
            _mm256_unpackhi_epi8(y, zero),
            _mm256_unpackhi_epi8(cb, cb_sign),
            _mm256_unpackhi_epi8(cr, cr_sign),
        );
        let red = _mm256_packus_epi16(low[0], high[0]);
        let green = _mm256_packus_epi16(low[1], high[1]);
        let blue = _mm256_packus_epi16(low[2], high[2]);
        store(red, green, blue, out);
    }

    /// Return red, green and blue of 16-bit values, not clamped yet.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn channels(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
        // `mulhrs` multiplies by a factor over 2^15. For red and blue these factors are approximate, and no
        // chroma value is rounded differently (a test tries all of them). For green they are exact.
        let red = _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(RED));
        let red = _mm256_add_epi16(_mm256_add_epi16(y, cr), red);
        let blue = _mm256_mulhrs_epi16(_mm256_slli_epi16::<1>(cb), _mm256_set1_epi16(BLUE));
        let blue = _mm256_add_epi16(y, blue);
        let factors = _mm256_set1_epi32((-CR_GREEN / 2) << 16 | (-CB_GREEN / 2) & 0xffff);
        let half = _mm256_set1_epi32(HALF / 2);
        let part = |pairs: __m256i| {
            _mm256_srai_epi32::<15>(_mm256_add_epi32(_mm256_madd_epi16(pairs, factors), half))
        };
        let green =
            _mm256_packs_epi32(part(_mm256_unpacklo_epi16(cb, cr)), part(_mm256_unpackhi_epi16(cb, cr)));
        [red, _mm256_add_epi16(y, green), blue]
    }

    /// Interleave 32 bytes of each channel. Four pixels at a time are stored with four more bytes,
    /// which the next store overwrites.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(red: __m256i, green: __m256i, blue: __m256i, out: &mut [u8; GROUP]) {
        let zero = _mm256_setzero_si256();
        #[rustfmt::skip]
        let order = _mm256_setr_epi8(
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
        );
        let (rg_low, rg_high) = (_mm256_unpacklo_epi8(red, green), _mm256_unpackhi_epi8(red, green));
        let (b_low, b_high) = (_mm256_unpacklo_epi8(blue, zero), _mm256_unpackhi_epi8(blue, zero));
        // Pixels 0 to 3 and 16 to 19, 4 to 7 and 20 to 23, and so on.
        let fours = [
            _mm256_shuffle_epi8(_mm256_unpacklo_epi16(rg_low, b_low), order),
            _mm256_shuffle_epi8(_mm256_unpackhi_epi16(rg_low, b_low), order),
            _mm256_shuffle_epi8(_mm256_unpacklo_epi16(rg_high, b_high), order),
            _mm256_shuffle_epi8(_mm256_unpackhi_epi16(rg_high, b_high), order),
        ];
        for (number, four) in fours.into_iter().enumerate() {
            put(_mm256_castsi256_si128(four), 12 * number, out);
        }
        for (number, four) in fours.into_iter().enumerate() {
            put(_mm256_extracti128_si256::<1>(four), 12 * (4 + number), out);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn put(pixels: __m128i, at: usize, out: &mut [u8; GROUP]) {
        if let Some(to) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) {
            // SAFETY: the sixteen bytes of the array are written; no alignment is asked for.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), pixels) };
        }
    }
}
