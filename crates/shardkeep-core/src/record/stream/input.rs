//! Input of a stream: a file of the descriptor pool, or any reader.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, try_resize};
use crate::io::descriptor_pool::VirtualFile;

/// An input that is read once from its beginning.
pub enum Input {
    /// A file that is read by offset, so that no position is shared with other readers.
    File { file: VirtualFile, at: u64 },
    /// A reader; the name is for messages.
    Other { reader: Box<dyn Read + Send + Sync>, name: PathBuf, at: u64 },
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("path", &self.path()).field("at", &self.at()).finish()
    }
}

impl Input {
    #[must_use]
    pub fn file(file: VirtualFile) -> Self {
        Self::File { file, at: 0 }
    }

    #[must_use]
    pub fn other(reader: Box<dyn Read + Send + Sync>, name: PathBuf) -> Self {
        Self::Other { reader, name, at: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File { file, .. } => file.path(),
            Self::Other { name, .. } => name,
        }
    }

    /// Return the number of bytes read so far.
    pub(super) fn at(&self) -> u64 {
        match self {
            Self::File { at, .. } | Self::Other { at, .. } => *at,
        }
    }

    /// Return the number of remaining bytes, if known.
    pub(super) fn left(&self) -> Result<Option<u64>> {
        match self {
            Self::File { file, at } => Ok(Some(file.size()?.saturating_sub(*at))),
            Self::Other { .. } => Ok(None),
        }
    }

    /// Append up to `step` bytes to `out`; 0 is the end.
    pub(super) fn read_into(&mut self, out: &mut Vec<u8>, step: usize) -> Result<usize> {
        let before = out.len();
        try_resize(out, before + step)?;
        let got = match out.get_mut(before..) {
            Some(room) => self.read(room),
            None => Ok(0),
        };
        out.truncate(before + got.as_ref().map_or(0, |n| *n));
        got
    }

    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        match self {
            Self::File { file, at } => {
                let got = file.read_at(room, *at)?;
                *at += got as u64;
                Ok(got)
            }
            Self::Other { reader, name, at } => loop {
                match reader.read(room) {
                    Ok(got) => {
                        let got = got.min(room.len());
                        *at += got as u64;
                        return Ok(got);
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::os(&e, "read", name)),
                }
            },
        }
    }
}
