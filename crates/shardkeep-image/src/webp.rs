//! WebP: the container is read here, the image-webp crate decodes what is in it, lossy or lossless, with alpha or without.
//!
//! The specification is RFC 9649. What is held against the bytes before anything is allocated: the file's own length (a
//! download that broke off is an error, as nothing in a WebP is checked), and the size of the picture. Of a lossy picture
//! every macroblock of 256 pixels takes some bits for its prediction modes alone; libwebp gets to 560 pixels for a byte. A
//! lossless one can hold any number of pixels of one colour in no bits at all, so that there the bound is a choice.

#![deny(clippy::indexing_slicing)]

use std::io::Cursor;

use image_webp::WebPDecoder;

use crate::error::{ImageError, catch_panic};
use crate::header::{Format, Header};
use crate::png::pixels::{grey, write};

/// Pixels that a byte of a lossy picture can stand for at most.
const LOSSY_RATIO: usize = 1_024;

/// The same where it is lossless: one copy of 4,096 values, each of eight pixels.
const LOSSLESS_RATIO: usize = 32_768;

/// Lossless pictures up to this size are taken however few bytes they have.
const BLANK_PIXELS: usize = 1 << 20;

/// Buffers larger than this are given back after an image.
const KEEP_BYTES: usize = 16 << 20;

/// Whether `bytes` start as a WebP does.
pub fn is_webp(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
}

/// What stands in a WebP before its pixels.
struct Container<'a> {
    /// The file without what lies behind it.
    whole: &'a [u8],
    width: usize,
    height: usize,
    alpha: bool,
}

struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
}

/// Takes the chunk at the start of `rest`.
fn chunk<'a>(rest: &mut &'a [u8]) -> Result<Chunk<'a>, ImageError> {
    let cut = || ImageError::new("the WebP is damaged: a chunk runs past its end");
    let (kind, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (length, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (data, after) = after.split_at_checked(length).ok_or_else(cut)?;
    // Chunks are padded to even lengths; some writers leave out the last byte of a file.
    *rest = after.get(length % 2..).unwrap_or_default();
    Ok(Chunk { kind: *kind, data })
}

/// Width, height and whether there is alpha, of a chunk of pixels.
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

/// Size and channels of a WebP: 4 with alpha, else 3.
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    let Container { width, height, alpha, .. } = container(bytes)?;
    Ok(Header { format: Format::WebP, width, height, channels: if alpha { 4 } else { 3 }, deep: false })
}

/// Decodes WebPs, one after another.
#[derive(Debug, Default)]
pub struct WebpDecoder {
    pixels: Vec<u8>,
}

impl WebpDecoder {
    /// Decodes a WebP into `out`, which is `height * width * channels` long. Grey is made as of a PNG; fewer than four
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
