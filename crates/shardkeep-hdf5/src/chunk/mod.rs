//! Layouts of datasets and indexes of their chunks.

pub(crate) mod arrays;
pub mod index;
pub mod layout;
pub mod list;
