//! Virtual datasets and their mappings.

pub mod mapping;
pub mod search;
pub mod selection;
