//! The JPEGs that zune-jpeg reads for us: progressive ones, CMYK and YCCK, and those of several scans.
//!
//! Each call makes a decoder, as the crate has no reset.

#![deny(clippy::indexing_slicing)]

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::error::{ImageError, catch_panic};

/// Progressive files may hold many scans of nothing; more than this is an attack, not a picture.
const MAX_SCANS: usize = 64;

/// Decodes a JPEG into `out`, which is `height * width * channels` long; 1 or 3 channels.
pub(super) fn decode(bytes: &[u8], channels: usize, out: &mut [u8]) -> Result<(), ImageError> {
    // Damage can leave rows out, and `out` may hold the image before.
    out.fill(0);
    let space = match channels {
        1 => ColorSpace::Luma,
        3 => ColorSpace::RGB,
        _ => {
            return Err(ImageError(format!("a JPEG cannot be decoded into {channels} channels")));
        }
    };
    let options = DecoderOptions::new_fast()
        .jpeg_set_out_colorspace(space)
        .jpeg_set_max_scans(MAX_SCANS)
        .set_strict_mode(true)
        .set_max_width(65_535)
        .set_max_height(65_535);
    catch_panic("JPEG", || {
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(|error| error.to_string())?;
        let wanted = decoder.output_buffer_size();
        if wanted != Some(out.len()) {
            return Err(format!("it gives {wanted:?} bytes where {} are wanted", out.len()));
        }
        decoder.decode_into(out).map_err(|error| error.to_string())
    })
}
