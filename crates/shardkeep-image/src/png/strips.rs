//! Row filters of PNG, undone for four rows at once: most of the time of images with short rows is spent in them.
//!
//! A filter is a chain from pixel to pixel, but the next row can follow one pixel later: the pixel above it was just
//! computed. So one register has the four bytes of a pixel of each of four rows, where row `k` is `k` pixels
//! after the first, and one step of the chain computes four pixels, whatever their filters.

#![deny(clippy::indexing_slicing)]

/// Number of rows that are unfiltered together.
pub const ROWS: usize = 4;

/// Bytes that are read and written beyond a row.
pub const SLACK: usize = 64;

/// The row above a strip and the rows of the strip, unfiltered, each with unused bytes at its end.
#[derive(Debug, Default)]
pub struct Strip {
    bytes: Vec<u8>,
    stride: usize,
}

impl Strip {
    /// Prepare for the first strip of an image; the row above it is zeros.
    pub fn start(&mut self, row_bytes: usize) {
        self.stride = row_bytes + SLACK;
        self.bytes.clear();
        self.bytes.resize((1 + ROWS) * self.stride, 0);
    }

    /// Copy the last row of this strip above the next strip.
    pub fn advance(&mut self) {
        let last = ROWS * self.stride;
        self.bytes.copy_within(last..last + self.stride, 0);
    }

    /// Return the row above and the rows of the strip.
    pub fn lines(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        self.bytes.chunks_exact_mut(self.stride.max(1))
    }

    /// Free the buffer if it is larger than `keep` bytes.
    pub fn shrink(&mut self, keep: usize) {
        if self.bytes.capacity() > keep {
            self.bytes = Vec::new();
        }
    }

    /// Undo the `filters` of the four rows at the start of `raw`, which are `row_bytes` long and each have a filter byte
    /// before them; pixels have `bpp` bytes. `raw` has [`SLACK`] more bytes. Returns false if the processor has no AVX2 or the rows are unsuitable.
    pub fn unfilter(&mut self, filters: [u8; ROWS], bpp: usize, raw: &[u8], row_bytes: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions that the functions were compiled for.
            unsafe {
                match bpp {
                    1 => avx2::unfilter::<1>(self, filters, raw, row_bytes),
                    2 => avx2::unfilter::<2>(self, filters, raw, row_bytes),
                    3 => avx2::unfilter::<3>(self, filters, raw, row_bytes),
                    4 => avx2::unfilter::<4>(self, filters, raw, row_bytes),
                    _ => return false,
                }
            }
            return true;
        }
        let _ = (filters, bpp, raw, row_bytes);
        false
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_adds_epu8, _mm_alignr_epi8, _mm_and_si128, _mm_andnot_si128, _mm_avg_epu8,
        _mm_cmpeq_epi8, _mm_cmpeq_epi32, _mm_cvtepu8_epi32, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_max_epu8,
        _mm_min_epu8, _mm_or_si128, _mm_set1_epi8, _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_epi8,
        _mm_slli_si128, _mm_srli_si128, _mm_storeu_si128, _mm_sub_epi8, _mm_subs_epu8, _mm_unpackhi_epi32,
        _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64, _mm_xor_si128,
    };

    use super::{ROWS, Strip};

    /// Return the mask of the lanes of rows with a filter.
    struct Masks {
        sub: __m128i,
        up: __m128i,
        average: __m128i,
        paeth: __m128i,
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn unfilter<const N: usize>(
        strip: &mut Strip,
        filters: [u8; ROWS],
        raw: &[u8],
        row_bytes: usize,
    ) {
        let lanes = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(filters)));
        let of = |filter| _mm_cmpeq_epi32(lanes, _mm_set1_epi32(filter));
        let masks = Masks { sub: of(1), up: of(2), average: of(3), paeth: of(4) };
        // Small images mostly have the filters Up and Paeth; the other filters are skipped if no row has them.
        if filters.iter().any(|filter| matches!(filter, 1 | 3)) {
            rows::<N, true>(strip, &masks, raw, row_bytes);
        } else {
            rows::<N, false>(strip, &masks, raw, row_bytes);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rows<const N: usize, const ALL: bool>(strip: &mut Strip, masks: &Masks, raw: &[u8], row_bytes: usize) {
        let zero = _mm_setzero_si128();
        let spread = shuffle(|byte| if byte % 4 < N { byte / 4 * N + byte % 4 } else { 0x80 });
        let gather = shuffle(|byte| if byte < 4 * N { byte / N * 4 + byte % N } else { 0x80 });
        let stride = strip.stride;
        let source = |row: usize| raw.get(row * (1 + row_bytes) + 1..).unwrap_or_default();
        let (s0, s1, s2, s3) = (source(0), source(1), source(2), source(3));
        let Some((above, lines)) = strip.bytes.split_at_mut_checked(stride) else { return };
        let mut lines = lines.chunks_exact_mut(stride);
        let (Some(l0), Some(l1), Some(l2), Some(l3)) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return;
        };
        let (mut left, mut corner) = (zero, zero);
        // The last row starts three pixels after the first.
        for block in 0..(row_bytes / N + ROWS - 1).div_ceil(4) {
            let at = block * 4 * N;
            // In the first block the lower rows have fewer pixels; the lanes before their start are zeros.
            let back = |rows: usize| at.saturating_sub(rows * N);
            let mut r0 = _mm_shuffle_epi8(load(s0, at), spread);
            let mut r1 = _mm_shuffle_epi8(load(s1, back(1)), spread);
            let mut r2 = _mm_shuffle_epi8(load(s2, back(2)), spread);
            let mut r3 = _mm_shuffle_epi8(load(s3, back(3)), spread);
            if block == 0 {
                r1 = _mm_slli_si128::<4>(r1);
                r2 = _mm_slli_si128::<8>(r2);
                r3 = _mm_slli_si128::<12>(r3);
            }
            let over = _mm_shuffle_epi8(load(above, at), spread);
            let [c0, c1, c2, c3] = turned([r0, r1, r2, r3]);
            (left, corner) = step::<ALL>(masks, left, corner, _mm_slli_si128::<12>(over), c0);
            let d0 = left;
            (left, corner) = step::<ALL>(masks, left, corner, _mm_slli_si128::<8>(over), c1);
            let d1 = left;
            (left, corner) = step::<ALL>(masks, left, corner, _mm_slli_si128::<4>(over), c2);
            let d2 = left;
            (left, corner) = step::<ALL>(masks, left, corner, over, c3);
            [r0, r1, r2, r3] = turned([d0, d1, d2, left]);
            if block == 0 {
                r1 = _mm_srli_si128::<4>(r1);
                r2 = _mm_srli_si128::<8>(r2);
                r3 = _mm_srli_si128::<12>(r3);
            }
            store(l0, at, _mm_shuffle_epi8(r0, gather));
            store(l1, back(1), _mm_shuffle_epi8(r1, gather));
            store(l2, back(2), _mm_shuffle_epi8(r2, gather));
            store(l3, back(3), _mm_shuffle_epi8(r3, gather));
        }
    }

    /// Compute the next pixel of every row from the pixels above; the last lane of `over` is the pixel above the first row.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn step<const ALL: bool>(
        masks: &Masks,
        left: __m128i,
        corner: __m128i,
        over: __m128i,
        src: __m128i,
    ) -> (__m128i, __m128i) {
        let up = _mm_alignr_epi8::<12>(left, over);
        (_mm_add_epi8(predicted::<ALL>(masks, left, up, corner), src), up)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn predicted<const ALL: bool>(masks: &Masks, left: __m128i, up: __m128i, corner: __m128i) -> __m128i {
        // Paeth by distances to the corner pixel. Negative differences saturate to 0, with the same result.
        let (low, high) = (_mm_min_epu8(left, up), _mm_max_epu8(left, up));
        let (below, beyond) = (_mm_subs_epu8(corner, low), _mm_subs_epu8(high, corner));
        let is_high = _mm_cmpeq_epi8(_mm_subs_epu8(_mm_adds_epu8(below, below), beyond), _mm_setzero_si128());
        let is_low = _mm_cmpeq_epi8(_mm_subs_epu8(_mm_adds_epu8(beyond, beyond), below), _mm_setzero_si128());
        let nearest = _mm_or_si128(_mm_and_si128(is_low, low), _mm_andnot_si128(is_low, corner));
        let paeth = _mm_or_si128(_mm_and_si128(is_high, high), _mm_andnot_si128(is_high, nearest));
        let mut predicted = _mm_or_si128(_mm_and_si128(masks.paeth, paeth), _mm_and_si128(masks.up, up));
        if ALL {
            // The processor's average is rounded up, PNG's is rounded down.
            let odd = _mm_and_si128(_mm_xor_si128(left, up), _mm_set1_epi8(1));
            let average = _mm_sub_epi8(_mm_avg_epu8(left, up), odd);
            let others = _mm_or_si128(_mm_and_si128(masks.sub, left), _mm_and_si128(masks.average, average));
            predicted = _mm_or_si128(predicted, others);
        }
        predicted
    }

    /// Four rows of four pixels as four columns.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn turned([r0, r1, r2, r3]: [__m128i; 4]) -> [__m128i; 4] {
        let (low01, high01) = (_mm_unpacklo_epi32(r0, r1), _mm_unpackhi_epi32(r0, r1));
        let (low23, high23) = (_mm_unpacklo_epi32(r2, r3), _mm_unpackhi_epi32(r2, r3));
        [
            _mm_unpacklo_epi64(low01, low23),
            _mm_unpackhi_epi64(low01, low23),
            _mm_unpacklo_epi64(high01, high23),
            _mm_unpackhi_epi64(high01, high23),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shuffle(of: impl Fn(usize) -> usize) -> __m128i {
        let bytes: [u8; 16] = std::array::from_fn(|byte| of(byte) as u8);
        load(&bytes, 0)
    }

    /// The sixteen bytes from `at`; zeros if there are not as many.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(from: &[u8], at: usize) -> __m128i {
        let bytes = from.get(at..).and_then(<[u8]>::first_chunk::<16>).unwrap_or(&[0; 16]);
        // SAFETY: the sixteen bytes of the array are read; no alignment is asked for.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u8], at: usize, pixels: __m128i) {
        if let Some(to) = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) {
            // SAFETY: the sixteen bytes of the array are written; no alignment is asked for.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), pixels) };
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::super::rows;
    use super::*;

    #[test]
    fn four_rows_at_once_equal_row_after_row() {
        let mut state = 1u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut strip = Strip::default();
        for turn in 0..2_000 {
            let bpp = 1 + turn % 4;
            let row_bytes = bpp * (1 + turn / 4 % 41);
            // Noise of few bits as well, which has many ties.
            let shift = next() % 8;
            strip.start(row_bytes);
            let mut above = vec![0u8; row_bytes];
            for _ in 0..3 {
                let filters: [u8; ROWS] = std::array::from_fn(|_| next() % 5);
                let mut raw: Vec<u8> = (0..ROWS * (1 + row_bytes)).map(|_| next() >> shift).collect();
                raw.resize(raw.len() + SLACK, 0xaa);
                if !strip.unfilter(filters, bpp, &raw, row_bytes) {
                    return;
                }
                for (row, filter) in filters.into_iter().enumerate() {
                    let src = &raw[row * (1 + row_bytes) + 1..][..row_bytes];
                    let mut wanted = vec![0u8; row_bytes];
                    assert!(rows::unfilter(filter, bpp, src, &above, &mut wanted));
                    let found = strip.lines().nth(1 + row).unwrap();
                    assert_eq!(found[..row_bytes], wanted, "{filters:?}, {bpp}, row {row} of {row_bytes}");
                    above = wanted;
                }
                strip.advance();
            }
        }
    }
}
