//! Selection of the form of the inner loops for the processor.

use super::entropy::Block;
use super::{color, idct, upsample};

/// The selected forms. Only [`Kernels::detect`] creates this, so the processor has the instructions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    avx2: bool,
}

/// Call `$fast` if the processor has AVX2, else `$plain`.
macro_rules! choose {
    ($kernels:expr, $fast:expr, $plain:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if $kernels.avx2 {
            // SAFETY: `detect` found the instructions that the function was compiled for.
            return unsafe { $fast };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = $kernels.avx2;
        $plain
    }};
}

impl Kernels {
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self { avx2: std::arch::is_x86_feature_detected!("avx2") };
        #[cfg(not(target_arch = "x86_64"))]
        Self { avx2: false }
    }

    /// Return the forms for any processor, for tests.
    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Self { avx2: false }
    }

    /// Transform two adjacent blocks into eight rows of 16 samples that are `stride` apart. `last` is the position of the
    /// last coefficient of both, in the order of coding.
    #[inline]
    pub(super) fn idct(self, blocks: [&Block; 2], last: u8, quant: &Block, out: &mut [u8], stride: usize) {
        if last == 0 {
            let [left, right] = blocks.map(|block| idct::flat(block, quant));
            for row in out.chunks_mut(stride).take(8) {
                if let Some(row) = row.first_chunk_mut::<16>() {
                    let (to_left, to_right) = row.split_at_mut(8);
                    to_left.fill(left);
                    to_right.fill(right);
                }
            }
            return;
        }
        // The first ten in the order of coding are in the first four rows and columns.
        if last < 10 {
            choose!(
                self,
                super::idct_avx2::pair::<true>(blocks, quant, out, stride),
                idct::pair(blocks, quant, out, stride)
            )
        } else {
            choose!(
                self,
                super::idct_avx2::pair::<false>(blocks, quant, out, stride),
                idct::pair(blocks, quant, out, stride)
            )
        }
    }

    pub(super) fn ycbcr_to_rgb(self, rows: [&[u8]; 3], out: &mut [u8]) {
        choose!(self, color::avx2::ycbcr_to_rgb(rows, out), color::ycbcr_to_rgb(rows, out))
    }

    pub(super) fn twice_as_wide(self, row: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn fast(row: &[u8], out: &mut [u8]) {
            upsample::twice_as_wide(row, out);
        }
        choose!(self, fast(row, out), upsample::twice_as_wide(row, out))
    }

    pub(super) fn twice_as_both(self, near: &[u8], far: &[u8], sums: &mut [u16], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn fast(near: &[u8], far: &[u8], sums: &mut [u16], out: &mut [u8]) {
            upsample::twice_as_both(near, far, sums, out);
        }
        choose!(self, fast(near, far, sums, out), upsample::twice_as_both(near, far, sums, out))
    }

    pub(super) fn twice_as_high(self, near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn fast(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
            upsample::twice_as_high(near, far, upper, out);
        }
        choose!(self, fast(near, far, upper, out), upsample::twice_as_high(near, far, upper, out))
    }
}

#[cfg(test)]
mod tests {
    use super::super::entropy::ZIGZAG;
    use super::*;

    /// xorshift64*: the same values in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
        }

        /// A block with coefficients up to `last`, of at most `bits` bits.
        fn block(&mut self, last: u8, bits: u32) -> Block {
            let mut block = [0; 64];
            for &at in &ZIGZAG[..=usize::from(last)] {
                block[usize::from(at)] = (self.next() as i16) >> (16 - bits);
            }
            block
        }

        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| self.next() as u8).collect()
        }
    }

    #[test]
    fn vector_idct_equals_plain_idct() {
        const STRIDE: usize = 24;
        let mut random = Random(1);
        for round in 0..40_000 {
            // Every position of the last coefficient; magnitudes up to those of damaged files.
            let (last, bits) = ((round % 64) as u8, 4 + (round / 64 % 13) as u32);
            let [left, right] = [random.block(last, bits), random.block(last, bits)];
            let quant = random.block(63, if round % 3 == 0 { 16 } else { 7 });
            let mut found = vec![7; 8 * STRIDE];
            let mut wanted = found.clone();
            Kernels::detect().idct([&left, &right], last, &quant, &mut found, STRIDE);
            idct::pair([&left, &right], &quant, &mut wanted, STRIDE);
            assert_eq!(found, wanted, "last {last}, {bits} bits");
        }
    }

    /// The definition (T.81, A.3.3) in double precision.
    #[test]
    fn idct_is_the_inverse_dct() {
        let mut random = Random(2);
        for _ in 0..200 {
            let (block, quant) = (random.block(63, 8), [1; 64]);
            let samples = idct::block(&block, &quant);
            for (y, row) in samples.iter().enumerate() {
                for (x, &found) in row.iter().enumerate() {
                    let cosine = |at: usize, frequency: usize| {
                        let scale = if frequency == 0 { 0.5f64.sqrt() } else { 1.0 };
                        scale * ((2 * at + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0).cos()
                    };
                    let sum: f64 =
                        (0..64).map(|at| f64::from(block[at]) * cosine(y, at / 8) * cosine(x, at % 8)).sum();
                    let wanted = (sum / 4.0 + 128.0).clamp(0.0, 255.0);
                    assert!(
                        (f64::from(found) - wanted).abs() < 0.6,
                        "{found} at {y}, {x} instead of {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn vector_colours_equal_plain_colours() {
        // Every pair of chroma values with a few of luma, and lengths with a remainder.
        for (y, length) in [(0, 256), (1, 255), (128, 99), (200, 33), (255, 256)] {
            let cr: Vec<u8> = (0..=255).collect();
            for cb in 0..=255 {
                let rows: [&[u8]; 3] = [&[y; 256], &[cb; 256], &cr];
                let (mut found, mut wanted) = (vec![9; 3 * length], vec![9; 3 * length]);
                Kernels::detect().ycbcr_to_rgb(rows, &mut found);
                Kernels::plain().ycbcr_to_rgb(rows, &mut wanted);
                assert_eq!(found, wanted, "y {y}, cb {cb}, {length} pixels");
            }
        }
    }

    #[test]
    fn upsampling_weighs_the_nearer_sample_threefold() {
        let mut random = Random(3);
        for width in [1, 2, 15, 16, 17, 100] {
            let (near, far) = (random.bytes(width + 2), random.bytes(width + 2));
            let wide = |row: &[f64], at: usize| {
                let side = if at.is_multiple_of(2) { row[at / 2] } else { row[at / 2 + 2] };
                0.75 * row[at / 2 + 1] + 0.25 * side
            };
            let float = |row: &[u8]| row.iter().copied().map(f64::from).collect::<Vec<_>>();
            let mixed: Vec<f64> =
                float(&near).iter().zip(float(&far)).map(|(near, far)| 0.75 * near + 0.25 * far).collect();
            for kernels in [Kernels::detect(), Kernels::plain()] {
                let (mut found, mut sums) = (vec![0; 2 * width], vec![0; width + 2]);
                kernels.twice_as_wide(&near, &mut found);
                for (at, &found) in found.iter().enumerate() {
                    assert!((f64::from(found) - wide(&float(&near), at)).abs() <= 0.5);
                }
                kernels.twice_as_both(&near, &far, &mut sums, &mut found);
                for (at, &found) in found.iter().enumerate() {
                    assert!((f64::from(found) - wide(&mixed, at)).abs() <= 0.5);
                }
                let mut found = vec![0; width + 2];
                for upper in [true, false] {
                    kernels.twice_as_high(&near, &far, upper, &mut found);
                    for (&found, &wanted) in found.iter().zip(&mixed) {
                        assert!((f64::from(found) - wanted).abs() <= 0.5);
                    }
                }
            }
        }
    }
}
