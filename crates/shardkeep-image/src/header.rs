//! Size and format of an image, from its header.

/// The formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Png,
    Jpeg,
    WebP,
}

/// What the header of an image says, before a pixel is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    pub width: usize,
    pub height: usize,
    /// Channels that decoding with `channels=0` gives: 1 to 4.
    pub channels: usize,
    /// Whether samples have 16 bits, which floats take whole.
    pub deep: bool,
}
