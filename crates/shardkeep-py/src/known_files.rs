//! Small files whose state is known, read into one array.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_core::io::known_files::{self, Expected, FileVersion, Piece};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<KnownFiles>()
}

/// Device, inode, size in bytes, modification time in ns.
type Told = (u64, u64, u64, i64);

#[pyclass(module = "shardkeep._core", frozen)]
struct KnownFiles {
    files: known_files::KnownFiles,
}

#[pymethods]
impl KnownFiles {
    /// Create a set of files whose versions are not known yet.
    #[new]
    #[pyo3(signature = (paths, /))]
    fn new(paths: Vec<Bound<'_, PyBytes>>) -> Self {
        let paths = paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path.as_bytes())));
        Self { files: known_files::KnownFiles::new(paths.collect()) }
    }

    /// Return the path of a file and its known version (device, inode, size in bytes, modification time in ns), or None.
    #[pyo3(signature = (file, /))]
    fn get<'py>(&self, py: Python<'py>, file: usize) -> PyResult<(Bound<'py, PyBytes>, Option<Told>)> {
        let (path, state) = self.files.get(file).ok_or_else(|| PyIndexError::new_err("no such file"))?;
        let state = state.map(|state| (state.device, state.inode, state.size_bytes, state.modified_ns));
        Ok((PyBytes::new(py, path.as_os_str().as_bytes()), state))
    }

    #[pyo3(signature = (file, path, state, /))]
    fn set(&self, py: Python<'_>, file: usize, path: &[u8], state: Option<Told>) {
        let path = PathBuf::from(OsStr::from_bytes(path));
        let state = state.map(|(device, inode, size_bytes, modified_ns)| FileVersion {
            device,
            inode,
            size_bytes,
            modified_ns,
        });
        py.detach(|| self.files.set(file, path, state));
    }

    /// Return the numbers of the files that have changed or are not known.
    fn changed<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        numbers(py, py.detach(|| self.files.changed()))
    }

    /// Record the versions of files with these sizes and times; return the positions of the others.
    #[pyo3(signature = (files, sizes, times, /, *, lock))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        files: PyReadonlyArray1<'py, i64>,
        sizes: PyReadonlyArray1<'py, i64>,
        times: PyReadonlyArray1<'py, i64>,
        lock: bool,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let (files, sizes, times) = (files.as_array(), sizes.as_array(), times.as_array());
        let expected = |i: usize| -> Option<Expected> {
            Some(Expected {
                file: usize::try_from(*files.get(i)?).ok()?,
                size_bytes: u64::try_from(*sizes.get(i)?).ok()?,
                modified_ns: *times.get(i)?,
            })
        };
        let expected: Option<Vec<Expected>> = (0..files.len()).map(expected).collect();
        let expected = expected.ok_or_else(|| PyValueError::new_err("a number is negative, or missing"))?;
        Ok(numbers(py, py.detach(|| self.files.take(&expected, lock))))
    }

    /// Read pieces; return the positions of those that could not be read.
    #[pyo3(signature = (buffer, files, offsets, starts, lengths, /, *, lock))]
    #[allow(clippy::too_many_arguments)]
    fn read_into<'py>(
        &self,
        py: Python<'py>,
        mut buffer: PyReadwriteArray1<'py, u8>,
        files: PyReadonlyArray1<'py, i64>,
        offsets: PyReadonlyArray1<'py, i64>,
        starts: PyReadonlyArray1<'py, i64>,
        lengths: PyReadonlyArray1<'py, i64>,
        lock: bool,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let (files, offsets) = (files.as_array(), offsets.as_array());
        let (starts, lengths) = (starts.as_array(), lengths.as_array());
        if [offsets.len(), starts.len(), lengths.len()] != [files.len(); 3] {
            return Err(PyValueError::new_err("all arrays must be equally long"));
        }
        let piece = |i: usize| -> Option<Piece> {
            Some(Piece {
                file: usize::try_from(*files.get(i)?).ok()?,
                offset_bytes: u64::try_from(*offsets.get(i)?).ok()?,
                start: usize::try_from(*starts.get(i)?).ok()?,
                length: usize::try_from(*lengths.get(i)?).ok()?,
            })
        };
        let pieces: Option<Vec<Piece>> = (0..files.len()).map(piece).collect();
        let pieces = pieces.ok_or_else(|| PyValueError::new_err("a number is negative"))?;
        let buffer = buffer.as_slice_mut()?;
        let failed = py.detach(|| self.files.read_into(buffer, &pieces, lock)).map_err(raise)?;
        Ok(numbers(py, failed))
    }
}

fn numbers(py: Python<'_>, found: Vec<usize>) -> Bound<'_, PyArray1<i64>> {
    PyArray1::from_iter(py, found.into_iter().map(|number| number as i64))
}
