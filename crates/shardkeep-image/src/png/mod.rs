//! PNG: chunks, sizes, passes. Specification: <https://www.w3.org/TR/png-3/>.
//!
//! Checksums of the chunks that matter (IHDR, PLTE, tRNS, IDAT) and the Adler-32 of the zlib stream are verified, IEND must
//! exist, and image data that end early are an error. As in libpng, ancillary
//! chunks are skipped, and data after the last row are ignored after the check of their checksum.

#![deny(clippy::indexing_slicing)]

mod inflate;
pub(crate) mod pixels;
mod rows;
mod strips;

use crate::error::ImageError;
use crate::header::{Format, Header};
use crate::pixels::{Pixels, scale};
use inflate::Inflater;
use pixels::{Color, Layout, Sample};
use rows::unfilter;
use strips::{ROWS, SLACK, Strip};

/// The first eight bytes of every PNG.
pub const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// Longest side that is accepted, as for JPEG.
const MAX_SIDE: u32 = 65_535;

/// Largest expansion of deflate: 258 bytes for two bits.
const MAX_RATIO: usize = 1_032;

#[derive(Debug, Clone, Copy)]
struct Ihdr {
    width: usize,
    height: usize,
    depth: u8,
    color: Color,
    interlaced: bool,
}

impl Ihdr {
    fn row_bytes(&self, width: usize) -> usize {
        (width * self.color.samples() * usize::from(self.depth)).div_ceil(8)
    }

    /// Return the bytes of a pixel, at least one: the distance to the pixel to the left that filters use.
    fn pixel_bytes(&self) -> usize {
        (self.color.samples() * usize::from(self.depth)).div_ceil(8)
    }

    /// Return the passes over the pixels and the number of bytes of all rows with their filter bytes; an error if `available`
    /// bytes of compressed data cannot expand to them.
    fn passes(&self, available: usize) -> Result<(&'static [Pass], usize), ImageError> {
        let passes: &[Pass] = if self.interlaced { &ADAM7 } else { &WHOLE };
        let sizes = passes.iter().map(|pass| pass.size(self.width, self.height));
        let total = sizes.map(|(columns, rows)| rows * (1 + self.row_bytes(columns))).sum();
        if total <= available.saturating_mul(MAX_RATIO) {
            return Ok((passes, total));
        }
        let (width, height) = (self.width, self.height);
        Err(ImageError(format!(
            "the PNG's header promises {width}x{height} pixels ({total} bytes), more than its {available} bytes can hold"
        )))
    }

    fn channels(&self, transparent: bool) -> usize {
        match self.color {
            Color::Palette if transparent => 4,
            Color::Palette => 3,
            color => color.samples(),
        }
    }
}

/// A pass over the pixels: the whole image, or one of the seven of Adam7.
#[derive(Debug, Clone, Copy)]
struct Pass {
    x: usize,
    y: usize,
    dx: usize,
    dy: usize,
}

const WHOLE: [Pass; 1] = [Pass { x: 0, y: 0, dx: 1, dy: 1 }];
const ADAM7: [Pass; 7] = [
    Pass { x: 0, y: 0, dx: 8, dy: 8 },
    Pass { x: 4, y: 0, dx: 8, dy: 8 },
    Pass { x: 0, y: 4, dx: 4, dy: 8 },
    Pass { x: 2, y: 0, dx: 4, dy: 4 },
    Pass { x: 0, y: 2, dx: 2, dy: 4 },
    Pass { x: 1, y: 0, dx: 2, dy: 2 },
    Pass { x: 0, y: 1, dx: 1, dy: 2 },
];

impl Pass {
    /// Return (columns, rows) of this pass in an image of `width` times `height`.
    fn size(&self, width: usize, height: usize) -> (usize, usize) {
        let columns = width.saturating_sub(self.x).div_ceil(self.dx);
        let rows = height.saturating_sub(self.y).div_ceil(self.dy);
        if columns == 0 || rows == 0 { (0, 0) } else { (columns, rows) }
    }
}

struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
    /// Kind and data, which the checksum covers.
    covered: &'a [u8],
    crc: u32,
}

/// Take the chunk at the start of `rest`.
fn chunk<'a>(rest: &mut &'a [u8]) -> Result<Chunk<'a>, ImageError> {
    let cut = || ImageError::new("the PNG is cut off: a chunk runs past its end");
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = u32::from_be_bytes(*length) as usize;
    let (covered, after) = after.split_at_checked(length.checked_add(4).ok_or_else(cut)?).ok_or_else(cut)?;
    let (kind, data) = covered.split_first_chunk::<4>().ok_or_else(cut)?;
    let (crc, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
    *rest = after;
    Ok(Chunk { kind: *kind, data, covered, crc: u32::from_be_bytes(*crc) })
}

impl Chunk<'_> {
    fn verify(&self) -> Result<(), ImageError> {
        let found = libdeflater::crc32(self.covered);
        if found == self.crc {
            return Ok(());
        }
        let (name, wanted) = (self.kind.escape_ascii(), self.crc);
        Err(ImageError(format!("the PNG's {name} chunk has CRC {found:08x}, its trailer says {wanted:08x}")))
    }
}

fn ihdr(chunk: &Chunk<'_>) -> Result<Ihdr, ImageError> {
    let bad = |what: &str| ImageError(format!("the PNG's header is wrong: {what}"));
    if chunk.kind != *b"IHDR" {
        return Err(bad("its first chunk is not IHDR"));
    }
    chunk.verify()?;
    let &[w0, w1, w2, w3, h0, h1, h2, h3, depth, color, compression, filter, interlace] = chunk.data else {
        return Err(bad("IHDR is not 13 bytes long"));
    };
    let (width, height) = (u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]));
    if width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
        return Err(bad(&format!("{width}x{height} pixels (1 to {MAX_SIDE} a side are read)")));
    }
    let color = match (color, depth) {
        (0, 1 | 2 | 4 | 8 | 16) => Color::Grey,
        (2, 8 | 16) => Color::Rgb,
        (3, 1 | 2 | 4 | 8) => Color::Palette,
        (4, 8 | 16) => Color::GreyAlpha,
        (6, 8 | 16) => Color::Rgba,
        _ => return Err(bad(&format!("colour type {color} with {depth} bits"))),
    };
    if compression != 0 || filter != 0 || interlace > 1 {
        return Err(bad("an unknown compression, filter or interlace method"));
    }
    Ok(Ihdr { width: width as usize, height: height as usize, depth, color, interlaced: interlace == 1 })
}

/// Return size and channels of a PNG, from the chunks before the image data.
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    let head = ihdr(&chunk(&mut rest)?)?;
    head.passes(rest.len())?;
    let mut transparent = false;
    // Only the channels of a palette depend on later chunks.
    loop {
        if head.color != Color::Palette {
            break;
        }
        match chunk(&mut rest)?.kind {
            kind if kind == *b"tRNS" => transparent = true,
            kind if kind == *b"IDAT" || kind == *b"IEND" => break,
            _ => {}
        }
    }
    let channels = head.channels(transparent);
    let deep = head.depth == 16;
    Ok(Header { format: Format::Png, width: head.width, height: head.height, channels, deep })
}

/// The buffers of the PNG reader.
#[derive(Debug, Default)]
pub struct PngDecoder {
    inflater: Inflater,
    joined: Vec<u8>,
    raw: Vec<u8>,
    rows: Vec<u8>,
    strip: Strip,
    pixels: Vec<u8>,
}

impl PngDecoder {
    /// Decode a PNG into `out`, which is `height * width * channels` long.
    pub fn decode(&mut self, bytes: &[u8], channels: usize, out: Pixels<'_>) -> Result<(), ImageError> {
        let mut rest = bytes.get(8..).unwrap_or_default();
        let head = ihdr(&chunk(&mut rest)?)?;
        let mut layout = Layout { color: head.color, depth: head.depth, palette: &[], transparency: None };
        let mut first: Option<&[u8]> = None;
        self.joined.clear();
        loop {
            let chunk = chunk(&mut rest)?;
            match &chunk.kind {
                b"IDAT" => {
                    chunk.verify()?;
                    match first {
                        None => first = Some(chunk.data),
                        Some(data) if self.joined.is_empty() => {
                            self.joined.reserve(data.len() + chunk.data.len());
                            self.joined.extend_from_slice(data);
                            self.joined.extend_from_slice(chunk.data);
                        }
                        Some(_) => self.joined.extend_from_slice(chunk.data),
                    }
                }
                b"PLTE" => {
                    chunk.verify()?;
                    layout.palette = chunk.data;
                }
                b"tRNS" => {
                    chunk.verify()?;
                    layout.transparency = Some(chunk.data);
                }
                b"IEND" => break,
                _ => {}
            }
        }
        let Some(first) = first else {
            return Err(ImageError::new("the PNG has no image data (IDAT)"));
        };
        if head.color == Color::Palette && layout.palette.is_empty() {
            return Err(ImageError::new("the PNG has a palette colour type and no palette"));
        }
        let joined = std::mem::take(&mut self.joined);
        let data = if joined.is_empty() { first } else { &joined[..] };
        let done = self.pixels(&head, &layout, data, channels, out);
        self.joined = joined;
        self.shrink();
        done
    }

    fn pixels(
        &mut self,
        head: &Ihdr,
        layout: &Layout<'_>,
        data: &[u8],
        channels: usize,
        out: Pixels<'_>,
    ) -> Result<(), ImageError> {
        let (passes, total) = head.passes(data.len())?;
        // The inflater fills the first `total` bytes of `raw` or fails. The rest is room for reads beyond the last row, whose
        // values are not used.
        self.raw.resize(total + (ROWS - 1) * (1 + head.row_bytes(head.width)) + SLACK, 0);
        self.inflater
            .zlib(data, &mut self.raw, total)
            .map_err(|error| ImageError(format!("the PNG's image data: {error}")))?;
        let native = !head.interlaced && layout.is_native(channels);
        match out {
            Pixels::U8(out) if native => self.native(head, out, <[u8]>::copy_from_slice),
            Pixels::F32(out) if native => self.native(head, out, |out, row| scale(row, out)),
            Pixels::U8(out) => self.expanded(head, layout, passes, channels, out),
            Pixels::F32(out) if head.depth == 16 => self.expanded(head, layout, passes, channels, out),
            Pixels::F32(out) => {
                let mut bytes = std::mem::take(&mut self.pixels);
                bytes.resize(out.len(), 0);
                let done = self.expanded(head, layout, passes, channels, &mut bytes);
                scale(&bytes, out);
                self.pixels = bytes;
                done
            }
        }
    }

    /// Unfilter rows that need no conversion; `put` writes each row into the batch.
    fn native<T>(
        &mut self,
        head: &Ihdr,
        mut out: &mut [T],
        put: impl Fn(&mut [T], &[u8]),
    ) -> Result<(), ImageError> {
        let (mut raw, bpp, row_bytes) = (&self.raw[..], head.pixel_bytes(), head.row_bytes(head.width));
        self.strip.start(row_bytes);
        for first in (0..head.height).step_by(ROWS) {
            let rows = ROWS.min(head.height - first);
            let mut filters = [0u8; ROWS];
            for (row, filter) in filters.iter_mut().enumerate().take(rows) {
                *filter = raw.get(row * (1 + row_bytes)).copied().ok_or_else(short)?;
                if *filter > 4 {
                    return Err(unknown_filter(first + row, *filter));
                }
            }
            let done = self.strip.unfilter(filters, bpp, raw, row_bytes);
            let mut lines = self.strip.lines().filter_map(|line| line.get_mut(..row_bytes));
            let mut above = lines.next().ok_or_else(short)?;
            for (here, _) in lines.zip(0..rows) {
                let (filter, src) = take_row(&mut raw, row_bytes)?;
                if !done {
                    unfilter(filter, bpp, src, above, here);
                }
                let (slot, after) = out.split_at_mut_checked(row_bytes).ok_or_else(short)?;
                put(slot, here);
                (above, out) = (here, after);
            }
            self.strip.advance();
        }
        Ok(())
    }

    /// Unfilter rows and convert them to the requested channels.
    fn expanded<T: Sample>(
        &mut self,
        head: &Ihdr,
        layout: &Layout<'_>,
        passes: &[Pass],
        channels: usize,
        out: &mut [T],
    ) -> Result<(), ImageError> {
        let (mut raw, bpp, line) = (&self.raw[..], head.pixel_bytes(), head.width * channels);
        for pass in passes {
            let (columns, rows) = pass.size(head.width, head.height);
            let row_bytes = head.row_bytes(columns);
            // The row above the first one is zeros.
            self.rows.clear();
            self.rows.resize(2 * row_bytes, 0);
            let (mut above, mut here) = self.rows.split_at_mut(row_bytes);
            for row in 0..rows {
                let (filter, src) = take_row(&mut raw, row_bytes)?;
                if !unfilter(filter, bpp, src, above, here) {
                    return Err(unknown_filter(row, filter));
                }
                let start = (pass.y + row * pass.dy) * line;
                let dst = out.get_mut(start..start + line).ok_or_else(short)?;
                let dst = dst.get_mut(pass.x * channels..).ok_or_else(short)?;
                if !T::expand(layout, here, channels, pass.dx, dst) {
                    return Err(ImageError::new(
                        "the PNG uses a palette entry that its palette does not have",
                    ));
                }
                std::mem::swap(&mut above, &mut here);
            }
        }
        Ok(())
    }

    fn shrink(&mut self) {
        const KEEP: usize = 16 << 20;
        for buffer in [&mut self.joined, &mut self.raw, &mut self.rows, &mut self.pixels] {
            if buffer.capacity() > KEEP {
                *buffer = Vec::new();
            }
        }
        self.strip.shrink(KEEP);
    }
}

/// Take the filter and the bytes of the row at the start of `raw`.
fn take_row<'a>(raw: &mut &'a [u8], row_bytes: usize) -> Result<(u8, &'a [u8]), ImageError> {
    let (&filter, after) = raw.split_first().ok_or_else(short)?;
    let (src, after) = after.split_at_checked(row_bytes).ok_or_else(short)?;
    *raw = after;
    Ok((filter, src))
}

fn short() -> ImageError {
    ImageError::new("the PNG's slot has another size than its header says")
}

fn unknown_filter(row: usize, filter: u8) -> ImageError {
    ImageError(format!("the PNG's row {row} has filter {filter}, which does not exist"))
}
