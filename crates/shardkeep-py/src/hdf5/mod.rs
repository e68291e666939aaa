//! HDF5 files that no process is writing.

mod inspect;
mod metadata;
mod salvage;

use pyo3::prelude::*;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    metadata::register(m)?;
    inspect::register(m)?;
    salvage::register(m)
}
