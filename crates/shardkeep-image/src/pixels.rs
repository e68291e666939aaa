//! Pixels in memory: their type, the slot of a batch, and the conversion of bytes to floats.

/// The element type of decoded images.
///
/// `F32` scales to [0, 1] as `tf.image.convert_image_dtype` does: `v as f32 * (1.0 / 255.0)`, in single precision,
/// and `v as f32 * (1.0 / 65535.0)` of PNGs with 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageDType {
    U8,
    F32,
}

/// The slot of an image: exactly `height * width * channels` values of one row of a batch.
#[derive(Debug)]
pub enum Pixels<'a> {
    U8(&'a mut [u8]),
    F32(&'a mut [f32]),
}

impl Pixels<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::U8(out) => out.len(),
            Self::F32(out) => out.len(),
        }
    }

    /// Return the element type.
    pub fn dtype(&self) -> ImageDType {
        match self {
            Self::U8(_) => ImageDType::U8,
            Self::F32(_) => ImageDType::F32,
        }
    }
}

/// Convert bytes to floats as `tf.image.convert_image_dtype`, bit for bit.
pub(crate) fn scale(pixels: &[u8], out: &mut [f32]) {
    #[inline(always)]
    fn plain(pixels: &[u8], out: &mut [f32]) {
        const SCALE: f32 = 1.0 / 255.0;
        for (value, &pixel) in out.iter_mut().zip(pixels) {
            *value = f32::from(pixel) * SCALE;
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn fast(pixels: &[u8], out: &mut [f32]) {
        plain(pixels, out);
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { fast(pixels, out) };
    }
    plain(pixels, out);
}
