//! TFRecord files: frames, their offsets, streams, scans, writing, the correction of flipped bits, and salvage.

pub mod bit_flip;
pub mod compressed_salvage;
pub mod frame_repair;
pub mod framing;
pub mod positions;
pub mod salvage;
pub mod scan;
pub mod stream;
pub mod writer;
