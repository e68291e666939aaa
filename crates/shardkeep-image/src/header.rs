//! Size and format of an image, from its header.

/// The supported formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Png,
    Jpeg,
    WebP,
}

/// The header of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    pub width: usize,
    pub height: usize,
    /// Number of channels of a decoding with `channels=0`: 1 to 4.
    pub channels: usize,
    /// True if samples have 16 bits, which floats keep.
    pub deep: bool,
}
