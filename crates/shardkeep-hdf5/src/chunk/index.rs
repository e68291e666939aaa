//! Indexes of chunks, read without HDF5.
//!
//! Version 1 B-tree, single chunk, implicit, fixed array, extensible array along the first axis. Format: HDF5 File Format
//! Specification 3.0, sections III.A.1, IV.A.2.i, VII. An index is "not known" if this reader does not support it, its checksum is
//! wrong, or it is inconsistent. Only numbers of eight bytes are read.

use crate::chunk::arrays::{extensible_array, fixed_array};
use crate::chunk::layout::{Chunked, Index};
use crate::chunk::list::{ARRAY, ChunkList, Chunks, product};
use crate::format::cursor::{Cursor, Known};
use crate::format::file::{File, Storage};
use crate::group::symbol_table::siblings_agree;

/// Half of the number of children of a node of chunks: HDF5's default, and the only one in superblocks that are read here.
const BTREE_K: usize = 32;

impl Chunked {
    /// Read the index of a dataset of a shape with limits (None: unlimited).
    ///
    /// # Errors
    /// It is not known.
    pub fn chunks<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        shape: &[u64],
        limits: &[Option<u64>],
        filtered: bool,
    ) -> Known<Chunks> {
        if shape.len() != self.chunk.len() || limits.len() != shape.len() {
            return Err(ARRAY);
        }
        let chunk_bytes = self.chunk_bytes()?;
        let counts: Vec<u64> = shape.iter().zip(&self.chunk).map(|(size, one)| size.div_ceil(*one)).collect();
        // Elements of an array are numbered by the largest shape; HDF5 itself uses the current one.
        let same = |axis: usize| match (limits.get(axis), self.chunk.get(axis), counts.get(axis)) {
            (Some(Some(limit)), Some(one), Some(count)) => limit.div_ceil(*one) == *count,
            _ => false,
        };
        let mut found = ChunkList {
            chunks: Chunks::default(),
            chunk: &self.chunk,
            counts: &counts,
            chunk_bytes,
            value_bytes: self.element_bytes,
            is_wide: self.is_wide,
        };
        match self.index {
            Index::BTree1(None)
            | Index::Single(None, _)
            | Index::Implicit(None)
            | Index::FixedArray(None)
            | Index::ExtensibleArray(None) => {}
            Index::BTree1(Some(root)) => {
                let mut last = Vec::new();
                btree1(file, root, None, &mut last, &mut found)?;
                if last.iter().any(|(_, right)| right.is_some()) {
                    return Err(ARRAY);
                }
            }
            Index::Single(Some(address), size) => {
                let (size, mask) = size.unwrap_or((chunk_bytes, 0));
                if counts.iter().any(|count| *count != 1) {
                    return Err(ARRAY);
                }
                found.add(0, address, size, mask)?;
            }
            Index::Implicit(Some(address)) => {
                let all = product(&counts);
                let end = all.saturating_mul(chunk_bytes).saturating_add(address);
                if filtered || !(0..counts.len()).all(same) || end > file.length() {
                    return Err(ARRAY);
                }
                for number in 0..all {
                    found.add(number, address + number * chunk_bytes, chunk_bytes, 0)?;
                }
            }
            Index::FixedArray(Some(header)) => {
                if !(0..counts.len()).all(same) {
                    return Err(ARRAY);
                }
                fixed_array(file, header, filtered, &mut found)?;
            }
            Index::ExtensibleArray(Some(header)) => {
                if limits.first() != Some(&None) || !(1..counts.len()).all(same) {
                    return Err(ARRAY);
                }
                extensible_array(file, header, filtered, &mut found)?;
            }
        }
        Ok(found.chunks)
    }
}

fn btree1<S: Storage + ?Sized>(
    file: &File<'_, S>,
    address: u64,
    level: Option<u8>,
    last: &mut Vec<(u64, Option<u64>)>,
    found: &mut ChunkList<'_>,
) -> Known<()> {
    let axes = found.chunk.len();
    let key_bytes = 8 + 8 * (axes + 1);
    let node = file.read(address, 24 + 2 * BTREE_K * (key_bytes + 8) + key_bytes)?;
    let mut at = Cursor::new(&node);
    if at.take(4)? != b"TREE" || at.u8()? != 1 {
        return Err(ARRAY);
    }
    let here = at.u8()?;
    let used = usize::from(at.u16()?);
    siblings_agree(last, here, address, (at.address(8)?, at.address(8)?))?;
    if level.is_some_and(|level| level != here) || used > 2 * BTREE_K {
        return Err(ARRAY);
    }
    for _ in 0..used {
        let (size, mask, place) = found.key(&mut at)?;
        let child = at.address(8)?.ok_or(ARRAY)?;
        if here > 0 {
            btree1(file, child, Some(here - 1), last, found)?;
            continue;
        }
        found.chunks.offsets.extend(place);
        found.push(child, size.into(), mask)?;
    }
    if used > 0 {
        found.key(&mut at)?; // after the last one; HDF5 reads it as well
    }
    Ok(())
}
