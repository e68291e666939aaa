//! TFRecord files, examples and batches, without Python.
//!
//! From the lowest layer to the highest:
//!
//! * [`error`]    the error type, with path, record and offset
//! * [`crc`]      CRC32C and the mask of TFRecord
//! * [`assignment`] whole files for ranks, and slots that read them in turn
//! * [`io`]       the descriptor pool, copies between files, reads of many small files
//! * [`record`]   TFRecord frames: format, streams, scans, writing, correction of flipped bits
//! * [`schema`]   the features of a batch and their kinds
//! * [`example`]  `tf.train.Example` messages: parsing and encoding
//! * [`batch`]    columns of a batch, and the engine that fills batches from many shards
//!
//! Images are decoded by the crate `shardkeep_image`, on which this one depends.

pub mod assignment;
pub mod batch;
pub mod crc;
pub mod error;
pub mod example;
pub mod io;
pub mod record;
pub mod schema;

#[cfg(test)]
#[path = "../tests/scratch/mod.rs"]
mod scratch;
