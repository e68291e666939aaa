//! State that is kept from one record to the next.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use crate::example::parse::KeyOrder;
use crate::schema::Schema;
use shardkeep_image::Decoder;

/// State of a thread between records: the order of keys, and buffers of the decoders.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) order: KeyOrder,
    pub(super) decoder: Decoder,
    /// Number of the last row that had column i.
    pub(super) last_seen: Vec<u64>,
    pub(super) row_number: u64,
    /// Images of the current row: column, and byte range in the record.
    pub(super) images: Vec<(usize, std::ops::Range<usize>)>,
    /// The schema of `order` and `last_seen`; held, so that no other schema can have its address.
    schema: Option<Arc<Schema>>,
}

impl Scratch {
    /// Clear the keys of another schema.
    pub(super) fn use_for(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_none_or(|held| !Arc::ptr_eq(held, schema)) {
            self.order = KeyOrder::default();
            self.last_seen = vec![0; schema.features().len()];
            self.row_number = 0;
            self.schema = Some(Arc::clone(schema));
        }
    }
}
