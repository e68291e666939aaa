//! What HDF5 files have, as far as it is known without HDF5.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyTupleMethods};
use shardkeep_core::io::known_files::State;
use shardkeep_hdf5::chunk::index::Chunks;
use shardkeep_hdf5::inspect::files as looks;
use shardkeep_hdf5::inspect::source_info::{Dataset, Look, Object, Place};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(hdf5_inspect, m)?)
}

/// Of each file None, or (device, inode, size in bytes, time of the last change in ns), the text of its commit or None,
/// and (name, form, dataset) of each object, which is None or (shape or None, stored bytes, place, CRC32C or None).
#[pyfunction]
#[pyo3(signature = (paths, /, *, lock, rows))]
fn hdf5_inspect(py: Python<'_>, paths: Vec<PathBuf>, lock: bool, rows: bool) -> PyResult<Bound<'_, PyList>> {
    let found = py.detach(|| looks::look_at(&paths, lock, rows));
    let list = PyList::empty(py);
    for one in found {
        match one {
            Some((state, look)) => list.append(look_of(py, state, look)?)?,
            None => list.append(py.None())?,
        }
    }
    Ok(list)
}

fn look_of<'py>(py: Python<'py>, state: State, look: Look) -> PyResult<Bound<'py, PyTuple>> {
    let objects = PyList::empty(py);
    for Object { name, form, dataset } in look.objects {
        let dataset = dataset.map(|dataset| dataset_of(py, dataset)).transpose()?;
        objects.append((PyBytes::new(py, &name), PyBytes::new(py, &form), dataset))?;
    }
    let stamp = (state.device, state.inode, state.size_bytes, state.modified_ns);
    let commit = look.commit.map(|text| PyBytes::new(py, &text));
    (stamp, commit, objects).into_pyobject(py)
}

fn dataset_of(py: Python<'_>, dataset: Dataset) -> PyResult<Bound<'_, PyTuple>> {
    let shape = dataset.shape.map(|shape| PyTuple::new(py, shape)).transpose()?;
    let place = match dataset.place {
        Place::Nowhere => py.None().into_bound(py),
        Place::At(address) => address.into_pyobject(py)?.into_any(),
        Place::Value(bytes) => PyBytes::new(py, &bytes).into_any(),
        Place::Chunks(chunks) => {
            let axes = shape.as_ref().map_or(0, PyTupleMethods::len);
            chunks_of(py, chunks, axes)?.into_any()
        }
    };
    (shape, dataset.stored_bytes, place, dataset.crc32c).into_pyobject(py)
}

/// Offsets (a row for each chunk), filter masks, addresses, sizes.
fn chunks_of(py: Python<'_>, chunks: Chunks, axes: usize) -> PyResult<Bound<'_, PyTuple>> {
    let offsets = signed(py, chunks.offsets).reshape([chunks.masks.len(), axes])?;
    let masks = chunks.masks.into_pyarray(py);
    (offsets, masks, signed(py, chunks.addresses), signed(py, chunks.sizes)).into_pyobject(py)
}

fn signed(py: Python<'_>, numbers: Vec<u64>) -> Bound<'_, PyArray1<i64>> {
    // What is too large becomes negative, and is refused as an address.
    PyArray1::from_iter(py, numbers.into_iter().map(|number| number as i64))
}
