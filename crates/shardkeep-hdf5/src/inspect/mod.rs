//! Objects, types and row locations of files, as a merge needs them.

pub mod attribute_form;
pub mod files;
pub mod source_info;
