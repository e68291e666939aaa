//! Search for damage that HDF5 does not survive.

pub mod heap_pointers;
pub mod search;
pub mod variable_rows;
