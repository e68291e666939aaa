//! Fields of any protocol-buffer message.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardkeep_core::example::wire::{self, Cursor};

create_exception!(
    shardkeep._core,
    WireError,
    PyValueError,
    "Bytes that are not a protocol-buffer message; the caller adds file and record."
);

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("WireError", m.py().get_type::<WireError>())?;
    m.add_function(wrap_pyfunction!(protobuf_fields, m)?)?;
    m.add_function(wrap_pyfunction!(protobuf_varint, m)?)
}

fn raise(error: wire::WireError) -> PyErr {
    WireError::new_err(error.to_string())
}

/// Return tag, start and end of each field of the message `data[at:end]`; of a varint tag, value and 0.
#[pyfunction]
#[pyo3(signature = (data, at, end, /))]
fn protobuf_fields(data: &[u8], at: usize, end: usize) -> PyResult<Vec<(u32, u64, u64)>> {
    let message = data.get(at..end).ok_or_else(|| raise(wire::WireError::Truncated))?;
    let mut fields = wire::fields(message).map_err(raise)?;
    for (tag, start, end) in &mut fields {
        if *tag & 7 != 0 {
            *start += at as u64;
            *end += at as u64;
        }
    }
    Ok(fields)
}

/// Return the varint at `at` and its end.
#[pyfunction]
#[pyo3(signature = (data, at, /))]
fn protobuf_varint(data: &[u8], at: usize) -> PyResult<(u64, usize)> {
    let mut cursor = Cursor::new(data.get(at..).unwrap_or_default());
    let value = cursor.varint().map_err(raise)?;
    Ok((value, data.len() - cursor.rest().len()))
}
