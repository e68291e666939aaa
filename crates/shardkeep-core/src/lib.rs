//! The Rust half of Shardkeep, without Python.
//!
//! Reading order, from the bytes up:
//!
//! * [`error`]    the one error type, with path, record and offset
//! * [`crc`]      CRC32C and TFRecord's mask
//! * [`crc_repair`]  the single flipped bit of a record
//! * [`framing`]  the TFRecord frame: header, payload, footer
//! * [`frame_repair`]  correction of flipped bits of a frame
//! * [`fdpool`]   virtual files over a bounded set of descriptors; `pread` only
//! * [`stream`]   records of one file in order, plain or compressed
//! * [`chunk_copy`]  copies of pieces of one file to offsets of another, with a hash
//! * [`hdf5`]     simple metadata of HDF5 files
//! * [`known_files`]  checks whether many small files have changed, and reads of their parts
//! * [`scan`]     offsets of the frames of a file
//! * [`writer`]   frames into a descriptor, plain or compressed
//! * [`schema`]   features of a batch and their kinds, below the next modules
//! * [`wire`], [`example`], [`image`], [`columns`]  `tf.train.Example` into columns and back
//! * [`engine`]   the batch engine: several threads read rows of many shards into batches, in order

pub mod chunk_copy;
pub mod columns;
pub mod crc;
pub mod crc_repair;
pub mod engine;
pub mod error;
pub mod example;
pub mod fdpool;
pub mod frame_repair;
pub mod framing;
pub mod hdf5;
pub mod image;
pub mod known_files;
pub mod scan;
pub mod schema;
pub mod stream;
pub mod wire;
pub mod writer;

#[cfg(test)]
#[path = "../tests/scratch/mod.rs"]
mod scratch;
