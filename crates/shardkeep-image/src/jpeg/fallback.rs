//! JPEGs that zune-jpeg decodes: progressive ones, CMYK and YCCK, and those of several scans.
//!
//! Each call creates a decoder, as the crate has no reset.

#![deny(clippy::indexing_slicing)]

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::error::{ImageError, catch_panic};

/// Largest number of scans: progressive files may have many empty scans, which are an attack.
const MAX_SCANS: usize = 64;

/// Decode a JPEG into `out`, which is `height * width * channels` long; 1 or 3 channels.
pub(super) fn decode(bytes: &[u8], channels: usize, out: &mut [u8]) -> Result<(), ImageError> {
    // Damage can leave rows unwritten, and `out` may hold an earlier image.
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
