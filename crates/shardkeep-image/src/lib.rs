//! Decoding of PNG, JPEG and WebP images into the rows of a batch.
//!
//! The format is recognised by content, never by a name. PNG ([`png`]) and sequential JPEG ([`jpeg`]) are read by decoders of
//! this crate, other JPEGs by zune-jpeg, WebP ([`webp`]) by image-webp; docs/design/codec-and-images.md has the measurements
//! for that. Values equal TensorFlow's: `tf.io.decode_png` exactly (dtype uint8, or uint16 for the floats of a 16-bit PNG),
//! `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")` exactly for JPEGs that this crate decodes itself, and within the rounding of
//! zune-jpeg for others.
//!
//! Hostile input: the size in a header is compared with the largest size that the compressed bytes can expand to, before any
//! memory is allocated, so a small record never costs much memory. No input causes a panic.

pub mod decoder;
pub mod error;
pub mod header;
pub mod jpeg;
pub mod pixels;
pub mod png;
pub mod resize;
mod sniff;
pub mod webp;

pub use decoder::{Decoder, header};
pub use error::ImageError;
pub use header::{Format, Header};
pub use pixels::{ImageDType, Pixels};
