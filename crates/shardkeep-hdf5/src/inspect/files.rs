//! Inspection of many files by several threads.

use std::path::{Path, PathBuf};

use shardkeep_core::io::descriptor_pool::TransientFile;
use shardkeep_core::io::known_files::FileVersion;
use shardkeep_core::io::parallel::for_each;

use crate::inspect::source_info::SourceInfo;

/// Inspect files by several threads; the result of a file that is not known is None.
///
/// With `lock` each file is locked while it is read, as HDF5 locks it; with `rows` all rows are hashed.
#[must_use]
pub fn inspect_files(paths: &[PathBuf], lock: bool, rows: bool) -> Vec<Option<(FileVersion, SourceInfo)>> {
    for_each(paths, |path| inspect_file(path, lock, rows))
}

fn inspect_file(path: &Path, lock: bool, rows: bool) -> Option<(FileVersion, SourceInfo)> {
    let file = TransientFile::open(path).ok()?;
    if !file.is_regular().ok()? {
        return None;
    }
    if lock {
        file.lock_shared().ok()?;
    }
    // After the lock: a writer could have changed the file before.
    let version = FileVersion::of(&file).ok()?;
    Some((version, SourceInfo::new(&file, rows).ok()?))
}
