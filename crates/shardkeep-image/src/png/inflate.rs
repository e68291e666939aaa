//! Inflation of the zlib stream of a PNG, by libdeflate.
//!
//! libdeflate verifies the Adler-32 of a stream that fits into the buffer. zlib-rs reads all other streams: one that
//! has more rows than the image is valid if its checksum is right, and zlib-rs names the damage of a damaged one.

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};

/// Description of the damage of a stream.
pub type Damage = &'static str;

const SHORT: Damage = "it ends early";

/// An inflater, whose tables are kept between streams.
#[derive(Default)]
pub struct Inflater {
    decompressor: Decompressor,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// Fill the first `length` bytes of `out` from the zlib stream `data`.
    ///
    /// The rest of `out` may be overwritten; with it libdeflate need not check each write near the end.
    ///
    /// # Errors
    /// The stream is damaged, has a wrong Adler-32, or is too short.
    pub fn zlib(&mut self, data: &[u8], out: &mut [u8], length: usize) -> Result<(), Damage> {
        match self.decompressor.zlib_decompress(data, out) {
            Ok(found) if found >= length => Ok(()),
            Ok(_) => Err(SHORT),
            // libdeflate does not write the part of a copy that fits.
            Err(DecompressionError::InsufficientSpace) => read_to_end(data, out),
            Err(DecompressionError::BadData) => {
                Err(read_to_end(data, &mut []).err().unwrap_or("it is damaged"))
            }
        }
    }
}

/// Fill `out` from a zlib stream, read the stream to its end, and verify its checksum.
#[cold]
fn read_to_end(data: &[u8], out: &mut [u8]) -> Result<(), Damage> {
    let mut inflater = Decompress::new(true);
    let mut scratch = [0; 16 << 10];
    loop {
        let (read, written) = (inflater.total_in(), inflater.total_out());
        let position = |total| usize::try_from(total).unwrap_or(usize::MAX);
        let rest = data.get(position(read)..).unwrap_or_default();
        let room = out.get_mut(position(written)..).filter(|room| !room.is_empty()).unwrap_or(&mut scratch);
        match inflater.decompress(rest, room, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return Ok(()),
            Ok(_) if (inflater.total_in(), inflater.total_out()) == (read, written) => return Err(SHORT),
            Ok(_) => {}
            Err(error) if error.message() == Some("incorrect data check") => {
                return Err("its Adler-32 is not that of its data");
            }
            Err(error) if error.message() == Some("incorrect header check") => {
                return Err("it is not a zlib stream");
            }
            Err(_) => return Err("its deflate blocks are damaged"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn deflate(bytes: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(data: &[u8], length: usize) -> Result<Vec<u8>, Damage> {
        let mut out = vec![0; length];
        Inflater::default().zlib(data, &mut out, length)?;
        let mut longer = vec![0; length + 400];
        Inflater::default().zlib(data, &mut longer, length)?;
        assert_eq!(longer[..length], out);
        Ok(out)
    }

    /// Return bytes of a linear congruential generator, with long repetitions if `period` is small.
    fn bytes(length: usize, period: usize) -> Vec<u8> {
        let next = |state: &mut u32| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*state >> 24) as u8)
        };
        let base: Vec<u8> = std::iter::repeat(()).scan(1, |state, ()| next(state)).take(period).collect();
        base.into_iter().cycle().take(length).collect()
    }

    #[test]
    fn streams_of_zlib_are_inflated_whole_or_in_part() {
        for level in [0, 1, 6, 9] {
            for (length, period) in [(1, 1), (300, 7), (3_000, 100), (70_000, 9), (5_000, 5_000)] {
                let expected = bytes(length, period);
                let data = deflate(&expected, level);
                assert_eq!(inflate(&data, length).as_ref(), Ok(&expected));
                assert_eq!(inflate(&data, length * 2 / 3).as_deref(), Ok(&expected[..length * 2 / 3]));
                assert_eq!(inflate(&data, length + 1), Err(SHORT));
                for cut in 1..data.len().min(40) {
                    assert!(inflate(&data[..data.len() - cut], length).is_err(), "{cut} bytes are missing");
                }
                let followed = [&data[..], &[7; 20]].concat();
                assert_eq!(inflate(&followed, length).as_ref(), Ok(&expected), "bytes after the stream");
            }
        }
    }

    #[test]
    fn a_wrong_adler32_is_an_error() {
        for length in [1, 300, 70_000] {
            let mut data = deflate(&bytes(length, 9), 6);
            for room in [length, length - 1, length / 2] {
                *data.last_mut().unwrap() ^= 1;
                assert_eq!(inflate(&data, room), Err("its Adler-32 is not that of its data"));
                *data.last_mut().unwrap() ^= 1;
            }
        }
    }

    #[test]
    fn blocks_after_the_data_may_be_empty() {
        // Z_SYNC_FLUSH writes an empty block, and the end is one more.
        let expected = bytes(5_000, 9);
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&expected).unwrap();
        encoder.flush().unwrap();
        encoder.flush().unwrap();
        assert_eq!(inflate(&encoder.finish().unwrap(), expected.len()), Ok(expected));
    }

    #[test]
    fn damage_is_named() {
        assert_eq!(inflate(&[0x79, 0x01, 3, 0, 0, 0, 0, 1], 0), Err("it is not a zlib stream"));
        assert_eq!(inflate(&[0x78, 0x01, 7, 0, 0, 0, 0, 1], 1), Err("its deflate blocks are damaged"));
        assert_eq!(inflate(&[0x78, 0x01], 1), Err(SHORT));
    }
}
