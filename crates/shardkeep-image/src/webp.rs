//! WebP: a parser of the container; the crate image-webp decodes the contents, lossy or lossless, with or without alpha.
//!
//! The specification is RFC 9649. Two values are compared with the bytes before anything is allocated: the length in the
//! header (a truncated file is an error, as nothing in a WebP has a checksum), and the size of the image. In a lossy image
//! every macroblock of 256 pixels takes some bits for its prediction modes; libwebp reaches 560 pixels a byte. A
//! lossless image of one colour can have no bits at all, so its bound is a choice.

#![deny(clippy::indexing_slicing)]

use std::io::Cursor;

use image_webp::WebPDecoder;

use crate::error::{ImageError, catch_panic};
use crate::header::{Format, Header};
use crate::png::pixels::{grey, write};

/// Largest number of pixels per byte of a lossy image.
const LOSSY_RATIO: usize = 1_024;

/// Largest number of pixels per byte of a lossless image: one copy of 4,096 values, each of eight pixels.
const LOSSLESS_RATIO: usize = 32_768;

/// Lossless images up to this size are accepted with any number of bytes.
const BLANK_PIXELS: usize = 1 << 20;

/// Larger buffers are freed after an image.
const KEEP_BYTES: usize = 16 << 20;

/// Return true if `bytes` begin with the signature of a WebP.
pub fn is_webp(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
}

/// The parsed container of a WebP.
struct Container<'a> {
    /// The file without bytes after its end.
    whole: &'a [u8],
    width: usize,
    height: usize,
    alpha: bool,
}

struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
}

/// Take the chunk at the start of `rest`.
fn chunk<'a>(rest: &mut &'a [u8]) -> Result<Chunk<'a>, ImageError> {
    let cut = || ImageError::new("the WebP is damaged: a chunk runs past its end");
    let (kind, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (length, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (data, after) = after.split_at_checked(length).ok_or_else(cut)?;
    // Chunks are padded to even lengths; some writers omit the padding at the end of a file.
    *rest = after.get(length % 2..).unwrap_or_default();
    Ok(Chunk { kind: *kind, data })
}

/// Return width, height and the presence of alpha of a chunk of pixels.
fn picture(chunk: &Chunk<'_>) -> Option<(usize, usize, bool)> {
    if &chunk.kind == b"VP8L" {
        let (&signature, rest) = chunk.data.split_first()?;
        let bits = u32::from_le_bytes(*rest.first_chunk::<4>()?);
        let side = |at: u32| (bits >> at & 0x3fff) as usize + 1;
        return (signature == 0x2f && bits >> 29 == 0).then(|| (side(0), side(14), bits >> 28 & 1 == 1));
    }
    let &[tag, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1] = chunk.data.first_chunk::<10>()? else { return None };
    let side = |low, high| usize::from(u16::from_le_bytes([low, high]) & 0x3fff);
    let (width, height) = (side(w0, w1), side(h0, h1));
    (tag & 1 == 0 && width > 0 && height > 0).then_some((width, height, false))
}

fn container(bytes: &[u8]) -> Result<Container<'_>, ImageError> {
    let bad = |what: &str| ImageError(format!("the WebP's header is wrong: {what}"));
    let length = bytes.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |length| u32::from_le_bytes(*length));
    let Some(whole) = (length as usize).checked_add(8).and_then(|end| bytes.get(..end)) else {
        let found = bytes.len();
        return Err(ImageError(format!(
            "the WebP is cut off: it is to have {length} bytes and 8, and has {found}"
        )));
    };
    let mut rest = whole.get(12..).ok_or_else(|| bad("it ends before its first chunk"))?;
    let mut first = chunk(&mut rest)?;
    let mut canvas = None;
    if &first.kind == b"VP8X" {
        let &[flags, _, _, _, w0, w1, w2, h0, h1, h2] =
            first.data.first_chunk::<10>().ok_or_else(|| bad("VP8X is not 10 bytes long"))?;
        if flags & 2 != 0 {
            return Err(ImageError::new("an animated WebP; only still ones are decoded"));
        }
        let side = |a, b, c| u32::from_le_bytes([a, b, c, 0]) as usize + 1;
        canvas = Some((side(w0, w1, w2), side(h0, h1, h2), flags & 0x10 != 0));
        while !matches!(&first.kind, b"VP8 " | b"VP8L") {
            if rest.is_empty() {
                return Err(bad("it has no pixels"));
            }
            first = chunk(&mut rest)?;
        }
    }
    let (width, height, alpha) = match &first.kind {
        b"VP8 " | b"VP8L" => picture(&first).ok_or_else(|| bad("its picture has no size"))?,
        kind => return Err(ImageError(format!("the WebP starts with a chunk {}", kind.escape_ascii()))),
    };
    if canvas.is_some_and(|(canvas_width, canvas_height, _)| (canvas_width, canvas_height) != (width, height))
    {
        return Err(bad("its picture has another size than its canvas"));
    }
    let alpha = canvas.map_or(alpha, |(_, _, alpha)| alpha);
    let most = match &first.kind {
        b"VP8L" => first.data.len().saturating_mul(LOSSLESS_RATIO).max(BLANK_PIXELS),
        _ => first.data.len().saturating_mul(LOSSY_RATIO),
    };
    if width * height > most {
        let found = first.data.len();
        return Err(ImageError(format!(
            "the WebP's header promises {width}x{height} pixels, more than its {found} bytes can hold"
        )));
    }
    Ok(Container { whole, width, height, alpha })
}

/// Return size and channels of a WebP: 4 with alpha, else 3.
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    let Container { width, height, alpha, .. } = container(bytes)?;
    Ok(Header { format: Format::WebP, width, height, channels: if alpha { 4 } else { 3 }, deep: false })
}

/// A decoder of WebPs, with its buffer.
#[derive(Debug, Default)]
pub struct WebpDecoder {
    pixels: Vec<u8>,
}

impl WebpDecoder {
    /// Decode a WebP into `out`, which is `height * width * channels` long. Grey is computed as for PNG; fewer than four
    /// channels drop alpha.
    pub fn decode(&mut self, bytes: &[u8], channels: usize, out: &mut [u8]) -> Result<(), ImageError> {
        let container = container(bytes)?;
        let stored = if container.alpha { 4 } else { 3 };
        if channels == stored {
            return run(&container, out);
        }
        let mut pixels = std::mem::take(&mut self.pixels);
        pixels.resize(container.width * container.height * stored, 0);
        let done = run(&container, &mut pixels);
        if done.is_ok() {
            for (out, pixel) in out.chunks_exact_mut(channels.max(1)).zip(pixels.chunks_exact(stored)) {
                let rgb = *pixel.first_chunk::<3>().unwrap_or(&[0; 3]);
                let grey = if channels < 3 { grey(rgb.map(u16::from), 0) as u8 } else { 0 };
                write(out, channels, rgb, grey, pixel.get(3).copied().unwrap_or(255));
            }
        }
        if pixels.capacity() <= KEEP_BYTES {
            self.pixels = pixels;
        }
        done
    }
}

fn run(container: &Container<'_>, out: &mut [u8]) -> Result<(), ImageError> {
    catch_panic("WebP", || {
        let damaged = |error: image_webp::DecodingError| error.to_string();
        let mut decoder = WebPDecoder::new(Cursor::new(container.whole)).map_err(damaged)?;
        if decoder.is_animated() || decoder.output_buffer_size() != Some(out.len()) {
            return Err("its chunks contradict each other".into());
        }
        decoder.read_image(out).map_err(damaged)
    })
}
