//! Bilinear resize with half-pixel centres and no antialiasing: `tf.image.resize`'s default.
//!
//! The arithmetic follows TensorFlow's CPU kernel (resize_bilinear_op.cc) step by step, in single precision. No crate
//! has the same values: they antialias when shrinking or use fixed point.

#![deny(clippy::indexing_slicing)]

/// The two source coordinates of an output coordinate, and the weight of the second.
#[derive(Debug, Clone, Copy)]
struct Tap {
    lower: usize,
    upper: usize,
    weight: f32,
}

fn taps(source: usize, target: usize) -> Vec<Tap> {
    let scale = source as f32 / target as f32;
    (0..target)
        .map(|i| {
            let at = (i as f32 + 0.5) * scale - 0.5;
            let floor = at.floor();
            Tap {
                lower: floor.max(0.0) as usize,
                upper: (at.ceil() as usize).min(source.saturating_sub(1)),
                weight: at - floor,
            }
        })
        .collect()
}

/// Resize `pixels` (source height, width, channels) into `out` (target height, width, channels).
pub fn bilinear(
    pixels: &[f32],
    source: (usize, usize),
    channels: usize,
    target: (usize, usize),
    out: &mut [f32],
) {
    walk(pixels, source, channels, target, out, |value| value, |value| value);
}

/// Resize bytes; values are rounded half to even, as in `tf.round`.
pub fn bilinear_u8(
    pixels: &[u8],
    source: (usize, usize),
    channels: usize,
    target: (usize, usize),
    out: &mut [u8],
) {
    walk(pixels, source, channels, target, out, f32::from, |value| value.round_ties_even() as u8);
}

fn walk<T: Copy + Default>(
    pixels: &[T],
    (source_height, source_width): (usize, usize),
    channels: usize,
    (height, width): (usize, usize),
    out: &mut [T],
    load: impl Fn(T) -> f32,
    store: impl Fn(f32) -> T,
) {
    let line = source_width * channels;
    let columns = taps(source_width, width);
    let row_at = |y: usize| pixels.get(y * line..(y + 1) * line).unwrap_or_default();
    let rows = taps(source_height, height);
    for (out_row, tap) in out.chunks_exact_mut((width * channels).max(1)).zip(&rows) {
        let (top, bottom) = (row_at(tap.lower), row_at(tap.upper));
        for (out_pixel, x) in out_row.chunks_exact_mut(channels.max(1)).zip(&columns) {
            let (left, right) = (x.lower * channels, x.upper * channels);
            for (channel, value) in out_pixel.iter_mut().enumerate() {
                let at =
                    |row: &[T], start: usize| load(row.get(start + channel).copied().unwrap_or_default());
                let (top_left, bottom_left) = (at(top, left), at(bottom, left));
                let upper = top_left + (at(top, right) - top_left) * x.weight;
                let lower = bottom_left + (at(bottom, right) - bottom_left) * x.weight;
                *value = store(upper + (lower - upper) * tap.weight);
            }
        }
    }
}
