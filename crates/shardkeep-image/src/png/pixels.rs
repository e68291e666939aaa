//! Conversion of unfiltered PNG rows to the requested channels, exactly as in `tf.io.decode_png`: with dtype=uint8
//! for bytes, with dtype=uint16 and `tf.image.convert_image_dtype` for floats of 16-bit samples ([`Sample`]).
//!
//! TensorFlow uses libpng: as bytes, 16-bit samples lose their low byte after any conversion to grey; grey is
//! `(9797 r + 19234 g + 3737 b) >> 15`, rounded for 16 bits and not for 8 (and just r where the three are equal); 1 and 3
//! channels drop alpha; 2 and 4 take it from the image, else from tRNS, else fill it with `2^depth - 1` — which is 255 for
//! 8 bits, but 1, 3 or 15 for shallower images, a peculiarity that is kept because values must equal TensorFlow's.

#![deny(clippy::indexing_slicing)]

/// Colour type, depth, palette and transparency of a PNG.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    pub color: Color,
    pub depth: u8,
    /// PLTE: 3 bytes per entry.
    pub palette: &'a [u8],
    /// tRNS, as stored.
    pub transparency: Option<&'a [u8]>,
}

/// PNG's colour types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    Grey,
    Rgb,
    Palette,
    GreyAlpha,
    Rgba,
}

impl Color {
    /// Samples of one pixel.
    pub fn samples(self) -> usize {
        match self {
            Self::Grey | Self::Palette => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// The element type of expanded rows.
pub trait Sample: Copy {
    /// Convert one unfiltered row; see [`Layout::expand`].
    fn expand(layout: &Layout<'_>, row: &[u8], channels: usize, step: usize, out: &mut [Self]) -> bool;
}

impl Sample for u8 {
    fn expand(layout: &Layout<'_>, row: &[u8], channels: usize, step: usize, out: &mut [u8]) -> bool {
        layout.expand(row, channels, step, out)
    }
}

/// 16-bit samples divided by 65,535, with all their bits.
impl Sample for f32 {
    fn expand(layout: &Layout<'_>, row: &[u8], channels: usize, step: usize, out: &mut [f32]) -> bool {
        const SCALE: f32 = 1.0 / 65_535.0;
        layout.expand_16(row, channels, step, out, |sample| f32::from(sample) * SCALE)
    }
}

impl Layout<'_> {
    /// Return true if unfiltered rows are the pixels of `channels` channels without a conversion.
    pub fn is_native(&self, channels: usize) -> bool {
        self.depth == 8
            && matches!(
                (self.color, channels),
                (Color::Grey, 1) | (Color::GreyAlpha, 2) | (Color::Rgb, 3) | (Color::Rgba, 4)
            )
    }

    /// Convert one unfiltered row into pixels of `channels` channels; `out` may be strided (`step` pixels apart).
    /// Return false if a palette index has no entry.
    fn expand(&self, row: &[u8], channels: usize, step: usize, out: &mut [u8]) -> bool {
        if self.depth == 16 {
            return self.expand_16(row, channels, step, out, |sample| (sample >> 8) as u8);
        }
        let out = out.chunks_mut((channels * step).max(1));
        match (self.color, self.depth) {
            (Color::Palette, _) => return self.expand_palette(row, channels, out),
            (Color::Grey, 8) if channels == 3 => {
                for (out, &grey) in out.zip(row) {
                    put(out, &[grey; 3]);
                }
            }
            (Color::Rgba, 8) if channels == 3 => {
                for (out, pixel) in out.zip(row.chunks_exact(4)) {
                    put(out, pixel.first_chunk::<3>().unwrap_or(&[0; 3]));
                }
            }
            (color, 8) => {
                for (out, pixel) in out.zip(row.chunks_exact(color.samples())) {
                    let mut samples = [0u16; 4];
                    for (sample, &byte) in samples.iter_mut().zip(pixel) {
                        *sample = u16::from(byte);
                    }
                    self.write_bytes(out, channels, samples, 255);
                }
            }
            (_, depth) => {
                let top = (1u16 << depth) - 1;
                let scale = 255 / top;
                for (out, sample) in out.zip(unpack(row, depth)) {
                    let (rgb, alpha) = self.rgb_alpha([u16::from(sample), 0, 0, 0], top);
                    let alpha = if self.transparency.is_some() { (alpha / top) * 255 } else { alpha };
                    let rgb = rgb.map(|sample| (sample * scale) as u8);
                    write(out, channels, rgb, rgb[0], alpha as u8);
                }
            }
        }
        true
    }

    fn expand_16<T: Copy>(
        &self,
        row: &[u8],
        channels: usize,
        step: usize,
        out: &mut [T],
        of: impl Fn(u16) -> T,
    ) -> bool {
        let pixels = row.chunks_exact(2 * self.color.samples());
        for (out, pixel) in out.chunks_mut((channels * step).max(1)).zip(pixels) {
            let mut samples = [0u16; 4];
            for (sample, bytes) in samples.iter_mut().zip(pixel.chunks_exact(2)) {
                *sample = u16::from_be_bytes(*bytes.first_chunk::<2>().unwrap_or(&[0; 2]));
            }
            let (rgb, alpha) = self.rgb_alpha(samples, u16::MAX);
            let grey = if channels < 3 { grey(rgb, 1 << 14) } else { 0 };
            write(out, channels, rgb.map(&of), of(grey), of(alpha));
        }
        true
    }

    #[inline]
    fn write_bytes(&self, out: &mut [u8], channels: usize, samples: [u16; 4], opaque: u16) {
        let (rgb, alpha) = self.rgb_alpha(samples, opaque);
        let grey = if channels < 3 { grey(rgb, 0) } else { 0 };
        write(out, channels, rgb.map(|sample| sample as u8), grey as u8, alpha as u8);
    }

    /// Return colour and alpha of a pixel without a palette; `opaque` is the largest sample.
    #[inline]
    fn rgb_alpha(&self, samples: [u16; 4], opaque: u16) -> ([u16; 3], u16) {
        let [r, g, b, a] = samples;
        match self.color {
            Color::GreyAlpha => ([r; 3], g),
            Color::Rgba => ([r, g, b], a),
            Color::Grey | Color::Palette => ([r; 3], if self.is_key(&[r]) { 0 } else { opaque }),
            Color::Rgb => ([r, g, b], if self.is_key(&[r, g, b]) { 0 } else { opaque }),
        }
    }

    /// Return true if the samples are the transparent colour of tRNS.
    #[inline]
    fn is_key(&self, samples: &[u16]) -> bool {
        let Some(key) = self.transparency else {
            return false;
        };
        // libpng compares the low bytes of the key for 8-bit images, all 16 bits for deeper ones.
        let mask = if self.depth == 16 { u16::MAX } else { 0xff };
        key.chunks_exact(2).zip(samples).all(|(key, &sample)| {
            u16::from_be_bytes(*key.first_chunk::<2>().unwrap_or(&[0; 2])) & mask == sample
        })
    }

    fn expand_palette<'o>(
        &self,
        row: &[u8],
        channels: usize,
        out: impl Iterator<Item = &'o mut [u8]>,
    ) -> bool {
        let (colors, _) = self.palette.as_chunks::<3>();
        let opaque = if self.transparency.is_some() { 255 } else { ((1u16 << self.depth) - 1) as u8 };
        let alphas = self.transparency.unwrap_or_default();
        let mut whole = true;
        let mut one = |out: &mut [u8], index: u8| {
            let entry = colors.get(usize::from(index));
            whole &= entry.is_some();
            let rgb = *entry.unwrap_or(&[0; 3]);
            if channels == 3 {
                put(out, &rgb);
            } else {
                let alpha = alphas.get(usize::from(index)).copied().unwrap_or(opaque);
                let grey = if channels < 3 { grey(rgb.map(u16::from), 0) as u8 } else { 0 };
                write(out, channels, rgb, grey, alpha);
            }
        };
        if self.depth == 8 {
            out.zip(row).for_each(|(out, &index)| one(out, index));
        } else {
            out.zip(unpack(row, self.depth)).for_each(|(out, index)| one(out, index));
        }
        whole
    }
}

/// Samples of 1, 2 or 4 bits, most significant first.
fn unpack(row: &[u8], depth: u8) -> impl Iterator<Item = u8> + '_ {
    let per_byte = 8 / depth;
    let mask = (1u8 << depth) - 1;
    row.iter().flat_map(move |&byte| (1..=per_byte).map(move |i| (byte >> (8 - i * depth)) & mask))
}

/// Return the grey of a colour as libpng with TensorFlow's weights (0.299, 0.587, rest); `round` is added before the shift.
#[inline]
pub(crate) fn grey(rgb: [u16; 3], round: u32) -> u16 {
    let [r, g, b] = rgb;
    if r == g && g == b {
        return r;
    }
    ((9_797 * u32::from(r) + 19_234 * u32::from(g) + 3_737 * u32::from(b) + round) >> 15) as u16
}

#[inline]
fn put<T: Copy, const N: usize>(out: &mut [T], pixel: &[T; N]) {
    if let Some(out) = out.first_chunk_mut::<N>() {
        *out = *pixel;
    }
}

#[inline]
pub(crate) fn write<T: Copy>(out: &mut [T], channels: usize, rgb: [T; 3], grey: T, alpha: T) {
    let [r, g, b] = rgb;
    match channels {
        1 => put(out, &[grey]),
        2 => put(out, &[grey, alpha]),
        3 => put(out, &rgb),
        _ => put(out, &[r, g, b, alpha]),
    }
}
