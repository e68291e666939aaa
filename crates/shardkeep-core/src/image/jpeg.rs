//! JPEG through zune-jpeg: baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK.
//!
//! Each call makes a decoder, as the crate has no reset. A decoder that panics would take the training run down, so
//! the call is fenced; a panic becomes an [`ImageError`] like any other damage.

#![deny(clippy::indexing_slicing)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{Format, Header, ImageError};

/// One byte of entropy-coded data holds at most 8 blocks of at most 64 pixels of every component, and a block stands
/// for up to 114 pixels where components are subsampled both ways: no JPEG gives more pixels than this for a byte.
const MAX_PIXELS_PER_BYTE: usize = 1_024;

/// Progressive files may hold many scans of nothing; more than this is an attack, not a picture.
const MAX_SCANS: usize = 64;

/// Size and channels of a JPEG, read from its frame header (SOFn).
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    Ok(frame(bytes)?.0)
}

/// The header, and what follows the frame header.
fn frame(bytes: &[u8]) -> Result<(Header, &[u8]), ImageError> {
    let cut = || ImageError::new("the JPEG is cut off before its frame header");
    let mut rest = bytes.get(2..).ok_or_else(cut)?;
    loop {
        // A marker may be preceded by any number of 0xff bytes.
        let start = rest.iter().position(|&byte| byte == 0xff).ok_or_else(cut)?;
        rest = rest.get(start..).ok_or_else(cut)?;
        let fill = rest.iter().position(|&byte| byte != 0xff).ok_or_else(cut)?;
        let (&marker, after) = rest.get(fill..).and_then(<[u8]>::split_first).ok_or_else(cut)?;
        rest = after;
        match marker {
            0x00 | 0x01 | 0xd0..=0xd8 => continue,
            0xd9 | 0xda => {
                return Err(ImageError::new("the JPEG has no frame header before its data"));
            }
            _ => {}
        }
        let (length, _) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (segment, after) = rest.split_at_checked(length).ok_or_else(cut)?;
        rest = after;
        // SOF0 to SOF15 without DHT (c4), JPG (c8) and DAC (cc).
        if !matches!(marker, 0xc0..=0xcf) || matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            continue;
        }
        let &[_, _, precision, h1, h0, w1, w0, components, ..] = segment else {
            return Err(cut());
        };
        if marker != 0xc0 && marker != 0xc1 && marker != 0xc2 {
            let kind = if marker == 0xc3 { "lossless" } else { "arithmetic-coded or hierarchical" };
            return Err(ImageError(format!("the JPEG is {kind}; baseline and progressive are read")));
        }
        let height = usize::from(u16::from_be_bytes([h1, h0]));
        let width = usize::from(u16::from_be_bytes([w1, w0]));
        if height == 0 || width == 0 || precision != 8 || !matches!(components, 1 | 3 | 4) {
            return Err(ImageError(format!(
                "the JPEG has {width}x{height} pixels of {components} components with {precision} bits, which cannot be read"
            )));
        }
        if height * width > bytes.len().saturating_mul(MAX_PIXELS_PER_BYTE) {
            let found = bytes.len();
            return Err(ImageError(format!(
                "the JPEG's header promises {width}x{height} pixels, more than its {found} bytes can hold"
            )));
        }
        let channels = if components == 1 { 1 } else { 3 };
        return Ok((Header { format: Format::Jpeg, width, height, channels }, rest));
    }
}

/// Decodes a JPEG into `out`, which is `height * width * channels` long.
pub fn decode(bytes: &[u8], channels: usize, out: &mut [u8]) -> Result<(), ImageError> {
    if channels == 4 {
        // The decoder would leave the fourth channel out for CMYK: it is added here for all of them.
        let pixels = out.len() / 4;
        decode(bytes, 3, out.get_mut(..pixels * 3).unwrap_or_default())?;
        widen(out);
        return Ok(());
    }
    // Damage can leave rows out, and `out` may hold the image before.
    out.fill(0);
    let space = match channels {
        1 => ColorSpace::Luma,
        3 => ColorSpace::RGB,
        _ => {
            return Err(ImageError(format!("a JPEG cannot be decoded into {channels} channels")));
        }
    };
    // zune-jpeg makes up the last rows of a baseline file that is cut off. Entropy-coded data cannot hold an end marker (a
    // thumbnail can, but lies before the frame header), so a file without one is not whole.
    let (_, rest) = frame(bytes)?;
    if !rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]) {
        return Err(ImageError::new("the JPEG is cut off: it has no end marker"));
    }
    let options = DecoderOptions::new_fast()
        .jpeg_set_out_colorspace(space)
        .jpeg_set_max_scans(MAX_SCANS)
        .set_strict_mode(true)
        .set_max_width(65_535)
        .set_max_height(65_535);
    let run = AssertUnwindSafe(|| {
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(|error| ImageError(one_line(&error.to_string())))?;
        let wanted = decoder.output_buffer_size();
        if wanted != Some(out.len()) {
            return Err(ImageError(format!(
                "the JPEG gives {wanted:?} bytes where {} are wanted",
                out.len()
            )));
        }
        decoder.decode_into(out).map_err(|error| ImageError(one_line(&error.to_string())))
    });
    catch_unwind(run).unwrap_or_else(|_| Err(ImageError::new("the JPEG decoder gave up on damaged data")))
}

/// RGB in the first three quarters of `out` to opaque RGBA in all of it, from the end so that nothing is overwritten
/// before it is read.
fn widen(out: &mut [u8]) {
    for pixel in (0..out.len() / 4).rev() {
        let Some(&[r, g, b]) = out.get(pixel * 3..).and_then(<[u8]>::first_chunk) else { continue };
        if let Some(rgba) = out.get_mut(pixel * 4..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *rgba = [r, g, b, 255];
        }
    }
}

fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    format!("the JPEG is damaged: {}", words.join(" "))
}
