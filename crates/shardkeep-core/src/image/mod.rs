//! Images as they lie in records, to pixels in a batch.
//!
//! The format is recognised by content, never by a name. PNG ([`png`]) and sequential JPEG ([`jpeg`]) are read by code of our
//! own, other JPEGs by zune-jpeg, WebP ([`webp`]) by image-webp; docs/design/codec-and-images.md holds the measurements behind that. Values follow
//! TensorFlow: `tf.io.decode_png` exactly (dtype uint8, or uint16 for the floats of a 16-bit PNG), `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")` exactly where
//! our own decoder reads it, else within the rounding of another decoder.
//!
//! Hostile input: sizes come from the header and are held against what the compressed bytes could possibly expand to
//! before anything is allocated, so a small record never costs much memory. Nothing here panics.

mod huffman;
pub mod inflate;
pub mod jpeg;
pub mod png;
mod png_pixels;
mod png_rows;
mod png_strips;
pub mod resize;
mod sniff;
pub mod webp;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::schema::ImageDType;

/// Why an image cannot be decoded: one line, without a final full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageError(pub String);

impl ImageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

/// The formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Png,
    Jpeg,
    WebP,
}

/// What the header of an image says, before a pixel is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    pub width: usize,
    pub height: usize,
    /// Channels that decoding with `channels=0` gives: 1 to 4.
    pub channels: usize,
    /// Whether samples have 16 bits, which floats take whole.
    pub deep: bool,
}

/// Where pixels go: exactly `height * width * channels` values of one row of a batch.
#[derive(Debug)]
pub enum Pixels<'a> {
    U8(&'a mut [u8]),
    F32(&'a mut [f32]),
}

impl Pixels<'_> {
    fn len(&self) -> usize {
        match self {
            Self::U8(out) => out.len(),
            Self::F32(out) => out.len(),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> ImageDType {
        match self {
            Self::U8(_) => ImageDType::U8,
            Self::F32(_) => ImageDType::F32,
        }
    }
}

/// Reads the header of `bytes`, or says what they are instead of a PNG, JPEG or WebP.
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    if bytes.starts_with(&png::SIGNATURE) {
        png::header(bytes)
    } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        jpeg::header(bytes)
    } else if webp::is_webp(bytes) {
        webp::header(bytes)
    } else {
        Err(ImageError(sniff::describe(bytes)))
    }
}

/// The buffers that decoding needs between images; one per thread.
#[derive(Debug, Default)]
pub struct Decoder {
    png: png::PngDecoder,
    jpeg: jpeg::JpegDecoder,
    webp: webp::WebpDecoder,
    pixels: Vec<u8>,
    floats: Vec<f32>,
}

impl Decoder {
    /// Decodes `bytes`, whose header is `header`, into `out` of shape `frame` (height, width, channels), resizing if
    /// the image has another size.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: Header,
        frame: (usize, usize, usize),
        out: Pixels<'_>,
    ) -> Result<(), ImageError> {
        let (height, width, channels) = frame;
        let source = (header.height, header.width);
        let wanted = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        if wanted != Some(out.len()) || !(1..=4).contains(&channels) {
            return Err(ImageError::new("the slot of the batch has another size than the frame"));
        }
        if source == (height, width) {
            return match out {
                Pixels::U8(out) => self.native(bytes, header, channels, out),
                Pixels::F32(out) => self.floats(bytes, header, channels, out),
            };
        }
        let count = header.height * header.width * channels;
        let done = match out {
            Pixels::U8(out) => {
                let mut pixels = std::mem::take(&mut self.pixels);
                pixels.resize(count, 0);
                let done = self.native(bytes, header, channels, &mut pixels);
                if done.is_ok() {
                    resize::bilinear_u8(&pixels, source, channels, (height, width), out);
                }
                self.pixels = pixels;
                done
            }
            Pixels::F32(out) => {
                let mut floats = std::mem::take(&mut self.floats);
                floats.resize(count, 0.0);
                let done = self.floats(bytes, header, channels, &mut floats);
                if done.is_ok() {
                    resize::bilinear(&floats, source, channels, (height, width), out);
                }
                self.floats = floats;
                done
            }
        };
        self.shrink();
        done
    }

    /// Decodes in the image's own size to [0, 1].
    fn floats(
        &mut self,
        bytes: &[u8],
        header: Header,
        channels: usize,
        out: &mut [f32],
    ) -> Result<(), ImageError> {
        if header.format == Format::Png {
            return self.png.decode(bytes, channels, Pixels::F32(out));
        }
        let mut pixels = std::mem::take(&mut self.pixels);
        pixels.resize(out.len(), 0);
        let done = self.native(bytes, header, channels, &mut pixels);
        if done.is_ok() {
            scale(&pixels, out);
        }
        self.pixels = pixels;
        done
    }

    /// Decodes in the image's own size to bytes.
    fn native(
        &mut self,
        bytes: &[u8],
        header: Header,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        match header.format {
            Format::Png => self.png.decode(bytes, channels, Pixels::U8(out)),
            Format::Jpeg => self.jpeg.decode(bytes, channels, out),
            Format::WebP => self.webp.decode(bytes, channels, out),
        }
    }

    /// Gives back what one unusually large image took.
    fn shrink(&mut self) {
        const KEEP: usize = 16 << 20;
        if self.pixels.capacity() > KEEP {
            self.pixels = Vec::new();
        }
        if self.floats.capacity() > KEEP {
            self.floats = Vec::new();
        }
    }
}

/// Runs a decoder that is not ours. One that panics would take the training run down with it, so a panic becomes an
/// [`ImageError`] like any other damage; messages become one line.
fn fenced(format: &str, decode: impl FnOnce() -> Result<(), String>) -> Result<(), ImageError> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(message)) => {
            let words: Vec<&str> = message.split_whitespace().collect();
            Err(ImageError(format!("the {format} is damaged: {}", words.join(" "))))
        }
        Err(_) => Err(ImageError(format!("the {format} decoder gave up on damaged data"))),
    }
}

/// `tf.image.convert_image_dtype(uint8 -> float32)`, bit for bit.
fn scale(pixels: &[u8], out: &mut [f32]) {
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
