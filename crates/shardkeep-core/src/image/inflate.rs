//! Inflate into a buffer of known size.

use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// Inflates zlib streams; keeps its tables between calls.
#[derive(Default)]
pub struct Inflater {
    state: Box<DecompressorOxide>,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inflater")
    }
}

impl Inflater {
    /// Fills `out` from the zlib stream `data`.
    pub fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
        self.state.init();
        let flags = inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
            | inflate_flags::TINFL_FLAG_IGNORE_ADLER32;
        let (_, _, written) = decompress(&mut self.state, data, out, 0, flags);
        if written == out.len() { Ok(()) } else { Err("it ends early or is damaged") }
    }
}
