//! Columns of records: the buffers of one batch ([`batch`]), and those of a result that consists of batches
//! ([`gathered`]).

pub mod batch;
mod block;
mod cells;
pub mod gathered;
mod images;
mod parts;
mod row;
mod row_error;
mod scratch;
mod store;

pub use crate::schema::{DType, DefaultValue, Feature, ImageDType, Kind, Schema, SchemaError};
pub use batch::BatchColumns;
pub use block::{Block, Zeroed};
pub use gathered::GatheredColumns;
pub use row_error::{RowError, RowErrorKind};
pub use scratch::Scratch;
pub use store::Column;
