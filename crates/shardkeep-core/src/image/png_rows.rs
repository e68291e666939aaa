//! Undoing PNG's row filters (PNG specification, section 9).

#![deny(clippy::indexing_slicing)]

/// Undoes `filter` on one row: `dst` from the filtered bytes `src`, the bytes above `prev` (zeros for the first row)
/// and the pixel size `bpp` in bytes. All three slices have the same length. False for a filter that does not exist.
pub fn unfilter(filter: u8, bpp: usize, src: &[u8], prev: &[u8], dst: &mut [u8]) -> bool {
    match filter {
        0 => {
            if src.len() == dst.len() {
                dst.copy_from_slice(src);
            }
        }
        2 => {
            for ((out, &byte), &up) in dst.iter_mut().zip(src).zip(prev) {
                *out = byte.wrapping_add(up);
            }
        }
        1 | 3 | 4 => match bpp {
            1 => serial::<1>(filter, src, prev, dst),
            2 => serial::<2>(filter, src, prev, dst),
            3 => serial::<3>(filter, src, prev, dst),
            4 => serial::<4>(filter, src, prev, dst),
            6 => serial::<6>(filter, src, prev, dst),
            _ => serial::<8>(filter, src, prev, dst),
        },
        _ => return false,
    }
    true
}

/// The filters that look at the pixel to the left, for pixels of `N` bytes.
fn serial<const N: usize>(filter: u8, src: &[u8], prev: &[u8], dst: &mut [u8]) {
    let pixels = dst.chunks_exact_mut(N).zip(src.chunks_exact(N)).zip(prev.chunks_exact(N));
    let mut left = [0u8; N];
    match filter {
        1 => {
            for ((out, src), _) in pixels {
                for (left, &byte) in left.iter_mut().zip(src) {
                    *left = left.wrapping_add(byte);
                }
                out.copy_from_slice(&left);
            }
        }
        3 => {
            for ((out, src), up) in pixels {
                for ((left, &byte), &up) in left.iter_mut().zip(src).zip(up) {
                    *left = byte.wrapping_add(((u16::from(*left) + u16::from(up)) / 2) as u8);
                }
                out.copy_from_slice(&left);
            }
        }
        _ => {
            let mut corner = [0u8; N];
            for ((out, src), up) in pixels {
                for (((left, corner), &byte), &up) in left.iter_mut().zip(&mut corner).zip(src).zip(up) {
                    *left = byte.wrapping_add(paeth(*left, up, *corner));
                    *corner = up;
                }
                out.copy_from_slice(&left);
            }
        }
    }
}

#[inline]
fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let (a, b, c) = (i16::from(left), i16::from(up), i16::from(corner));
    let (pa, pb) = (b - c, a - c);
    let pc = (pa + pb).abs();
    let (pa, pb) = (pa.abs(), pb.abs());
    let nearest = if pb <= pc { b } else { c };
    (if pa <= pb && pa <= pc { a } else { nearest }) as u8
}
