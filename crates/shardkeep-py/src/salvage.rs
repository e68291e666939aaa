//! Salvage of damaged records.

use std::path::PathBuf;

use numpy::{PyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::compressed_salvage;
use shardkeep_core::record::salvage::{Salvage, extent_of, index_around_damage};

use crate::errors::raise;
use crate::records;
use crate::writing::FrameWriter;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RecordSalvage>()?;
    m.add_class::<CompressedSalvage>()?;
    m.add_function(wrap_pyfunction!(scan_around_damage, m)?)?;
    m.add_function(wrap_pyfunction!(damaged_extent, m)?)
}

/// Outcome, reason, records, first byte, bytes, number of the first record.
type Part = (&'static str, String, u64, u64, u64, u64);

#[pyclass(module = "shardkeep._core")]
struct RecordSalvage {
    inner: Salvage,
}

#[pymethods]
impl RecordSalvage {
    #[new]
    #[pyo3(signature = (path, /))]
    fn new(path: PathBuf) -> PyResult<Self> {
        Ok(Self { inner: Salvage::new(VirtualFile::new(path)).map_err(raise)? })
    }

    /// Examine about so many more bytes, and return their number; 0 at the end of the file.
    #[pyo3(signature = (size_bytes, /))]
    fn advance(&mut self, py: Python<'_>, size_bytes: u64) -> PyResult<u64> {
        py.detach(|| self.inner.advance(size_bytes)).map_err(raise)
    }

    /// Fill a buffer with the next bytes of the result, and return their number; 0 at the end.
    #[pyo3(signature = (buffer, /))]
    fn read_into(&mut self, py: Python<'_>, mut buffer: PyReadwriteArray1<'_, u8>) -> PyResult<usize> {
        let room = buffer.as_slice_mut()?;
        py.detach(|| self.inner.read(room)).map_err(raise)
    }

    #[getter]
    fn part_count(&self) -> usize {
        self.inner.parts().len()
    }

    #[pyo3(signature = (first, last, /))]
    fn parts(&self, first: usize, last: usize) -> Vec<Part> {
        let parts = self.inner.parts().get(first..last).unwrap_or_default();
        let part = |part: &shardkeep_core::record::salvage::Part| {
            let size_bytes = part.end - part.start;
            let (outcome, reason) = (part.content.outcome(), part.content.reason());
            (outcome, reason, part.items, part.start, size_bytes, part.record)
        };
        parts.iter().map(part).collect()
    }
}

/// Return the start of each record and last the size of the file, and the records that are holes.
#[pyfunction]
#[pyo3(signature = (path, /))]
#[allow(clippy::type_complexity)]
fn scan_around_damage<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>)> {
    let found = py.detach(|| index_around_damage(VirtualFile::new(path)));
    let (starts, holes) = found.map_err(raise)?;
    Ok((PyArray1::from_vec(py, starts), PyArray1::from_vec(py, holes)))
}

/// Return the end of the damaged record at an offset, and true if the bytes up to there are a hole.
#[pyfunction]
#[pyo3(signature = (path, offset_bytes, /))]
fn damaged_extent(py: Python<'_>, path: PathBuf, offset_bytes: u64) -> PyResult<(u64, bool)> {
    py.detach(|| extent_of(VirtualFile::new(path), offset_bytes)).map_err(raise)
}

#[pyclass(module = "shardkeep._core")]
struct CompressedSalvage {
    inner: compressed_salvage::CompressedSalvage,
}

/// Outcome, reason, records, first byte, byte after the last, number of the first record.
type CompressedPart = (&'static str, String, u64, Option<u64>, Option<u64>, Option<u64>);

#[pymethods]
impl CompressedSalvage {
    #[new]
    #[pyo3(signature = (path, compression = None, /))]
    fn new(py: Python<'_>, path: PathBuf, compression: Option<&str>) -> PyResult<Self> {
        let given = compression.map(|name| records::compression(Some(name))).transpose()?;
        let opened = py.detach(|| compressed_salvage::CompressedSalvage::open(VirtualFile::new(path), given));
        Ok(Self { inner: opened.map_err(raise)? })
    }

    #[getter]
    fn compression(&self) -> Option<&'static str> {
        records::name(self.inner.compression())
    }

    #[getter]
    fn records(&self) -> u64 {
        self.inner.records()
    }

    #[getter]
    fn position_bytes(&self) -> u64 {
        self.inner.position()
    }

    /// Decode about `size_bytes` bytes; return False at the end.
    #[pyo3(signature = (size_bytes, writer = None, /))]
    fn advance(
        &mut self,
        py: Python<'_>,
        size_bytes: u64,
        writer: Option<PyRefMut<'_, FrameWriter>>,
    ) -> PyResult<bool> {
        let mut writer = writer;
        let inner = &mut self.inner;
        let writer = writer.as_deref_mut().map(|writer| &mut writer.inner);
        py.detach(|| inner.advance(size_bytes, writer)).map_err(raise)
    }

    fn parts(&self) -> Vec<CompressedPart> {
        let parts = self.inner.parts().iter();
        parts
            .map(|part| {
                let outcome = match part.outcome {
                    compressed_salvage::Outcome::Kept => "kept",
                    compressed_salvage::Outcome::Repaired => "repaired",
                    compressed_salvage::Outcome::Lost => "lost",
                };
                (outcome, part.reason.clone(), part.items, part.start, part.stop, part.record)
            })
            .collect()
    }
}
