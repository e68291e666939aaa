//! Nodes of trees of chunks that no tree names.

use std::collections::HashMap;

use crate::salvage::dataset::Layout;
use crate::salvage::index::chunks::{Chunks, Collection, Proof};
use crate::salvage::index::trees::LoneChunk;
use crate::salvage::objects::{Ambiguous, Kind, Object, Search};
use crate::salvage::scan::Signature;

impl Search<'_> {
    /// Give the nodes of chunks that no tree names to the dataset that can own them, if it is the only one.
    pub(crate) fn lone_nodes(&mut self) -> Vec<Ambiguous> {
        // A dataset that is lost itself may own any node.
        let all_known = self.objects.iter().all(|object| match object.kind {
            Kind::Group => object.links_are_whole,
            Kind::Dataset => object.dataset.is_some(),
            kind => kind != Kind::Lost,
        });
        let mut open: Vec<(usize, Collection<'_>)> = Vec::new();
        for (number, object) in
            self.objects.iter().enumerate().filter(|(_, object)| !object.lost_places.is_empty())
        {
            if let Some(dataset) = &object.dataset
                && let Layout::Chunked(chunked) = &dataset.layout
                && let Some(mut collection) = Collection::new(self.reader, dataset, chunked)
            {
                collection.lost.clone_from(&object.lost_places);
                open.push((number, collection));
            }
        }
        if open.is_empty() {
            return Vec::new();
        }
        let values = ranges_of_values(&self.objects);
        let mut ambiguous = Vec::new();
        let mut changed = Vec::new();
        for kind in [Signature::Tree1, Signature::Tree2Leaf, Signature::Tree2Inner] {
            for offset in self.scanned.of(kind) {
                let Some(address) = offset.checked_sub(self.reader.base) else { continue };
                if self.nodes.contains(&offset) || is_within(&values, offset) {
                    continue;
                }
                let mut owners: Vec<(usize, Vec<LoneChunk>)> = Vec::new();
                for (number, collection) in &open {
                    let chunks = collection.lone_node(self.reader, address);
                    owners.extend(
                        chunks.filter(|chunks| collection.is_lost(chunks)).map(|chunks| (*number, chunks)),
                    );
                }
                match owners.as_slice() {
                    [] => {}
                    [(number, chunks)] if all_known => changed.push((*number, chunks.clone())),
                    [(_, chunks), ..] => ambiguous.push(Ambiguous {
                        offset,
                        datasets: owners
                            .iter()
                            .filter_map(|(number, _)| self.objects.get(*number))
                            .map(|object| object.offset)
                            .collect(),
                        chunks: chunks.len(),
                    }),
                }
            }
        }
        let mut found: HashMap<usize, Chunks> = HashMap::new();
        for (number, collection) in &mut open {
            for (_, chunks) in changed.iter().filter(|(owner, _)| owner == number) {
                for (place, address, size, mask) in chunks {
                    collection.add(place, *address, *size, *mask, Proof::OnlyOwner);
                }
            }
            if let Some(object) = self.objects.get(*number) {
                collection.chunks.append(&object.chunks);
            }
            collection.resolve_places();
            found.insert(*number, std::mem::take(&mut collection.chunks));
        }
        for (number, chunks) in found {
            if let Some(object) = self.objects.get_mut(number) {
                object.chunks = chunks;
            }
        }
        ambiguous
    }
}

/// Return the ranges of the file that hold the values of datasets, in order and disjoint.
pub(crate) fn ranges_of_values(objects: &[Object]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for object in objects.iter().filter(|object| object.dataset.is_some()) {
        let chunks = &object.chunks;
        for ((offset, size), proof) in chunks.offsets.iter().zip(&chunks.sizes).zip(&chunks.proofs) {
            if *proof < Proof::Conflict {
                ranges.push((*offset, offset.saturating_add(*size)));
            }
        }
        ranges.extend(object.contiguous());
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (offset, end) in ranges {
        match merged.last_mut() {
            Some((_, last)) if offset <= *last => *last = end.max(*last),
            _ => merged.push((offset, end)),
        }
    }
    merged
}

pub(crate) fn is_within(ranges: &[(u64, u64)], offset: u64) -> bool {
    let next = ranges.partition_point(|(begin, _)| *begin <= offset);
    next.checked_sub(1).and_then(|number| ranges.get(number)).is_some_and(|(_, end)| offset < *end)
}
