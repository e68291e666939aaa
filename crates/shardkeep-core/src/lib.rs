//! The Rust half of Shardkeep, without Python.
//!
//! Reading order, from the bytes up:
//!
//! * [`error`]    the one error type, with path, record and offset
//! * [`crc`]      CRC32C and TFRecord's mask
//! * [`crc_repair`]  which single bit of a record is wrong
//! * [`framing`]  the TFRecord frame: header, payload, footer
//! * [`frame_repair`]  a frame with flipped bits put right
//! * [`fdpool`]   virtual files over a bounded set of descriptors; `pread` only
//! * [`stream`]   records of one file in order, plain or compressed
//! * [`chunk_copy`]  pieces of one file, hashed on their way to places in another
//! * [`hdf5`]     metadata of HDF5 files, as far as it is simple
//! * [`known_files`]  many small files: whether each is as it was, and parts of them
//! * [`scan`]     where the frames of a file start
//! * [`writer`]   frames into a descriptor, plain or compressed
//! * [`wire`], [`example`], [`columns`], [`image`]  `tf.train.Example` into columns and back
//! * [`engine`]   the batch engine: rows of many shards into batch slots, by threads, in order

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
pub mod stream;
pub mod wire;
pub mod writer;

#[cfg(test)]
#[path = "../tests/scratch/mod.rs"]
mod scratch;
