//! Batches: columns of the values of many records, and the engine that fills them.

pub mod columns;
pub mod engine;
