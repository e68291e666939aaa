//! Files: the descriptor pool, mapped files, copies between files, and versions and reads of many small files.

pub mod chunk_copy;
pub mod descriptor_pool;
pub mod known_files;
pub mod mapped_file;
pub mod parallel;
