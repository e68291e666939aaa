//! Checks of the global heaps to which values point.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known};
use crate::format::datatype::ValueType;
use crate::format::file::{File, Storage};
use crate::format::global_heap::{check, read_object};

/// Of sequences in sequences; a damaged heap may be a circle.
const DEEPEST: usize = 16;

/// The collections that were found to be whole.
#[derive(Debug, Default)]
pub struct Collections {
    whole: HashSet<u64>,
    last: Option<u64>,
}

impl Collections {
    /// Check all collections that values point to, and those that these point to.
    ///
    /// # Errors
    /// One is damaged.
    pub fn check<S: Storage + ?Sized>(
        &mut self,
        file: &File<'_, S>,
        kind: &ValueType,
        values: &[u8],
    ) -> Known<()> {
        self.check_below(file, kind, values, 0)
    }

    fn check_below<S: Storage + ?Sized>(
        &mut self,
        file: &File<'_, S>,
        kind: &ValueType,
        values: &[u8],
        depth: usize,
    ) -> Known<()> {
        for value in values.chunks_exact(kind.size) {
            for pointer in &kind.pointers {
                let mut cursor = Cursor::new(value.get(pointer.at..).unwrap_or_default());
                let (address, index) = (cursor.address(file.offset_width)?, cursor.u32()?);
                // Nothing was written, or an empty value.
                let Some(address) = address.filter(|address| *address != 0 && index != 0) else { continue };
                if self.last != Some(address) && !self.whole.contains(&address) {
                    check(file, address)?;
                    self.whole.insert(address);
                }
                self.last = Some(address);
                if let Some(elements) = &pointer.elements
                    && depth < DEEPEST
                {
                    let object = read_object(file, address, index)?;
                    self.check_below(file, elements, &object, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}
