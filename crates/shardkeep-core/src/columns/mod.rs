//! From records to columns: what is wanted ([`schema`]) the buffers of one batch
//! ([`batch`]), and those of a result that batches are parts of ([`whole`]).

pub mod batch;
mod block;
mod cells;
mod images;
mod parts;
mod row;
pub mod schema;
mod scratch;
mod store;
pub mod whole;

pub use batch::{BatchColumns, RowError, RowErrorKind};
pub use block::{Block, Zeroed};
pub use schema::{DType, DefaultValue, Feature, ImageDType, Kind, Schema, SchemaError};
pub use scratch::Scratch;
pub use store::Column;
pub use whole::Whole;
