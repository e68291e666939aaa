//! Writing records.

use std::path::PathBuf;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_core::example::rows::{self, Rows};
use shardkeep_core::record::writer;

use crate::errors::raise;
use crate::records::compression as parse_compression;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FrameWriter>()
}

#[derive(FromPyObject)]
enum Values<'py> {
    // Arrays first: an empty one would pass for an empty list.
    Int64(PyReadonlyArray1<'py, i64>),
    Float32(PyReadonlyArray1<'py, f32>),
    Bytes(Vec<Bound<'py, PyBytes>>),
}

#[derive(FromPyObject)]
enum Cut<'py> {
    Every(usize),
    Offsets(PyReadonlyArray1<'py, i64>),
}

#[pyclass(module = "shardkeep._core")]
pub(crate) struct FrameWriter {
    pub(crate) inner: writer::FrameWriter,
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

    /// Write one Example a row: `columns` are (values, values in a row) or (values, offsets), `values` an array of
    /// int64 or float32 or a list of bytes.
    #[pyo3(signature = (names, columns, rows, /))]
    fn write_rows(
        &mut self,
        py: Python<'_>,
        names: Vec<String>,
        columns: Vec<(Values<'_>, Cut<'_>)>,
        rows: usize,
    ) -> PyResult<()> {
        let bytes: Vec<Vec<&[u8]>> = columns
            .iter()
            .map(|(values, _)| match values {
                Values::Bytes(items) => items.iter().map(|item| item.as_bytes()).collect(),
                _ => Vec::new(),
            })
            .collect();
        let mut views = Vec::with_capacity(columns.len());
        for ((name, (values, cut)), bytes) in names.iter().zip(&columns).zip(&bytes) {
            let values = match values {
                Values::Bytes(_) => rows::Values::Bytes(bytes),
                Values::Int64(array) => rows::Values::Int64(array.as_slice()?),
                Values::Float32(array) => rows::Values::Float32(array.as_slice()?),
            };
            let cut = match cut {
                Cut::Every(width) => rows::Cut::Every(*width),
                Cut::Offsets(offsets) => rows::Cut::Offsets(offsets.as_slice()?),
            };
            views.push((name.as_str(), Rows { values, cut }));
        }
        let inner = &mut self.inner;
        py.detach(|| rows::encode_rows(&views, rows, |record| inner.write(record))).map_err(raise)
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.flush()).map_err(raise)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.finish()).map_err(raise)
    }
}
