//! Bytes of a file at any offset.
#![deny(clippy::indexing_slicing)]

use crate::error::{Result, try_resize};
use crate::io::descriptor_pool::VirtualFile;

const BLOCK_BYTES: usize = 1 << 20;

/// A file of the size that it had when it was opened, with a buffer.
#[derive(Debug)]
pub(super) struct FileBytes {
    file: VirtualFile,
    size: u64,
    base: u64,
    buf: Vec<u8>,
}

impl FileBytes {
    pub(super) fn open(file: VirtualFile) -> Result<Self> {
        let size = file.size()?;
        Ok(Self { file, size, base: 0, buf: Vec::new() })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Return the bytes from `at` on: at least `want`, except at the end of the file.
    pub(super) fn ahead(&mut self, at: u64, want: usize) -> Result<&[u8]> {
        let end = self.base + self.buf.len() as u64;
        let is_buffered = self.base <= at && (at.saturating_add(want as u64) <= end || end == self.size);
        if !is_buffered {
            let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
            let count = want.max(BLOCK_BYTES).min(left);
            self.base = at;
            try_resize(&mut self.buf, count)?;
            let read = self.file.read_at(&mut self.buf, at)?;
            self.buf.truncate(read);
            if read < count {
                self.size = at + read as u64;
            }
        }
        Ok(self.buf.get((at - self.base) as usize..).unwrap_or_default())
    }
}
