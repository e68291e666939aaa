//! Links of groups, and messages that are stored in a fractal heap.

pub mod dense_storage;
pub mod links;
pub mod symbol_table;
