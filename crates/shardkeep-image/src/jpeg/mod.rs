//! JPEG: an own decoder for baseline and other sequential Huffman-coded images, zune-jpeg for the rest.
//!
//! [`markers`] parses the headers, [`entropy`] decodes the data into coefficients with the tables of [`huffman`], [`idct`]
//! converts them to samples, [`upsample`] and [`color`] convert samples to pixels; [`planes`] stores the samples in between.
//! A row of MCUs passes all steps before the next one starts, so intermediate values stay in the first caches.
//! Every step computes what libjpeg computes, and pixels equal those of libjpeg-turbo in its default settings.

#![deny(clippy::indexing_slicing)]

mod color;
mod entropy;
mod fallback;
mod huffman;
mod idct;
#[cfg(target_arch = "x86_64")]
mod idct_avx2;
mod kernels;
mod markers;
mod planes;
mod upsample;

use crate::error::ImageError;
use entropy::{Block, Part, Scan};
use huffman::{AcTable, DcTable};
use kernels::Kernels;
use markers::{Color, HuffmanSpec, Plan};
use planes::Planes;

pub use markers::header;

/// Description of damage.
type Damage = &'static str;

/// MCUs between two steps of the decoder; their coefficients take 12 KB where chroma is halved both ways. Even, as the
/// IDCT takes two blocks at once.
const MCUS_AT_ONCE: usize = 16;

/// Larger buffers are freed after an image.
const KEEP_BYTES: usize = 16 << 20;

/// A table with its DHT; most files of a data set have the same.
#[derive(Debug)]
struct Cached<T> {
    spec: Vec<u8>,
    table: Option<T>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { spec: Vec::new(), table: None }
    }
}

impl<T> Cached<T> {
    fn load(
        &mut self,
        spec: Option<HuffmanSpec<'_>>,
        make: fn(&HuffmanSpec<'_>) -> Result<T, Damage>,
    ) -> Result<(), Damage> {
        let Some(spec) = spec else { return Ok(()) };
        let same = |(counts, symbols): (&[u8; 16], &[u8])| (counts, symbols) == (spec.counts, spec.symbols);
        if self.table.is_none() || !self.spec.split_first_chunk().is_some_and(same) {
            self.table = None;
            self.spec.clear();
            self.spec.extend_from_slice(spec.counts);
            self.spec.extend_from_slice(spec.symbols);
            self.table = Some(make(&spec)?);
        }
        Ok(())
    }
}

/// A decoder of JPEGs, with its tables and buffers.
#[derive(Debug, Default)]
pub struct JpegDecoder {
    dc: [Cached<DcTable>; 4],
    ac: [Cached<AcTable>; 4],
    unstuffed: Vec<u8>,
    blocks: Vec<Block>,
    lasts: Vec<u8>,
    planes: Planes,
}

impl JpegDecoder {
    /// Decode a JPEG into `out`, which is `height * width * channels` long. After an error `out` may be partly written.
    pub fn decode(&mut self, bytes: &[u8], channels: usize, out: &mut [u8]) -> Result<(), ImageError> {
        if channels == 4 {
            let pixels = out.len() / 4;
            self.decode(bytes, 3, out.get_mut(..pixels * 3).unwrap_or_default())?;
            widen(out);
            return Ok(());
        }
        // zune-jpeg invents the last rows of a truncated file. Entropy-coded data cannot contain an end marker (a
        // thumbnail can, but is before the frame header), so a file without one is truncated.
        let rest = markers::after_frame(bytes)?;
        if !rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]) {
            return Err(ImageError::new("the JPEG is cut off: it has no end marker"));
        }
        match markers::plan(bytes)? {
            Some(plan) => self
                .run(&plan, channels, out)
                .map_err(|damage| ImageError(format!("the JPEG is damaged: {damage}"))),
            None => fallback::decode(bytes, channels, out),
        }
    }

    fn run(&mut self, plan: &Plan<'_>, channels: usize, out: &mut [u8]) -> Result<(), Damage> {
        if Some(out.len()) != (plan.width * plan.height).checked_mul(channels) || !matches!(channels, 1 | 3) {
            return Err("its size is not that of its first header");
        }
        for (cached, &spec) in self.dc.iter_mut().zip(&plan.dc) {
            cached.load(spec, DcTable::new)?;
        }
        for (cached, &spec) in self.ac.iter_mut().zip(&plan.ac) {
            cached.load(spec, AcTable::new)?;
        }
        let mut parts = Vec::with_capacity(4);
        for component in plan.components() {
            let dc = self.dc.get(component.dc).and_then(|cached| cached.table.as_ref());
            let ac = self.ac.get(component.ac).and_then(|cached| cached.table.as_ref());
            let (Some(dc), Some(ac)) = (dc, ac) else { return Err("a Huffman table is missing") };
            parts.push(Part { dc, ac, blocks: component.h * component.v });
        }
        let kernels = Kernels::detect();
        // Grey of YCbCr is its Y.
        let wanted = if channels == 1 && plan.color != Color::Rgb { 1 } else { plan.components().len() };
        self.planes.reset(plan, wanted);
        self.blocks.resize(MCUS_AT_ONCE * markers::MAX_BLOCKS_OF_MCU, [0; 64]);
        self.lasts.resize(self.blocks.len(), 0);
        let mut scan = Scan::new(plan.data, plan.restart_interval, &mut self.unstuffed);
        for row in 0..self.planes.mcu_rows() {
            for first in (0..self.planes.mcus_across()).step_by(MCUS_AT_ONCE) {
                let count = MCUS_AT_ONCE.min(self.planes.mcus_across() - first) * plan.blocks_of_mcu();
                let blocks = self.blocks.get_mut(..count).unwrap_or_default();
                let lasts = self.lasts.get_mut(..count).unwrap_or_default();
                blocks.fill([0; 64]);
                scan.mcus(&parts, blocks, lasts)?;
                self.planes.fill(plan, first, blocks, lasts, kernels);
            }
            self.planes.emit(plan, row, channels, kernels, out);
        }
        if self.unstuffed.capacity() > KEEP_BYTES {
            self.unstuffed = Vec::new();
        }
        Ok(())
    }
}

/// Expand RGB in the first three quarters of `out` to opaque RGBA in all of it, from the end, so that nothing is
/// overwritten before it is read.
fn widen(out: &mut [u8]) {
    for pixel in (0..out.len() / 4).rev() {
        let Some(&[r, g, b]) = out.get(pixel * 3..).and_then(<[u8]>::first_chunk) else { continue };
        if let Some(rgba) = out.get_mut(pixel * 4..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *rgba = [r, g, b, 255];
        }
    }
}
