//! Metadata of HDF5 files that no process is writing.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_hdf5 as hdf5;
use shardkeep_hdf5::damage::search::{Extent, find_in};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(lookup3, m)?)?;
    m.add_function(wrap_pyfunction!(fletcher32, m)?)?;
    m.add_function(wrap_pyfunction!(hdf5_damage, m)?)?;
    m.add_function(wrap_pyfunction!(hdf5_virtual_datasets, m)?)?;
    m.add_function(wrap_pyfunction!(hdf5_virtual_dataset, m)?)
}

type Numbers<'py> = Bound<'py, PyArray1<i64>>;
type Names<'py> = Vec<Bound<'py, PyBytes>>;
/// Shape, datatype message, files, datasets, source of each mapping, low, high, dimensions in the source, low, high.
type Dataset<'py> = (
    Vec<u64>,
    Bound<'py, PyBytes>,
    Names<'py>,
    Names<'py>,
    Numbers<'py>,
    Numbers<'py>,
    Numbers<'py>,
    Numbers<'py>,
    Numbers<'py>,
    Numbers<'py>,
);

/// Return the checksum of HDF5's metadata.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn lookup3(data: &[u8]) -> u32 {
    hdf5::format::lookup3::lookup3(data)
}

/// Return both sums of the filter `fletcher32`.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn fletcher32(py: Python<'_>, data: &[u8]) -> (u32, u32) {
    py.detach(|| hdf5::format::fletcher32::fletcher32(data))
}

/// Return whether the file was read, and the damaged structure with its offset.
#[pyfunction]
#[pyo3(signature = (path, /, *, lock, most_structures, rows))]
fn hdf5_damage(
    py: Python<'_>,
    path: PathBuf,
    lock: bool,
    most_structures: usize,
    rows: bool,
) -> (bool, Option<(&'static str, Option<u64>)>) {
    let extent = Extent { most_structures, rows };
    let found = py.detach(|| find_in(&path, lock, extent));
    let read = found.is_ok();
    (read, found.ok().flatten().map(|damage| (damage.what, damage.offset_bytes)))
}

/// Return the paths of the virtual datasets among the first objects; None if they are not known.
#[pyfunction]
#[pyo3(signature = (fd, most_objects, /))]
fn hdf5_virtual_datasets(py: Python<'_>, fd: i32, most_objects: usize) -> PyResult<Option<Names<'_>>> {
    let file = opened(fd)?;
    let found = py.detach(|| hdf5::File::open(&*file).and_then(|file| file.virtual_datasets(most_objects)));
    Ok(found.ok().map(|paths| paths.iter().map(|path| PyBytes::new(py, path)).collect()))
}

/// Return a virtual dataset; None if the dataset is not virtual, or not known.
#[pyfunction]
#[pyo3(signature = (fd, path, /))]
fn hdf5_virtual_dataset<'py>(py: Python<'py>, fd: i32, path: &[u8]) -> PyResult<Option<Dataset<'py>>> {
    let file = opened(fd)?;
    let found = py.detach(|| hdf5::File::open(&*file).and_then(|file| file.virtual_dataset(path)));
    let Ok(found) = found else { return Ok(None) };
    let mapping = found.mapping;
    let sources = mapping.sources.iter();
    let (files, datasets) =
        sources.map(|(file, dataset)| (PyBytes::new(py, file), PyBytes::new(py, dataset))).unzip();
    let [numbers, low, high, dimensions, source_low, source_high] = [
        mapping.numbers,
        mapping.low,
        mapping.high,
        mapping.source_dimensions,
        mapping.source_low,
        mapping.source_high,
    ]
    .map(|numbers| numbers.into_pyarray(py));
    let datatype = PyBytes::new(py, &found.datatype);
    Ok(Some((
        found.shape,
        datatype,
        files,
        datasets,
        numbers,
        low,
        high,
        dimensions,
        source_low,
        source_high,
    )))
}

/// Return the file of a descriptor that the caller keeps.
fn opened(fd: i32) -> PyResult<ManuallyDrop<File>> {
    if fd < 0 {
        return Err(PyValueError::new_err("not a descriptor"));
    }
    // SAFETY: the caller keeps the descriptor open during the call, and it is not closed here.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}
