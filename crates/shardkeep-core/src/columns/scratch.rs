//! What filling rows keeps from one record to the next.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::schema::Schema;
use crate::example::parse::KeyOrder;
use crate::image::Decoder;

/// What a thread keeps between records: the order of keys, the decoders' buffers.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) order: KeyOrder,
    pub(super) decoder: Decoder,
    /// The number of the row that last had column i.
    pub(super) stamps: Vec<u64>,
    pub(super) now: u64,
    /// Images of the row at hand: column, and where in the record the image lies.
    pub(super) images: Vec<(usize, std::ops::Range<usize>)>,
    /// The schema that `order` and `stamps` belong to; held, so that no other schema can take its address.
    schema: Option<Arc<Schema>>,
}

impl Scratch {
    /// Forgets the keys of another schema.
    pub(super) fn use_for(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_none_or(|held| !Arc::ptr_eq(held, schema)) {
            self.order = KeyOrder::default();
            self.stamps = vec![0; schema.features().len()];
            self.now = 0;
            self.schema = Some(Arc::clone(schema));
        }
    }
}
