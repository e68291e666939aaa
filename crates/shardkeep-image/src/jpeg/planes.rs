//! Samples of one row of MCUs, and their conversion to pixels.
//!
//! A component's plane has the rows of one row of MCUs and, before them, the last row of the MCUs above. Upsampling by two
//! downwards uses the rows above and below, so the last row of pixels of a row of MCUs is written with the next.

#![deny(clippy::indexing_slicing)]

use super::entropy::Block;
use super::kernels::Kernels;
use super::markers::{Color, Component, Plan};
use super::{color, upsample};

/// Samples before the first of a row, of which the last is used: a row and the loads of vector code start aligned.
const LEFT: usize = 32;
/// Samples after the MCUs of a row: one repeats the last, and vector code uses whole vectors.
const RIGHT: usize = 64;

/// The upsampling of a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Upsampling {
    #[default]
    None,
    Wide,
    Both,
    High,
    /// Repetition of every sample, across.
    Repeat,
}

#[derive(Debug, Default)]
struct Plane {
    /// `1 + 8 v` rows of `stride` samples.
    samples: Vec<u8>,
    stride: usize,
    /// Sampling factors.
    h: usize,
    v: usize,
    /// Number of image samples of a sample, across and down.
    across: usize,
    down: usize,
    /// Size of the component, as libjpeg's `downsampled_width` and `_height`.
    width: usize,
    height: usize,
    upsampling: Upsampling,
    /// A row of the image's samples.
    row: Vec<u8>,
}

impl Plane {
    fn line(&self, number: usize) -> &[u8] {
        self.samples.get(number * self.stride..(number + 1) * self.stride).unwrap_or_default()
    }

    /// Prepare the plane for an image of `mcus` across.
    fn reset(
        &mut self,
        plan: &Plan<'_>,
        (h, v): (usize, usize),
        (most_h, most_v): (usize, usize),
        mcus: usize,
    ) {
        (self.h, self.v, self.across, self.down) = (h, v, most_h / h, most_v / v);
        self.width = plan.width.div_ceil(self.across);
        self.height = plan.height.div_ceil(self.down);
        self.stride = LEFT + (mcus * h * 8).next_multiple_of(32) + RIGHT;
        // As libjpeg chooses (jinit_upsampler); rows of one or two samples are only repeated.
        self.upsampling = match (self.across, self.down) {
            (1, 1) => Upsampling::None,
            (2, 1) if self.width > 2 => Upsampling::Wide,
            (2, 2) if self.width > 2 => Upsampling::Both,
            (1, 2) => Upsampling::High,
            _ => Upsampling::Repeat,
        };
        // Old samples are overwritten before they are read, except those outside the image.
        self.samples.resize((1 + 8 * v) * self.stride, 0);
        self.row.resize(plan.width.next_multiple_of(32) + RIGHT, 0);
        shrink(&mut self.samples);
    }

    /// Upsample row `y` of the image into `self.row`, unless the plane has it. `top` is the first row of
    /// pixels of the MCUs.
    fn upsample(&mut self, y: usize, top: usize, sums: &mut [u16], kernels: Kernels) {
        if self.upsampling == Upsampling::None {
            return;
        }
        // Row 0 of the plane is the one above the MCUs.
        let place = |row: usize| (row + 1).saturating_sub(top / self.down);
        let near = y / self.down;
        let upper = y.is_multiple_of(2);
        let far = if upper { near.saturating_sub(1) } else { (near + 1).min(self.height - 1) };
        let places = [place(near), place(far)];
        for line in places {
            // The outermost samples are repeated on both sides.
            let line = self.samples.get_mut(line * self.stride..).unwrap_or_default();
            if let Some(&[_, first]) = line.get(LEFT - 1..=LEFT).and_then(|pair| pair.first_chunk())
                && let Some(&last) = line.get(LEFT + self.width - 1)
                && let Some(ends) = line.get_mut(LEFT - 1..=LEFT + self.width)
                && let [left, .., right] = ends
            {
                (*left, *right) = (first, last);
            }
        }
        let mut out = std::mem::take(&mut self.row);
        let [near, far] =
            places.map(|line| self.line(line).get(LEFT - 1..=LEFT + self.width).unwrap_or_default());
        match self.upsampling {
            Upsampling::None => {}
            Upsampling::Wide => kernels.twice_as_wide(near, &mut out),
            Upsampling::Both => kernels.twice_as_both(near, far, sums, &mut out),
            Upsampling::High => {
                let [near, far] = [near, far].map(|line| line.get(1..).unwrap_or_default());
                kernels.twice_as_high(near, far, upper, &mut out);
            }
            Upsampling::Repeat => upsample::repeat(near.get(1..).unwrap_or_default(), self.across, &mut out),
        }
        self.row = out;
    }

    /// Return row `y` of the image, after [`Plane::upsample`].
    fn pixels(&self, y: usize, top: usize) -> &[u8] {
        match self.upsampling {
            Upsampling::None => self.line(y + 1 - top).get(LEFT..).unwrap_or_default(),
            _ => &self.row,
        }
    }
}

/// The planes of all requested components.
#[derive(Debug, Default)]
pub(super) struct Planes {
    planes: Vec<Plane>,
    sums: Vec<u16>,
    mcus_across: usize,
    mcu_rows: usize,
    /// Rows of pixels of a row of MCUs.
    mcu_height: usize,
    /// Rows of pixels that need the next row of MCUs.
    delay: usize,
}

impl Planes {
    /// Prepare for an image; the first `wanted` components are requested.
    pub(super) fn reset(&mut self, plan: &Plan<'_>, wanted: usize) {
        let components = plan.components();
        let most = |side: fn(&Component) -> usize| components.iter().map(side).max().unwrap_or(1);
        let (most_h, most_v) = (most(|component| component.h), most(|component| component.v));
        self.mcu_height = 8 * most_v;
        self.mcus_across = plan.width.div_ceil(8 * most_h);
        self.mcu_rows = plan.height.div_ceil(self.mcu_height);
        self.planes.resize_with(wanted, Plane::default);
        for (plane, component) in self.planes.iter_mut().zip(components) {
            plane.reset(plan, (component.h, component.v), (most_h, most_v), self.mcus_across);
        }
        self.sums.resize(plan.width + RIGHT, 0);
        let waits = |plane: &Plane| matches!(plane.upsampling, Upsampling::Both | Upsampling::High);
        self.delay = usize::from(self.planes.iter().any(waits));
    }

    pub(super) fn mcus_across(&self) -> usize {
        self.mcus_across
    }

    pub(super) fn mcu_rows(&self) -> usize {
        self.mcu_rows
    }

    /// Write the samples of MCUs from `first` on into the planes.
    pub(super) fn fill(
        &mut self,
        plan: &Plan<'_>,
        first: usize,
        blocks: &[Block],
        lasts: &[u8],
        kernels: Kernels,
    ) {
        static NOTHING: Block = [0; 64];
        let size = plan.blocks_of_mcu();
        let mcus = blocks.len() / size;
        let mut start = 0;
        for (plane, quant) in self.planes.iter_mut().zip(&plan.quants) {
            let (h, stride) = (plane.h, plane.stride);
            for down in 0..plane.v {
                let block = |column: usize| {
                    let at = column / h * size + start + down * h + column % h;
                    if column < mcus * h { blocks.get(at).zip(lasts.get(at)) } else { None }
                };
                for column in (0..mcus * h).step_by(2) {
                    let at = (1 + 8 * down) * stride + LEFT + 8 * (first * h + column);
                    let (Some((left, &last)), Some(out)) = (block(column), plane.samples.get_mut(at..))
                    else {
                        continue;
                    };
                    let (right, &right_last) = block(column + 1).unwrap_or((&NOTHING, &0));
                    kernels.idct([left, right], last.max(right_last), quant, out, stride);
                }
            }
            start += h * plane.v;
        }
    }

    /// Write the pixels that row `row` of MCUs completes.
    pub(super) fn emit(
        &mut self,
        plan: &Plan<'_>,
        row: usize,
        channels: usize,
        kernels: Kernels,
        out: &mut [u8],
    ) {
        let top = row * self.mcu_height;
        let begin = top.saturating_sub(self.delay);
        let last = row + 1 == self.mcu_rows;
        let end = if last { plan.height } else { top + self.mcu_height - self.delay };
        let bytes = plan.width * channels;
        let lines = out.get_mut(begin * bytes..end * bytes).unwrap_or_default();
        for (y, out) in (begin..end).zip(lines.chunks_exact_mut(bytes)) {
            for plane in &mut self.planes {
                plane.upsample(y, top, &mut self.sums, kernels);
            }
            match self.planes.as_slice() {
                [grey] if channels == 1 => {
                    out.copy_from_slice(grey.pixels(y, top).get(..bytes).unwrap_or_default());
                }
                [grey] => color::interleave([grey.pixels(y, top); 3], out),
                [one, two, three] => {
                    let rows = [one, two, three].map(|plane| plane.pixels(y, top));
                    match (plan.color, channels) {
                        (Color::YCbCr, _) => kernels.ycbcr_to_rgb(rows, out),
                        (_, 1) => color::rgb_to_grey(rows, out),
                        _ => color::interleave(rows, out),
                    }
                }
                _ => {}
            }
        }
        for plane in &mut self.planes {
            let above = 8 * plane.v * plane.stride;
            plane.samples.copy_within(above..above + plane.stride, 0);
        }
    }
}

fn shrink(samples: &mut Vec<u8>) {
    if samples.capacity() > super::KEEP_BYTES && samples.len() <= super::KEEP_BYTES {
        samples.shrink_to_fit();
    }
}
