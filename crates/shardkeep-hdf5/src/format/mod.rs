//! Structures of the file format that others consist of: numbers, checksums, superblock, object headers, heaps.

pub mod attribute;
pub mod cursor;
pub mod dataspace;
pub mod datatype;
pub mod file;
pub mod fletcher32;
pub mod global_heap;
pub mod lookup3;
pub mod object_header;
pub mod superblock;
pub mod superblock_check;
