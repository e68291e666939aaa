//! The descriptor pool of the process.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardkeep_core::io::descriptor_pool;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(descriptor_usage, m)?)?;
    m.add_function(wrap_pyfunction!(set_descriptor_limit, m)?)
}

#[pyfunction]
fn descriptor_usage(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let usage = descriptor_pool::usage();
    let out = PyDict::new(py);
    out.set_item("limit", usage.limit)?;
    out.set_item("reserve", usage.reserve)?;
    out.set_item("open", usage.open)?;
    out.set_item("peak", usage.peak)?;
    out.set_item("opened", usage.opened)?;
    out.set_item("evicted", usage.evicted)?;
    Ok(out)
}

#[pyfunction]
#[pyo3(signature = (limit, /))]
fn set_descriptor_limit(py: Python<'_>, limit: usize) {
    py.detach(|| descriptor_pool::set_limit(limit));
}
