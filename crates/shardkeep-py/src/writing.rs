//! Writing records.

use std::path::PathBuf;

use pyo3::prelude::*;
use shardkeep_core::writer;

use crate::errors::raise;
use crate::records::compression as parse_compression;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FrameWriter>()
}

#[pyclass(module = "shardkeep._core")]
struct FrameWriter {
    inner: writer::FrameWriter,
}

#[pymethods]
impl FrameWriter {
    #[new]
    #[pyo3(signature = (fd, path, *, compression = None, level = 6))]
    fn new(fd: i32, path: PathBuf, compression: Option<&str>, level: u32) -> PyResult<Self> {
        Ok(Self { inner: writer::FrameWriter::new(fd, path, parse_compression(compression)?, level) })
    }

    #[getter]
    fn records(&self) -> u64 {
        self.inner.records()
    }

    #[getter]
    fn written_bytes(&self) -> u64 {
        self.inner.written()
    }

    #[pyo3(signature = (record, /))]
    fn write(&mut self, record: &[u8]) -> PyResult<()> {
        // The GIL stays: most records only go into a buffer, and `record` is the caller's memory.
        self.inner.write(record).map_err(raise)
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.flush()).map_err(raise)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.finish()).map_err(raise)
    }
}
