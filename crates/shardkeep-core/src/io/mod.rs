//! Files: the descriptor pool, copies between files, and versions and reads of many small files.

pub mod chunk_copy;
pub mod descriptor_pool;
pub mod known_files;
pub mod parallel;
