//! Objects, types and row locations of files, as a merge needs them.

pub mod files;
pub mod form;
pub mod source_info;
