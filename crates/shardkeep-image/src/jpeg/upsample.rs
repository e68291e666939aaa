//! Upsampling of chroma rows to the width of the image, as libjpeg's "fancy" upsampling (jdsample.c): a sample is three
//! quarters of the nearer one and one quarter of the farther one, with different rounding for each side.
//!
//! A row is read from one sample before its first to one after its last: the caller repeats the outermost samples there, as
//! libjpeg does. The loops are simple so that the compiler vectorises them.

/// Double the width: `out[2 i]` leans to the left, `out[2 i + 1]` to the right. `row` has one sample more on each side.
#[inline(always)]
pub(super) fn twice_as_wide(row: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    let sides = row.iter().zip(row.get(1..).unwrap_or_default()).zip(row.get(2..).unwrap_or_default());
    for (pair, ((&left, &near), &right)) in pairs.iter_mut().zip(sides) {
        let near = 3 * u16::from(near);
        *pair = [((near + u16::from(left) + 1) >> 2) as u8, ((near + u16::from(right) + 2) >> 2) as u8];
    }
}

/// Double width and height: compute the row of samples next to `near` on the side of `far`.
#[inline(always)]
pub(super) fn twice_as_both(near: &[u8], far: &[u8], sums: &mut [u16], out: &mut [u8]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
    let sums = &*sums;
    let (pairs, _) = out.as_chunks_mut::<2>();
    let sides = sums.iter().zip(sums.get(1..).unwrap_or_default()).zip(sums.get(2..).unwrap_or_default());
    for (pair, ((&left, &near), &right)) in pairs.iter_mut().zip(sides) {
        *pair = [((3 * near + left + 8) >> 4) as u8, ((3 * near + right + 7) >> 4) as u8];
    }
}

/// Double the height: the upper of the two rows for `near` is rounded down in ties.
#[inline(always)]
pub(super) fn twice_as_high(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    let bias = if upper { 1 } else { 2 };
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}

/// Repeat every sample `times` times.
pub(super) fn repeat(row: &[u8], times: usize, out: &mut [u8]) {
    for (out, &sample) in out.chunks_mut(times).zip(row) {
        out.fill(sample);
    }
}
