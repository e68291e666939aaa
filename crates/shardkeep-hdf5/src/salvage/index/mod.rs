//! Indexes of chunks, and blocks of them that no other block names.

pub(crate) mod arrays;
pub(crate) mod chunks;
mod extensible_array;
pub(crate) mod lone_nodes;
pub(crate) mod trees;
