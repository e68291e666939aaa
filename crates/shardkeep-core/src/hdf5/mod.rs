//! A small reader of HDF5 metadata: from a path to an object, from the object to its messages.
//!
//! It is there because HDF5 takes long for what only has to be looked at: tens of milliseconds for a virtual dataset of
//! thousands of mappings. So it may say "not known" to anything, and then HDF5 is asked: it never guesses. What it does
//! know it reads as HDF5 would from the same bytes, so it is for files that nobody is writing.
//!
//! From the bytes up:
//!
//! * [`cursor`]          numbers out of bytes, never beyond their end
//! * [`lookup3`]         the checksum of metadata
//! * [`file`]            superblock (versions 0 to 3), addresses, how much may be read
//! * [`object_header`]   the messages of an object (versions 1 and 2)
//! * [`links`], [`symbol_table`]  what is in a group, in the order of HDF5
//! * [`messages`]        dataspace and layout
//! * [`global_heap`]     objects of any size
//! * [`selection`], [`virtual_mapping`]  which box of which source is where in a virtual dataset
//! * [`virtual_datasets`]  the virtual datasets of a file
//! * [`chunk_index`], `chunk_arrays`  where the chunks of a dataset are
//! * [`damage`], `dense_storage`, `heap_pointers`, `variable_rows`  what HDF5 must not be asked about
//! * `superblock_check`, `attribute_form`, [`look`], [`looks`]  what a merge has to know about files
//!
//! The format: "HDF5 File Format Specification Version 4.0" of the HDF Group, and what HDF5 1.8 to 2.0 write.
//!
//! # Hostile files
//!
//! An address or a length of the file leads nowhere beyond its end, and no more is kept than was read. All reading for
//! one [`File`] is bounded by [`MOST_READ_BYTES`], so a file whose structures point to each other in a circle, or
//! to the same place many times, ends in "not known". Structures with a checksum are used only if it is right.
#![deny(clippy::indexing_slicing)]

pub(crate) mod attribute_form;
pub(crate) mod chunk_arrays;
pub mod chunk_index;
pub mod cursor;
pub mod damage;
pub(crate) mod dense_storage;
pub mod file;
pub mod global_heap;
pub(crate) mod heap_pointers;
pub mod links;
pub mod look;
pub mod looks;
pub mod lookup3;
pub mod messages;
pub mod object_header;
pub mod selection;
pub(crate) mod superblock_check;
pub mod symbol_table;
pub(crate) mod variable_rows;
pub mod virtual_datasets;
pub mod virtual_mapping;

pub use cursor::{Known, NotKnown, Unread};
pub use file::{File, MOST_READ_BYTES, Storage};
