//! Layouts of datasets and indexes of their chunks.

pub mod arrays;
pub mod index;
