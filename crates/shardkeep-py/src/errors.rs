//! Errors of the core as the classes of `shardkeep.errors`.

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardkeep_core::error::{Error, Kind};

/// Raise `error` as the class that its kind names.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| build(py, &error).unwrap_or_else(|failed| failed))
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = match error.kind {
        Kind::Corrupt => "CorruptRecordError",
        Kind::Changed => "CorruptDataError",
        Kind::Truncated => "TruncatedFileError",
        Kind::Format => "FormatError",
        Kind::Schema => "SchemaError",
        Kind::NotFound => "NotFoundError",
        Kind::Budget => "BudgetError",
        Kind::Internal => "InternalError",
        Kind::Memory => return Ok(PyMemoryError::new_err(error.to_string())),
        Kind::Os => {
            return Ok(PyOSError::new_err((error.errno, error.message.clone(), error.path.clone())));
        }
    };
    let kwargs = PyDict::new(py);
    kwargs.set_item("path", &error.path)?;
    kwargs.set_item("offset_bytes", error.offset_bytes)?;
    kwargs.set_item("record", error.record)?;
    let class = py.import("shardkeep.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&kwargs))?))
}
