//! A reader of HDF5 metadata: from a path to an object, from the object to its messages.
//!
//! HDF5 needs tens of milliseconds to open a virtual dataset of thousands of mappings, and some damage makes it crash or
//! loop. This reader answers simple questions first. It may answer "not known" to any of them, and then the caller asks HDF5:
//! it never guesses. What it does know is what HDF5 would read from the same bytes, so it is for files that no process is
//! writing.
//!
//! From the lowest layer to the highest:
//!
//! * [`format`]           numbers, checksums, superblock, object headers, dataspaces, global heaps
//! * [`group`]            links of groups in the order of HDF5, and messages in fractal heaps
//! * [`chunk`]            layouts of datasets and indexes of their chunks
//! * [`virtual_dataset`]  virtual datasets and their mappings
//! * [`inspect`]          objects, types and row locations of the sources of a merge
//! * [`damage`]           damage that HDF5 does not survive
//! * [`salvage`]          what is left of a damaged file
//!
//! The format: "HDF5 File Format Specification Version 4.0" of the HDF Group, and what HDF5 1.8 to 2.0 write.
//!
//! # Hostile files
//!
//! No address or length in the file leads beyond its end, and no more is kept than was read. All reading for one [`File`] is
//! bounded by [`MOST_READ_BYTES`], so a file whose structures refer to each other in a circle, or to the same bytes many
//! times, ends in "not known". Structures with a checksum are used only if it is right.
#![deny(clippy::indexing_slicing)]

pub mod chunk;
pub mod damage;
pub mod format;
pub mod group;
pub mod inspect;
pub mod salvage;
pub mod virtual_dataset;

pub use format::cursor::{Known, NotKnown, Unread};
pub use format::file::{File, MOST_READ_BYTES, Storage};
