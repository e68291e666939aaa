//! Marker segments of a JPEG (ITU-T T.81, annex B): its frame header, and the tables of its scan.

#![deny(clippy::indexing_slicing)]

use super::entropy::ZIGZAG;
use crate::error::ImageError;
use crate::header::{Format, Header};

/// One byte of entropy-coded data holds at most 8 blocks of at most 64 pixels of every component, and a block is
/// up to 114 pixels if components are subsampled both ways: no JPEG has more pixels per byte.
const MAX_PIXELS_PER_BYTE: usize = 1_024;

/// Blocks of one MCU (T.81, B.2.3).
pub(super) const MAX_BLOCKS_OF_MCU: usize = 10;

fn cut() -> ImageError {
    ImageError::new("the JPEG is cut off before its frame header")
}

fn damaged(what: &str) -> ImageError {
    ImageError(format!("the JPEG is damaged: {what}"))
}

/// An iterator over the marker segments from the start of a file.
#[derive(Debug, Clone)]
struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, ImageError> {
        Ok(Self { rest: bytes.get(2..).ok_or_else(cut)? })
    }

    /// Return the next marker with its segment, without its length.
    fn next(&mut self) -> Result<(u8, &'a [u8]), ImageError> {
        loop {
            // A marker may be preceded by any number of 0xff bytes.
            let start = self.rest.iter().position(|&byte| byte == 0xff).ok_or_else(cut)?;
            let rest = self.rest.get(start..).ok_or_else(cut)?;
            let fill = rest.iter().position(|&byte| byte != 0xff).ok_or_else(cut)?;
            let (&marker, after) = rest.get(fill..).and_then(<[u8]>::split_first).ok_or_else(cut)?;
            self.rest = after;
            match marker {
                0x00 | 0x01 | 0xd0..=0xd8 => continue,
                0xd9 => return Ok((marker, &[])),
                _ => {}
            }
            let (length, after) = after.split_first_chunk::<2>().ok_or_else(cut)?;
            let length = usize::from(u16::from_be_bytes(*length));
            let length = length.checked_sub(2).ok_or_else(|| damaged("a marker segment has no length"))?;
            let (segment, after) = after.split_at_checked(length).ok_or_else(cut)?;
            self.rest = after;
            return Ok((marker, segment));
        }
    }
}

/// A component of the frame; the tables are those of the scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Component {
    pub id: u8,
    /// Sampling factors, across and down.
    pub h: usize,
    pub v: usize,
    pub quant: usize,
    pub dc: usize,
    pub ac: usize,
}

/// SOFn of 8-bit samples, Huffman-coded.
#[derive(Debug, Clone, Copy)]
struct Frame {
    width: usize,
    height: usize,
    progressive: bool,
    count: usize,
    components: [Component; 4],
}

/// Return size and channels of a JPEG, from its frame header (SOFn).
pub fn header(bytes: &[u8]) -> Result<Header, ImageError> {
    let mut segments = Segments::new(bytes)?;
    loop {
        let (marker, segment) = segments.next()?;
        if let Some(frame) = frame(marker, segment, bytes.len())? {
            let channels = if frame.count == 1 { 1 } else { 3 };
            let (width, height) = (frame.width, frame.height);
            return Ok(Header { format: Format::Jpeg, width, height, channels, deep: false });
        }
    }
}

/// Return the data after the frame header.
pub(super) fn after_frame(bytes: &[u8]) -> Result<&[u8], ImageError> {
    let mut segments = Segments::new(bytes)?;
    loop {
        let (marker, segment) = segments.next()?;
        if frame(marker, segment, bytes.len())?.is_some() {
            return Ok(segments.rest);
        }
    }
}

/// Return the frame header if `marker` starts one; `found` is the size of the file.
fn frame(marker: u8, segment: &[u8], found: usize) -> Result<Option<Frame>, ImageError> {
    if matches!(marker, 0xd9 | 0xda) {
        return Err(ImageError::new("the JPEG has no frame header before its data"));
    }
    // SOF0 to SOF15 without DHT (c4), JPG (c8) and DAC (cc).
    if !matches!(marker, 0xc0..=0xcf) || matches!(marker, 0xc4 | 0xc8 | 0xcc) {
        return Ok(None);
    }
    let Some((&[precision, h1, h0, w1, w0, count], specs)) = segment.split_first_chunk::<6>() else {
        return Err(cut());
    };
    if !matches!(marker, 0xc0..=0xc2) {
        let kind = if marker == 0xc3 { "lossless" } else { "arithmetic-coded or hierarchical" };
        return Err(ImageError(format!("the JPEG is {kind}; baseline and progressive are read")));
    }
    let height = usize::from(u16::from_be_bytes([h1, h0]));
    let width = usize::from(u16::from_be_bytes([w1, w0]));
    if height == 0 || width == 0 || precision != 8 || !matches!(count, 1 | 3 | 4) {
        return Err(ImageError(format!(
            "the JPEG has {width}x{height} pixels of {count} components with {precision} bits, which cannot be read"
        )));
    }
    if height * width > found.saturating_mul(MAX_PIXELS_PER_BYTE) {
        return Err(ImageError(format!(
            "the JPEG's header promises {width}x{height} pixels, more than its {found} bytes can hold"
        )));
    }
    let count = usize::from(count);
    let mut components = [Component::default(); 4];
    let (specs, _) = specs.as_chunks::<3>();
    if specs.len() < count {
        return Err(damaged("its frame header ends early"));
    }
    for (component, &[id, sampling, quant]) in components.iter_mut().zip(specs).take(count) {
        let (h, v) = (usize::from(sampling >> 4), usize::from(sampling & 15));
        *component = Component { id, h, v, quant: usize::from(quant), ..Component::default() };
    }
    Ok(Some(Frame { width, height, progressive: marker == 0xc2, count, components }))
}

/// The colour space of the components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Grey,
    YCbCr,
    Rgb,
}

/// A Huffman table of DHT: the number of codes of each length, and their symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct HuffmanSpec<'a> {
    pub counts: &'a [u8; 16],
    pub symbols: &'a [u8],
}

/// A sequential JPEG of one scan, with everything for its decoder.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub width: usize,
    pub height: usize,
    pub color: Color,
    /// 1 or 3.
    count: usize,
    components: [Component; 4],
    /// 16-bit factors of the coefficients, in row order.
    pub quants: [[i16; 64]; 4],
    pub dc: [Option<HuffmanSpec<'a>>; 4],
    pub ac: [Option<HuffmanSpec<'a>>; 4],
    /// MCUs between restart markers; 0 without restart markers.
    pub restart_interval: usize,
    /// The entropy-coded data, and the rest of the file.
    pub data: &'a [u8],
}

impl Plan<'_> {
    /// Return the components of the frame and the scan.
    pub(super) fn components(&self) -> &[Component] {
        self.components.get(..self.count).unwrap_or_default()
    }

    pub(super) fn blocks_of_mcu(&self) -> usize {
        self.components().iter().map(|component| component.h * component.v).sum()
    }
}

/// Parse everything up to the data of the first scan. None for a JPEG that zune-jpeg decodes.
pub(super) fn plan(bytes: &[u8]) -> Result<Option<Plan<'_>>, ImageError> {
    let mut segments = Segments::new(bytes)?;
    let mut found_frame = None;
    let mut quants: [Option<[i16; 64]>; 4] = [None; 4];
    let (mut dc, mut ac) = ([None; 4], [None; 4]);
    let mut restart_interval = 0;
    let (mut jfif, mut adobe) = (false, None);
    let scan = loop {
        let (marker, segment) = segments.next()?;
        match marker {
            0xda if found_frame.is_some() => break segment,
            0xdb => read_quants(segment, &mut quants)?,
            0xc4 => read_huffman(segment, &mut dc, &mut ac)?,
            0xdd => match segment {
                &[high, low] => restart_interval = usize::from(u16::from_be_bytes([high, low])),
                _ => return Err(damaged("its restart interval is not a number")),
            },
            0xe0 => jfif |= segment.len() >= 12 && segment.starts_with(b"JFIF\0"),
            0xee if segment.starts_with(b"Adobe") => adobe = segment.get(11).copied().or(adobe),
            _ if found_frame.is_some() && matches!(marker, 0xc0..=0xc2) => {
                return Err(damaged("it has two frame headers"));
            }
            _ => {
                if let Some(frame) = frame(marker, segment, bytes.len())? {
                    found_frame = Some(frame);
                }
            }
        }
    };
    let Some(mut frame) = found_frame else { return Err(cut()) };
    let color = color(&frame, jfif, adobe);
    let Some(color) = color.filter(|_| !frame.progressive && read_scan(scan, &mut frame)) else {
        return Ok(None);
    };
    let mut plan = Plan {
        width: frame.width,
        height: frame.height,
        color,
        count: frame.count,
        components: frame.components,
        quants: [[0; 64]; 4],
        dc,
        ac,
        restart_interval,
        data: segments.rest,
    };
    for (component, quant) in frame.components.iter().take(frame.count).zip(&mut plan.quants) {
        let Some(Some(table)) = quants.get(component.quant) else {
            return Err(damaged("a quantisation table is missing"));
        };
        *quant = *table;
    }
    let missing = |component: &Component| {
        let table =
            |tables: &[Option<HuffmanSpec<'_>>; 4], at: usize| tables.get(at).is_some_and(Option::is_some);
        !table(&dc, component.dc) || !table(&ac, component.ac)
    };
    if frame.components.iter().take(frame.count).any(missing) {
        return Err(damaged("a Huffman table is missing"));
    }
    Ok(Some(plan))
}

/// Return the colour space as libjpeg determines it (`default_decompress_parms`): JFIF before Adobe's marker before the names of components.
fn color(frame: &Frame, jfif: bool, adobe: Option<u8>) -> Option<Color> {
    let [first, second, third, _] = frame.components;
    match (frame.count, adobe) {
        (1, _) => Some(Color::Grey),
        (3, _) if jfif => Some(Color::YCbCr),
        (3, Some(0)) => Some(Color::Rgb),
        (3, None) if [first.id, second.id, third.id] == *b"RGB" => Some(Color::Rgb),
        (3, _) => Some(Color::YCbCr),
        _ => None,
    }
}

/// Set the tables of the components of a scan. Return false unless this is the only scan of all components with
/// sampling factors that this decoder supports.
fn read_scan(segment: &[u8], frame: &mut Frame) -> bool {
    let Some((&count, rest)) = segment.split_first() else { return false };
    if usize::from(count) != frame.count {
        return false;
    }
    let (specs, rest) = rest.split_at_checked(2 * frame.count).unwrap_or_default();
    if !matches!(rest, [0, 63, 0, ..]) {
        return false;
    }
    if frame.count == 1 {
        // The blocks of a scan of one component lie one after the other, whatever its factors.
        frame.components.iter_mut().for_each(|component| (component.h, component.v) = (1, 1));
    }
    let (specs, _) = specs.as_chunks::<2>();
    let components = frame.components.get_mut(..frame.count).unwrap_or_default();
    let most = |side: fn(&Component) -> usize| components.iter().map(side).max().unwrap_or(0);
    let (h, v) = (most(|component| component.h), most(|component| component.v));
    let blocks: usize = components.iter().map(|component| component.h * component.v).sum();
    let whole =
        |part: usize, most: usize| part.is_power_of_two() && most / part <= 4 && most.is_multiple_of(part);
    for (component, &[id, tables]) in components.iter_mut().zip(specs) {
        if component.id != id || !whole(component.h, h) || !whole(component.v, v) {
            return false;
        }
        (component.dc, component.ac) = (usize::from(tables >> 4), usize::from(tables & 15));
    }
    blocks <= MAX_BLOCKS_OF_MCU && h <= 4 && v <= 4
}

fn read_quants(mut segment: &[u8], quants: &mut [Option<[i16; 64]>; 4]) -> Result<(), ImageError> {
    while let Some((&head, rest)) = segment.split_first() {
        let size = if head >> 4 == 0 { 1 } else { 2 };
        let wrong = || damaged("a quantisation table is cut off or has no such number");
        let (values, rest) = rest.split_at_checked(64 * size).ok_or_else(wrong)?;
        let slot = quants.get_mut(usize::from(head & 15)).ok_or_else(wrong)?;
        let table = slot.insert([0; 64]);
        for (value, &at) in values.chunks_exact(size).zip(&ZIGZAG) {
            let value = value.iter().fold(0u16, |value, &byte| value << 8 | u16::from(byte));
            if let Some(cell) = table.get_mut(usize::from(at)) {
                *cell = value.cast_signed();
            }
        }
        segment = rest;
    }
    Ok(())
}

fn read_huffman<'a>(
    mut segment: &'a [u8],
    dc: &mut [Option<HuffmanSpec<'a>>; 4],
    ac: &mut [Option<HuffmanSpec<'a>>; 4],
) -> Result<(), ImageError> {
    while let Some((&head, rest)) = segment.split_first() {
        let wrong = || damaged("a Huffman table is cut off or has no such number");
        let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(wrong)?;
        let total = counts.iter().map(|&count| usize::from(count)).sum();
        let (symbols, rest) = rest.split_at_checked(total).ok_or_else(wrong)?;
        let tables = match head >> 4 {
            0 => &mut *dc,
            1 => &mut *ac,
            _ => return Err(wrong()),
        };
        *tables.get_mut(usize::from(head & 15)).ok_or_else(wrong)? = Some(HuffmanSpec { counts, symbols });
        segment = rest;
    }
    Ok(())
}
