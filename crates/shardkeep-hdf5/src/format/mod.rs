//! Structures of the file format that others consist of: numbers, checksums, superblock, object headers, heaps.

pub mod cursor;
pub mod file;
pub mod global_heap;
pub mod lookup3;
pub mod messages;
pub mod object_header;
pub mod superblock_check;
