//! Recognition of the format of an image, and its decoding into a slot of a batch.

use crate::error::ImageError;
use crate::header::{Format, Header};
use crate::pixels::{Pixels, scale};
use crate::{jpeg, png, resize, sniff, webp};

/// Return the header of an image; the error describes bytes that are not a PNG, JPEG or WebP.
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

/// A decoder with its buffers; one per thread.
#[derive(Debug, Default)]
pub struct Decoder {
    png: png::PngDecoder,
    jpeg: jpeg::JpegDecoder,
    webp: webp::WebpDecoder,
    pixels: Vec<u8>,
    floats: Vec<f32>,
}

impl Decoder {
    /// Decode `bytes`, whose header is `header`, into `out` of shape `frame` (height, width, channels), resizing if
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

    /// Decode to floats in the size of the image.
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

    /// Decode to bytes in the size of the image.
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

    /// Free the buffers of an unusually large image.
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
