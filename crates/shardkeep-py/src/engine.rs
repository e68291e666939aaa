//! The batch engine.

use std::path::PathBuf;
use std::time::Duration;

use numpy::{Ix1, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardkeep_core::batch::engine::{self, Batch, Dataset, OnCorrupt, Shard};
use shardkeep_core::io::descriptor_pool::VirtualFile;

use crate::columns;
use crate::errors::raise;
use crate::lending::lent;
use crate::positions::Offsets;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Engine>()
}

/// Time between two checks for Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

#[pyclass(module = "shardkeep._core")]
struct Engine {
    inner: engine::Engine,
    bytes_as: columns::BytesAs,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (
        paths, positions, features = None, *, threads = 1, verify = true, bytes_as = "objects", on_corrupt = "raise",
        holes = None, gather = false,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        paths: Vec<PathBuf>,
        positions: Offsets<'_>,
        features: Option<Vec<columns::FeatureArgs<'_>>>,
        threads: usize,
        verify: bool,
        bytes_as: &str,
        on_corrupt: &str,
        holes: Option<PyReadonlyArray1<'_, u64>>,
        gather: bool,
    ) -> PyResult<Self> {
        let on_corrupt = match on_corrupt {
            "raise" => OnCorrupt::Raise,
            "skip" => OnCorrupt::Skip,
            "repair" => OnCorrupt::Repair,
            other => return Err(PyValueError::new_err(format!("on_corrupt={other:?} is not known"))),
        };
        let bytes_as = columns::BytesAs::of(bytes_as)?;
        let positions = positions.of_shards(paths.len())?;
        let shards = paths.into_iter().zip(positions);
        let shards =
            shards.map(|(path, positions)| Shard::packed(VirtualFile::new(path), positions)).collect();
        let schema = features.map(columns::schema).transpose()?;
        let holes = holes.map(|holes| holes.as_slice().map(<[u64]>::to_vec)).transpose()?.unwrap_or_default();
        let data = Dataset::with_holes(shards, holes);
        let mut inner = match schema {
            Some(schema) if gather => {
                engine::Engine::gathering(data, schema, threads, verify).map_err(raise)?
            }
            schema => engine::Engine::new(data, schema, threads, verify),
        };
        inner.set_on_corrupt(on_corrupt);
        Ok(Self { inner, bytes_as })
    }

    #[getter]
    fn pending(&self) -> usize {
        self.inner.pending()
    }

    /// (row, True if it was repaired, start and end of the frame, description) of each fault in the last batch.
    #[getter]
    fn faults(&self) -> Vec<(usize, bool, u64, u64, &str)> {
        let faults = self.inner.faults().iter();
        faults.map(|fault| (fault.row, fault.repaired, fault.start, fault.end, fault.what.as_str())).collect()
    }

    #[getter]
    fn is_foreign(&self) -> bool {
        self.inner.is_foreign()
    }

    /// Close the file of a shard that no pending batch reads; its path may have another copy of the content later.
    #[pyo3(signature = (shard, /))]
    fn release(&self, shard: usize) {
        self.inner.release(shard);
    }

    #[pyo3(signature = (records, rows, /))]
    fn submit(&mut self, py: Python<'_>, records: PyReadonlyArray1<'_, u64>, rows: usize) -> PyResult<()> {
        let records = records.as_slice()?;
        py.detach(|| self.inner.submit(records, rows)).map_err(raise)
    }

    /// Wait for the oldest batch; return None if there is none.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        while self.inner.pending() > 0 {
            if let Some(batch) = py.detach(|| self.inner.take(SIGNAL_CHECK)).map_err(raise)? {
                return self::batch(py, batch, self.bytes_as).map(Some);
            }
            py.check_signals()?;
        }
        Ok(None)
    }

    /// Return the columns that are in no batch because all batches filled them together: with `gather`, those whose rows have
    /// a size that the schema determines. Call it once, after all batches.
    fn gathered<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = self.inner.gathered().map_err(raise)?;
        batch(py, Batch::Columns(columns), self.bytes_as)
    }
}

fn batch(py: Python<'_>, batch: Batch, bytes_as: columns::BytesAs) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    match batch {
        Batch::Records { values, offsets } => {
            let bytes = Ix1(values.len());
            out.set_item("record", (lent(py, values, bytes)?, PyArray1::from_vec(py, offsets)))?;
        }
        Batch::Columns(columns) => {
            for (name, column) in columns {
                out.set_item(name, columns::to_numpy(py, column, bytes_as)?)?;
            }
        }
    }
    Ok(out)
}
