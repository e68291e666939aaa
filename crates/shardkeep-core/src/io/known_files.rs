//! Sets of many small files in known versions: detection of changed files, and reads of their parts into one buffer.
//!
//! A file is open only while it is read, so a reader does not keep a writer waiting, and a set may have any number of files. The path
//! and the version of a file may be set again at any time. Only the numbers of files that could not be read are returned: a
//! caller opens such a file with HDF5, which reports the reason.
#![deny(clippy::indexing_slicing)]

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::io::descriptor_pool::TransientFile;
use crate::io::parallel::{SHARE_BYTES, run, select, share_files, threads_for};

/// Identity, size and modification time of a file. A file with the same values has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub size_bytes: u64,
    /// Modification time in nanoseconds since the epoch.
    pub modified_ns: i64,
}

/// A part of a file, and its place in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub file: usize,
    pub offset_bytes: u64,
    /// Offset in the buffer.
    pub start: usize,
    pub length: usize,
}

/// Expected size and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    pub file: usize,
    pub size_bytes: u64,
    pub modified_ns: i64,
}

/// The path of a file, and its known version (None: not known yet).
type Entry = (PathBuf, Option<FileVersion>);

/// Files by number.
#[derive(Debug)]
pub struct KnownFiles {
    files: RwLock<Vec<Entry>>,
}

impl FileVersion {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)] // the widths differ between platforms
    fn of_status(stat: &libc::stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: (stat.st_mtime as i64)
                .saturating_mul(1_000_000_000)
                .saturating_add(stat.st_mtime_nsec as i64),
        }
    }

    /// Return the version of an open file.
    ///
    /// # Errors
    /// The operating system cannot inspect the file.
    pub fn of(file: &TransientFile) -> io::Result<Self> {
        Ok(Self::of_status(&file.status()?))
    }

    fn of_path(path: &std::path::Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(path)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            size_bytes: found.size(),
            modified_ns: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
        })
    }
}

impl KnownFiles {
    /// Create a set of files whose versions are not known yet.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { files: RwLock::new(paths.into_iter().map(|path| (path, None)).collect()) }
    }

    /// Return the path and the known version of a file.
    #[must_use]
    pub fn get(&self, file: usize) -> Option<Entry> {
        self.read_all(|files| files.get(file).cloned())
    }

    /// Set the path and the known version of a file.
    pub fn set(&self, file: usize, path: PathBuf, state: Option<FileVersion>) {
        if let Some(entry) = self.files.write().unwrap_or_else(|e| e.into_inner()).get_mut(file) {
            *entry = (path, state);
        }
    }

    /// Return the numbers of the files that have changed, do not exist, or are not known, in ascending order.
    #[must_use]
    pub fn changed(&self) -> Vec<usize> {
        self.read_all(|files| {
            let is_changed = |number: usize| match files.get(number) {
                Some((path, Some(known))) => !FileVersion::of_path(path).is_ok_and(|now| now == *known),
                _ => true,
            };
            select(files.len(), is_changed)
        })
    }

    /// Record the versions of the files that are as expected, can be read, and are not being written. Return the positions in
    /// `expected` of the others, in ascending order.
    #[must_use]
    pub fn take(&self, expected: &[Expected], lock: bool) -> Vec<usize> {
        let taken = Mutex::new(Vec::new());
        let left = self.read_all(|files| {
            select(expected.len(), |place| {
                let Some(one) = expected.get(place) else { return true };
                let Some((path, _)) = files.get(one.file) else { return true };
                let Ok(state) = Self::inspect(path, *one, lock) else { return true };
                taken.lock().unwrap_or_else(|e| e.into_inner()).push((one.file, state));
                false
            })
        });
        let mut files = self.files.write().unwrap_or_else(|e| e.into_inner());
        for (number, state) in taken.into_inner().unwrap_or_else(|e| e.into_inner()) {
            if let Some(entry) = files.get_mut(number) {
                entry.1 = Some(state);
            }
        }
        left
    }

    fn inspect(path: &std::path::Path, expected: Expected, lock: bool) -> io::Result<FileVersion> {
        let file = TransientFile::open(path)?;
        let state = FileVersion::of(&file)?;
        if (state.size_bytes, state.modified_ns) != (expected.size_bytes, expected.modified_ns) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // After the comparison: a lock would disturb a process that writes another file to this path.
        if lock {
            file.lock_shared()?;
        }
        Ok(state)
    }

    fn read_all<T>(&self, work: impl FnOnce(&[Entry]) -> T) -> T {
        work(&self.files.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Read every piece of `pieces` whose file has not changed. Return the positions in `pieces` of the others, in ascending order.
    ///
    /// # Errors
    /// The pieces overlap in `buffer`, are not in ascending order, or end after it.
    pub fn read_into(&self, buffer: &mut [u8], pieces: &[Piece], lock: bool) -> Result<Vec<usize>> {
        let threads = threads_for(pieces.len());
        let shares = shares(buffer, pieces, share_files(pieces.len(), threads))
            .ok_or_else(|| Error::internal("pieces that are not in ascending order in their buffer"))?;
        let failed = Mutex::new(Vec::new());
        self.read_all(|files| {
            run(shares.into_iter(), threads, |share| {
                for (place, piece, target) in share {
                    if read(files, piece, target, lock).is_err() {
                        failed.lock().unwrap_or_else(|e| e.into_inner()).push(place);
                    }
                }
            });
        });
        let mut failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
        failed.sort_unstable();
        Ok(failed)
    }
}

fn read(files: &[Entry], piece: &Piece, target: &mut [u8], lock: bool) -> io::Result<()> {
    let Some((path, Some(known))) = files.get(piece.file) else { return Err(io::ErrorKind::NotFound.into()) };
    let file = TransientFile::open(path)?;
    // Before the comparison: a writer could change the file between the two.
    if lock {
        file.lock_shared()?;
    }
    if FileVersion::of(&file)? != *known {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.read_exact_at(target, piece.offset_bytes)
}

/// The position of each piece, the piece, and its part of the buffer.
type Share<'a> = Vec<(usize, &'a Piece, &'a mut [u8])>;

/// Divide pieces into shares of at most `most`; None if they overlap or are not in order.
fn shares<'a>(buffer: &'a mut [u8], pieces: &'a [Piece], most: usize) -> Option<Vec<Share<'a>>> {
    let mut shares = Vec::new();
    let mut share = Share::new();
    let (mut rest, mut at, mut first) = (buffer, 0_usize, 0_usize);
    for (place, piece) in pieces.iter().enumerate() {
        let (_, from) = rest.split_at_mut_checked(piece.start.checked_sub(at)?)?;
        let (target, behind) = from.split_at_mut_checked(piece.length)?;
        (rest, at) = (behind, piece.start + piece.length);
        share.push((place, piece, target));
        if share.len() == most || at - first >= SHARE_BYTES {
            shares.push(std::mem::take(&mut share));
            first = at;
        }
    }
    shares.push(share);
    Some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("shardkeep-known-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// File `i` has 16 times the byte `i`.
        fn files(&self, count: usize) -> KnownFiles {
            let paths: Vec<PathBuf> = (0..count).map(|i| self.0.join(i.to_string())).collect();
            let files = KnownFiles::new(paths.clone());
            assert_eq!(files.changed().len(), count);
            for (i, path) in paths.into_iter().enumerate() {
                std::fs::write(&path, [i as u8; 16]).unwrap();
                let state = FileVersion::of_path(&path).unwrap();
                files.set(i, path, Some(state));
            }
            files
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn pieces(count: usize) -> Vec<Piece> {
        (0..count).map(|i| Piece { file: i, offset_bytes: 4, start: 10 * i, length: 8 }).collect()
    }

    #[test]
    fn each_piece_comes_to_its_place() {
        let folder = Folder::new("read");
        for count in [0, 1, 300] {
            let files = folder.files(count);
            let mut buffer = vec![255; 10 * count];
            assert!(files.read_into(&mut buffer, &pieces(count), true).unwrap().is_empty());
            for (i, part) in buffer.chunks(10).enumerate() {
                assert_eq!(part, [[i as u8; 8].as_slice(), &[255; 2]].concat());
            }
            assert_eq!(files.changed(), [0; 0]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_is_read() {
        let folder = Folder::new("odd");
        let files = folder.files(300);
        std::fs::remove_file(files.get(299).unwrap().0).unwrap();
        std::fs::write(files.get(7).unwrap().0, "longer than it was").unwrap();
        let (path, state) = files.get(100).unwrap();
        files.set(100, path, state.map(|state| FileVersion { modified_ns: state.modified_ns + 1, ..state }));
        let mut wanted = pieces(300);
        wanted[200].offset_bytes = 9; // beyond the end
        wanted[201].file = 1000;
        wanted[202].offset_bytes = u64::MAX;
        let mut buffer = vec![0; 3000];
        assert_eq!(files.read_into(&mut buffer, &wanted, false).unwrap(), [7, 100, 200, 201, 202, 299]);
        assert_eq!(buffer[2980 - 10..2988 - 10], [(297 % 256) as u8; 8]);
        assert_eq!(files.changed(), [7, 100, 299]);
    }

    #[test]
    fn a_file_that_somebody_writes_is_not_read() {
        let folder = Folder::new("locked");
        let files = folder.files(1);
        let writer = std::fs::File::options().write(true).open(files.get(0).unwrap().0).unwrap();
        writer.lock().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(files.read_into(&mut buffer, &pieces(1), true).unwrap(), [0]);
        assert_eq!(files.read_into(&mut buffer, &pieces(1), false).unwrap(), [0; 0]);
        writer.unlock().unwrap();
        assert_eq!(files.read_into(&mut buffer, &pieces(1), true).unwrap(), [0; 0]);
        writer.try_lock().unwrap(); // nothing is held afterwards
    }

    #[test]
    fn what_is_as_expected_is_taken() {
        let folder = Folder::new("take");
        let files = folder.files(200);
        let expected: Vec<Expected> = (0..200)
            .map(|file| {
                let (path, state) = files.get(file).unwrap();
                files.set(file, path, None);
                let state = state.unwrap();
                let size_bytes = if file == 50 { 17 } else { state.size_bytes };
                Expected {
                    file: if file == 60 { 600 } else { file },
                    size_bytes,
                    modified_ns: state.modified_ns,
                }
            })
            .collect();
        let writer = std::fs::File::options().write(true).open(files.get(3).unwrap().0).unwrap();
        writer.lock().unwrap();
        assert_eq!(files.take(&expected, true), [3, 50, 60]);
        assert_eq!(files.changed(), [3, 50, 60]);
        assert_eq!(files.take(&expected[..4], false), [0; 0]);
        assert_eq!(files.changed(), [50, 60]);
        writer.unlock().unwrap();
        writer.try_lock().unwrap(); // nothing is held afterwards
    }

    #[test]
    fn pieces_out_of_order_are_refused() {
        let files = KnownFiles::new(Vec::new());
        let piece = |start, length| Piece { file: 0, offset_bytes: 0, start, length };
        for wanted in [vec![piece(0, 9)], vec![piece(0, 4), piece(3, 1)], vec![piece(usize::MAX, 2)]] {
            assert!(files.read_into(&mut [0; 8], &wanted, false).is_err());
        }
        assert_eq!(files.read_into(&mut [0; 8], &[piece(0, 4), piece(4, 4)], false).unwrap(), [0, 1]);
    }
}
