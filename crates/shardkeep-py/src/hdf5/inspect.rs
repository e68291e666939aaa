//! Inspection of HDF5 files without HDF5.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyTupleMethods};
use shardkeep_core::io::known_files::FileVersion;
use shardkeep_hdf5::chunk::list::Chunks;
use shardkeep_hdf5::inspect::files::inspect_files;
use shardkeep_hdf5::inspect::source_info::{Dataset, Object, RowLocation, SourceInfo};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(hdf5_inspect, m)?)
}

/// Return for each file None, or its version (device, inode, size in bytes, modification time in ns), the text of its commit
/// record or None, and (name, form, dataset) of each object. A dataset is None for a group, or (shape or None, stored bytes, row
/// location, CRC32C or None).
#[pyfunction]
#[pyo3(signature = (paths, /, *, lock, rows))]
fn hdf5_inspect(py: Python<'_>, paths: Vec<PathBuf>, lock: bool, rows: bool) -> PyResult<Bound<'_, PyList>> {
    let found = py.detach(|| inspect_files(&paths, lock, rows));
    let list = PyList::empty(py);
    for one in found {
        match one {
            Some((version, info)) => list.append(source_info(py, version, info)?)?,
            None => list.append(py.None())?,
        }
    }
    Ok(list)
}

fn source_info<'py>(
    py: Python<'py>,
    version: FileVersion,
    info: SourceInfo,
) -> PyResult<Bound<'py, PyTuple>> {
    let objects = PyList::empty(py);
    for Object { name, form, dataset } in info.objects {
        let dataset = dataset.map(|dataset| dataset_of(py, dataset)).transpose()?;
        objects.append((PyBytes::new(py, &name), PyBytes::new(py, &form), dataset))?;
    }
    let version = (version.device, version.inode, version.size_bytes, version.modified_ns);
    let commit = info.commit.map(|text| PyBytes::new(py, &text));
    (version, commit, objects).into_pyobject(py)
}

fn dataset_of(py: Python<'_>, dataset: Dataset) -> PyResult<Bound<'_, PyTuple>> {
    let shape = dataset.shape.map(|shape| PyTuple::new(py, shape)).transpose()?;
    let rows = match dataset.rows {
        RowLocation::None => py.None().into_bound(py),
        RowLocation::Contiguous(address) => address.into_pyobject(py)?.into_any(),
        RowLocation::Value(bytes) => PyBytes::new(py, &bytes).into_any(),
        RowLocation::Chunks(chunks) => {
            let axes = shape.as_ref().map_or(0, PyTupleMethods::len);
            chunks_of(py, chunks, axes)?.into_any()
        }
    };
    (shape, dataset.stored_bytes, rows, dataset.crc32c).into_pyobject(py)
}

/// Return offsets (a row for each chunk), filter masks, addresses and sizes.
fn chunks_of(py: Python<'_>, chunks: Chunks, axes: usize) -> PyResult<Bound<'_, PyTuple>> {
    let offsets = signed(py, chunks.offsets).reshape([chunks.masks.len(), axes])?;
    let masks = chunks.masks.into_pyarray(py);
    (offsets, masks, signed(py, chunks.addresses), signed(py, chunks.sizes)).into_pyobject(py)
}

pub(super) fn signed(py: Python<'_>, numbers: Vec<u64>) -> Bound<'_, PyArray1<i64>> {
    // A number that is too large becomes negative, and is refused as an address.
    PyArray1::from_iter(py, numbers.into_iter().map(|number| number as i64))
}
