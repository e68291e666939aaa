//! TFRecord files: frames, streams, scans, writing, and the correction of flipped bits.

pub mod bit_flip;
pub mod frame_repair;
pub mod framing;
pub mod scan;
pub mod stream;
pub mod writer;
