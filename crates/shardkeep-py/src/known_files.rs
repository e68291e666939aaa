//! Small files whose state is known, read into one array.

use std::path::PathBuf;

use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardkeep_core::known_files::{self, Piece, State};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<KnownFiles>()
}

#[pyclass(module = "shardkeep._core", frozen)]
struct KnownFiles {
    files: known_files::KnownFiles,
}

#[pymethods]
impl KnownFiles {
    /// A state is (device, inode, size in bytes, time of the last change in ns).
    #[new]
    #[pyo3(signature = (paths, states, /))]
    fn new(paths: Vec<PathBuf>, states: Vec<(u64, u64, u64, i64)>) -> PyResult<Self> {
        if paths.len() != states.len() {
            return Err(PyValueError::new_err("as many states as paths are needed"));
        }
        let states = states.into_iter().map(|(device, inode, size_bytes, modified_ns)| State {
            device,
            inode,
            size_bytes,
            modified_ns,
        });
        Ok(Self { files: known_files::KnownFiles::new(paths.into_iter().zip(states).collect()) })
    }

    /// The number of a file that is not as it was; None if there is none.
    fn changed(&self, py: Python<'_>) -> Option<usize> {
        py.detach(|| self.files.changed())
    }

    /// The places of the pieces that could not be read.
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
        Ok(PyArray1::from_iter(py, failed.into_iter().map(|place| place as i64)))
    }
}
