//! Row filters of PNG, undone one row at a time (PNG specification, section 9).

#![deny(clippy::indexing_slicing)]

/// Undo `filter` of one row: compute `dst` from the filtered bytes `src`, the bytes above `prev` (zeros for the first row)
/// and the pixel size `bpp` in bytes. All three slices have the same length. Return false for an unknown filter.
pub fn unfilter(filter: u8, bpp: usize, src: &[u8], prev: &[u8], dst: &mut [u8]) -> bool {
    match filter {
        0 => {
            if src.len() == dst.len() {
                dst.copy_from_slice(src);
            }
        }
        2 => {
            for ((out, &byte), &up) in dst.iter_mut().zip(src).zip(prev) {
                *out = byte.wrapping_add(up);
            }
        }
        1 | 3 | 4 => match bpp {
            1 => serial::<1>(filter, src, prev, dst),
            2 => serial::<2>(filter, src, prev, dst),
            3 => serial::<3>(filter, src, prev, dst),
            4 => serial::<4>(filter, src, prev, dst),
            6 => serial::<6>(filter, src, prev, dst),
            _ => serial::<8>(filter, src, prev, dst),
        },
        _ => return false,
    }
    true
}

/// Undo the filters that use the pixel to the left, for pixels of `N` bytes.
fn serial<const N: usize>(filter: u8, src: &[u8], prev: &[u8], dst: &mut [u8]) {
    let pixels = dst.chunks_exact_mut(N).zip(src.chunks_exact(N)).zip(prev.chunks_exact(N));
    let mut left = [0u8; N];
    match filter {
        1 => {
            for ((out, src), _) in pixels {
                for (left, &byte) in left.iter_mut().zip(src) {
                    *left = left.wrapping_add(byte);
                }
                out.copy_from_slice(&left);
            }
        }
        3 => {
            for ((out, src), up) in pixels {
                for ((left, &byte), &up) in left.iter_mut().zip(src).zip(up) {
                    *left = byte.wrapping_add(((u16::from(*left) + u16::from(up)) / 2) as u8);
                }
                out.copy_from_slice(&left);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86-64.
        _ if N == 3 || N == 4 => unsafe { paeth_sse2::<N>(src, prev, dst) },
        _ => {
            let mut corner = [0u8; N];
            for ((out, src), up) in pixels {
                for (((left, corner), &byte), &up) in left.iter_mut().zip(&mut corner).zip(src).zip(up) {
                    *left = byte.wrapping_add(paeth(*left, up, *corner));
                    *corner = up;
                }
                out.copy_from_slice(&left);
            }
        }
    }
}

/// Undo the Paeth filter for all channels of a pixel at once. It is a chain from pixel to pixel, so its time is the number of
/// steps that depend on the pixel to the left.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn paeth_sse2<const N: usize>(src: &[u8], prev: &[u8], dst: &mut [u8]) {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_add_epi16, _mm_and_si128, _mm_andnot_si128, _mm_cmpgt_epi16,
        _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_max_epi16, _mm_min_epi16, _mm_or_si128, _mm_packus_epi16,
        _mm_setzero_si128, _mm_sub_epi16, _mm_unpacklo_epi8,
    };
    let zero = _mm_setzero_si128();
    let widen = |pixel: &[u8; N]| -> __m128i {
        let mut four = [0u8; 4];
        four.iter_mut().zip(pixel).for_each(|(to, from)| *to = *from);
        _mm_unpacklo_epi8(_mm_cvtsi32_si128(i32::from_le_bytes(four)), zero)
    };
    let choose = |mask, yes, no| _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
    let (mut left, mut corner) = (zero, zero);
    let (out, _) = dst.as_chunks_mut::<N>();
    let ((src, _), (prev, _)) = (src.as_chunks::<N>(), prev.as_chunks::<N>());
    for ((out, src), up) in out.iter_mut().zip(src).zip(prev) {
        let up = widen(up);
        let threefold = _mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(corner, corner), corner), up);
        let threshold = _mm_sub_epi16(threefold, left);
        let (low, high) = (_mm_min_epi16(left, up), _mm_max_epi16(left, up));
        let nearest = choose(_mm_cmpgt_epi16(high, threshold), corner, low);
        let predicted = choose(_mm_cmpgt_epi16(threshold, low), nearest, high);
        left = _mm_add_epi8(predicted, widen(src));
        corner = up;
        let four = _mm_cvtsi128_si32(_mm_packus_epi16(left, left)).to_le_bytes();
        out.iter_mut().zip(four).for_each(|(to, from)| *to = from);
    }
}

/// Return the Paeth predictor in stb_image's form: the values of the specification, with only one step that depends on `left`.
#[inline(always)]
fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let threshold = 3 * i16::from(corner) - i16::from(up) - i16::from(left);
    let (low, high) = (left.min(up), left.max(up));
    let nearest = if i16::from(high) <= threshold { low } else { corner };
    if threshold <= i16::from(low) { high } else { nearest }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    /// The predictor of section 9.4 of the specification.
    fn by_the_book(a: u8, b: u8, c: u8) -> u8 {
        let p = i32::from(a) + i32::from(b) - i32::from(c);
        let distance = |value: u8| (p - i32::from(value)).abs();
        let (pa, pb, pc) = (distance(a), distance(b), distance(c));
        if pa <= pb && pa <= pc {
            a
        } else if pb <= pc {
            b
        } else {
            c
        }
    }

    #[test]
    fn rows_of_every_pixel_size_equal_the_specification() {
        let bytes: Vec<u8> = (0..96u32).map(|i| (i * i * 7 + i / 3) as u8).collect();
        let (src, prev) = bytes.split_at(48);
        for bpp in [1, 2, 3, 4, 6, 8] {
            let mut wanted = vec![0u8; 48];
            for i in 0..48 {
                let before = |row: &[u8]| if i >= bpp { row[i - bpp] } else { 0 };
                let (left, corner) = (before(&wanted), before(prev));
                wanted[i] = src[i].wrapping_add(by_the_book(left, prev[i], corner));
            }
            let mut found = vec![0u8; 48];
            assert!(unfilter(4, bpp, src, prev, &mut found));
            assert_eq!(found, wanted, "{bpp} bytes a pixel");
        }
        assert!(!unfilter(5, 1, src, prev, &mut [0; 48]));
    }

    #[test]
    fn paeth_equals_the_specification() {
        for a in (0..=255).step_by(3) {
            for b in 0..=255 {
                for c in 0..=255 {
                    assert_eq!(paeth(a, b, c), by_the_book(a, b, c), "{a} {b} {c}");
                }
            }
        }
    }
}
