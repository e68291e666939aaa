//! Assignment of whole files to ranks, and their interleaved reading.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardkeep_core::assignment::{self, Slots};

type I64<'py> = Bound<'py, PyArray1<i64>>;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(assign_files, m)?)?;
    m.add_function(wrap_pyfunction!(interleave_slots, m)?)?;
    m.add_function(wrap_pyfunction!(interleave_reads, m)?)
}

/// Return the rank of each file, -1 for an empty one.
#[pyfunction]
#[pyo3(signature = (sizes, world_size, /))]
fn assign_files<'py>(
    py: Python<'py>,
    sizes: PyReadonlyArray1<'py, i64>,
    world_size: u32,
) -> PyResult<I64<'py>> {
    let sizes = sizes.as_slice()?;
    Ok(PyArray1::from_vec(py, py.detach(|| assignment::balance(sizes, world_size))))
}

/// Return slot and first round of each file, and the round after the last one of each slot.
#[pyfunction]
#[pyo3(signature = (counts, cycle_length, /))]
fn interleave_slots<'py>(
    py: Python<'py>,
    counts: PyReadonlyArray1<'py, i64>,
    cycle_length: usize,
) -> PyResult<(I64<'py>, I64<'py>, I64<'py>)> {
    let counts = counts.as_slice()?;
    let Slots { slot, begin, ends } = py.detach(|| Slots::new(counts, cycle_length));
    Ok((PyArray1::from_vec(py, slot), PyArray1::from_vec(py, begin), PyArray1::from_vec(py, ends)))
}

/// Return the records read of each file once reader r, which has the files `bounds[r]..bounds[r + 1]`, has read `rows[r]`.
#[pyfunction]
#[pyo3(signature = (counts, bounds, cycle_length, rows, /))]
fn interleave_reads<'py>(
    py: Python<'py>,
    counts: PyReadonlyArray1<'py, i64>,
    bounds: PyReadonlyArray1<'py, i64>,
    cycle_length: usize,
    rows: PyReadonlyArray1<'py, i64>,
) -> PyResult<I64<'py>> {
    let (counts, bounds, rows) = (counts.as_slice()?, bounds.as_slice()?, rows.as_slice()?);
    let read = py.detach(|| {
        let mut read = Vec::with_capacity(counts.len());
        for (bound, &records) in bounds.windows(2).zip(rows) {
            let mine = counts.get(bound[0] as usize..bound[1] as usize)?;
            if records > 0 {
                read.extend(Slots::new(mine, cycle_length).read_after(mine, records));
            } else {
                read.resize(read.len() + mine.len(), 0);
            }
        }
        Some(read)
    });
    let read = read.ok_or_else(|| PyValueError::new_err("bounds do not divide the files"))?;
    Ok(PyArray1::from_vec(py, read))
}
