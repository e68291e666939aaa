//! From records to columns: what is wanted ([`schema`]) and the buffers of one batch ([`batch`]).

pub mod batch;
mod cells;
mod images;
mod parts;
mod row;
pub mod schema;

pub use batch::{BatchColumns, Column, RowError, RowErrorKind, Scratch};
pub use schema::{DType, DefaultValue, Feature, ImageDType, Kind, Schema, SchemaError};
