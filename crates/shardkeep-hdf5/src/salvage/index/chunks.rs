//! Chunks of a dataset that were found, and the places whose index is lost.

use std::collections::HashSet;

use crate::salvage::dataset::{Chunked, Dataset, Index};
use crate::salvage::index::trees::LoneChunk;
use crate::salvage::reader::Reader;
use crate::salvage::scan::Scan;

/// The proof that a chunk belongs to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Proof {
    /// The index has a checksum, which is right.
    Checked,
    /// The index has no checksum, or a part of its checks is lost.
    Unchecked,
    /// The node was found by search, and no other dataset of the file can own it.
    OnlyOwner,
    /// Contradicted: it shares bytes with something else, or cannot be right.
    Conflict,
    /// The chunk ends beyond the end of the file.
    Beyond,
}

/// Chunks of a dataset: of each the first element (one number for each axis), the offset in the file, the stored size, the filter
/// mask and the proof.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Chunks {
    pub places: Vec<u64>,
    pub offsets: Vec<u64>,
    pub sizes: Vec<u64>,
    pub masks: Vec<u32>,
    pub proofs: Vec<Proof>,
}

impl Chunks {
    /// Add all chunks of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        self.places.extend(&other.places);
        self.offsets.extend(&other.offsets);
        self.sizes.extend(&other.sizes);
        self.masks.extend(&other.masks);
        self.proofs.extend(&other.proofs);
    }
}

/// A lost part of an index. Places count in row-major order of chunks, half-open; None where the bound is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPlaces {
    /// Offset of the structure in the file.
    pub offset: u64,
    pub first: Option<Vec<u64>>,
    pub end: Option<Vec<u64>>,
}

/// Chunks that are being collected.
pub(crate) struct Collection<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) shape: &'a [u64],
    pub(crate) limits: &'a [Option<u64>],
    pub(crate) chunked: &'a Chunked,
    pub(crate) chunk_bytes: u64,
    pub(crate) is_filtered: bool,
    pub(crate) chunks: Chunks,
    pub(crate) lost: Vec<LostPlaces>,
    /// Offsets of the nodes of trees that were used.
    pub(crate) nodes: HashSet<u64>,
}

impl<'a> Collection<'a> {
    /// Return None for a dataset whose chunks cannot have places.
    pub(crate) fn new(reader: &'a Reader<'a>, dataset: &'a Dataset, chunked: &'a Chunked) -> Option<Self> {
        let shape = dataset.shape.as_deref().filter(|shape| !shape.is_empty())?;
        Some(Self {
            reader,
            shape,
            limits: &dataset.limits,
            chunked,
            chunk_bytes: chunked.chunk_bytes()?,
            is_filtered: dataset.filters.as_ref().is_none_or(|filters| !filters.is_empty()),
            chunks: Chunks::default(),
            lost: Vec::new(),
            nodes: HashSet::new(),
        })
    }

    /// Read the index. `header_proof` is the proof of an address that the object header has.
    pub(crate) fn collect(&mut self, header_proof: Proof, scanned: &Scan<'_>) {
        let Some(address) = self.chunked.address else { return };
        match self.chunked.index {
            Index::BTree1 => self.tree1(address),
            Index::BTree2 { .. } => self.tree2(address),
            Index::Single(stored) => {
                let (size, mask) = stored.unwrap_or((self.chunk_bytes, 0));
                self.add(&vec![0; self.shape.len()], address, size, mask, header_proof);
            }
            Index::Implicit => self.implicit(address, header_proof),
            Index::FixedArray { page_bits } => self.fixed_array(address, page_bits, scanned),
            Index::ExtensibleArray { .. } => self.extensible_array(address, scanned),
        }
    }

    /// Return true if a chunk can begin at a place.
    pub(crate) fn is_place(&self, place: &[u64]) -> bool {
        place.len() == self.shape.len()
            && place
                .iter()
                .zip(self.shape)
                .zip(&self.chunked.chunk)
                .all(|((at, size), one)| at < size && at.checked_rem(*one) == Some(0))
    }

    /// Return true if a stored size and address can be those of a chunk.
    pub(crate) fn is_storage(&self, address: u64, size: u64) -> bool {
        let size_is_possible = if self.is_filtered { size > 0 } else { size == self.chunk_bytes };
        size_is_possible && address > 0 && self.reader.has(address, size)
    }

    /// Add a chunk; one outside the shape is ignored.
    pub(crate) fn add(&mut self, place: &[u64], address: u64, size: u64, mask: u32, proof: Proof) {
        if !self.is_place(place) {
            return;
        }
        let proof = match proof {
            _ if size == 0 || (!self.is_filtered && size != self.chunk_bytes) => Proof::Conflict,
            Proof::Conflict => proof,
            _ if !self.reader.has(address, size) => Proof::Beyond,
            _ => proof,
        };
        self.chunks.places.extend(place);
        self.chunks.offsets.push(self.reader.offset_of(address));
        self.chunks.sizes.push(size);
        self.chunks.masks.push(mask);
        self.chunks.proofs.push(proof);
    }

    /// Note a lost part of the index.
    pub(crate) fn lose(&mut self, offset: u64, first: Option<Vec<u64>>, end: Option<Vec<u64>>) {
        self.lost.push(LostPlaces { offset, first, end });
    }

    fn implicit(&mut self, address: u64, proof: Proof) {
        let Some(numbering) = Numbering::new(self, None) else { return };
        // Only numbers of places within the shape; the largest shape may be much larger.
        let mut place = vec![0; self.shape.len()];
        loop {
            let first = numbering.number(&place).and_then(|number| number.checked_mul(self.chunk_bytes));
            let Some(at) = first.and_then(|first| first.checked_add(address)) else { return };
            if !self.reader.has(at, 1) {
                self.lose(self.reader.offset_of(at), Some(place), None);
                return;
            }
            self.add(&place.clone(), at, self.chunk_bytes, 0, proof);
            if !self.advance(&mut place) {
                return;
            }
        }
    }

    /// Go to the next place in row-major order; false after the last one.
    fn advance(&self, place: &mut [u64]) -> bool {
        for ((at, size), one) in place.iter_mut().zip(self.shape).zip(&self.chunked.chunk).rev() {
            *at = at.saturating_add(*one);
            if *at < *size {
                return true;
            }
            *at = 0;
        }
        false
    }

    /// Return true if the places of chunks are all within one lost part of the index.
    pub(crate) fn is_lost(&self, chunks: &[LoneChunk]) -> bool {
        self.lost.iter().any(|lost| {
            chunks.iter().all(|(place, ..)| {
                lost.first.as_ref().is_none_or(|first| place >= first)
                    && lost.end.as_ref().is_none_or(|end| place < end)
            })
        })
    }

    /// Let the chunk with the stronger proof have a place that two chunks claim.
    pub(crate) fn resolve_places(&mut self) {
        let axes = self.shape.len();
        let mut order: Vec<(&[u64], Proof, usize)> = self
            .chunks
            .places
            .chunks_exact(axes)
            .zip(&self.chunks.proofs)
            .enumerate()
            .map(|(number, (place, proof))| (place, *proof, number))
            .collect();
        order.sort_unstable();
        let mut contradicted = Vec::new();
        for pair in order.windows(2) {
            if let [(place, proof, number), (other_place, other_proof, other)] = pair
                && place == other_place
                && *proof < Proof::Conflict
            {
                contradicted.push(*other);
                if proof == other_proof {
                    contradicted.push(*number);
                }
            }
        }
        for number in contradicted {
            if let Some(proof) = self.chunks.proofs.get_mut(number) {
                *proof = (*proof).max(Proof::Conflict);
            }
        }
    }
}

/// Numbers of the chunks in an array. They count in the largest shape, with the unlimited axis first.
pub(crate) struct Numbering<'a> {
    chunk: &'a [u64],
    /// Axes from the slowest to the fastest, and the number of chunks along each.
    axes: Vec<(usize, Option<u64>)>,
}

impl<'a> Numbering<'a> {
    /// Return None if an axis that must have a limit has none.
    pub(crate) fn new(collection: &Collection<'a>, unlimited: Option<usize>) -> Option<Self> {
        let counts: Vec<Option<u64>> = collection
            .limits
            .iter()
            .zip(&collection.chunked.chunk)
            .map(|(limit, one)| limit.map(|limit| limit.div_ceil(*one)))
            .collect();
        let first = unlimited.unwrap_or(0);
        let others = (0..counts.len()).filter(|axis| *axis != first);
        let axes: Vec<(usize, Option<u64>)> = std::iter::once(first)
            .chain(others)
            .map(|axis| (axis, counts.get(axis).copied().flatten()))
            .collect();
        let known = axes.iter().skip(1).all(|(_, count)| count.is_some_and(|count| count > 0));
        (known && counts.len() == collection.shape.len())
            .then_some(Self { chunk: &collection.chunked.chunk, axes })
    }

    /// Return true if numbers have the row-major order of places.
    pub(crate) fn is_row_major(&self) -> bool {
        self.axes.is_sorted()
    }

    /// Return the first element of a chunk.
    pub(crate) fn place(&self, number: u64) -> Vec<u64> {
        let mut place = vec![0; self.axes.len()];
        let mut rest = number;
        for (position, (axis, count)) in self.axes.iter().enumerate().rev() {
            let coordinate = if position == 0 { rest } else { rest % count.unwrap_or(1).max(1) };
            rest /= count.unwrap_or(1).max(1);
            if let (Some(at), Some(one)) = (place.get_mut(*axis), self.chunk.get(*axis)) {
                *at = coordinate.saturating_mul(*one);
            }
        }
        place
    }

    /// Return the number of the chunk at a place; None if it is too large.
    fn number(&self, place: &[u64]) -> Option<u64> {
        let mut number = 0_u64;
        for (position, (axis, count)) in self.axes.iter().enumerate() {
            let coordinate = place.get(*axis)?.checked_div(*self.chunk.get(*axis)?)?;
            let before = if position == 0 { 0 } else { number.checked_mul((*count)?)? };
            number = before.checked_add(coordinate)?;
        }
        Some(number)
    }
}
