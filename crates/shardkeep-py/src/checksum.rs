//! CRC32C, and which bit of a record is wrong.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_core::{crc, crc_repair};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(masked_crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(find_flipped_bit, m)?)
}

/// Bytes, or an array of them.
#[derive(FromPyObject)]
enum Data<'py> {
    Bytes(Bound<'py, PyBytes>),
    Array(PyReadonlyArray1<'py, u8>),
}

#[pyfunction]
#[pyo3(signature = (data, before = 0, /))]
fn crc32c(data: Data<'_>, before: u32) -> PyResult<u32> {
    Ok(match &data {
        Data::Bytes(bytes) => crc::crc32c_after(before, bytes.as_bytes()),
        Data::Array(array) => crc::crc32c_after(before, array.as_slice()?),
    })
}

#[pyfunction]
#[pyo3(signature = (data, /))]
fn masked_crc32c(data: &[u8]) -> u32 {
    crc::masked_crc32c(data)
}

/// The field ("data" or "checksum") and the number of the bit in it.
#[pyfunction]
#[pyo3(signature = (data, stored, /))]
fn find_flipped_bit(py: Python<'_>, data: &[u8], stored: u32) -> Option<(&'static str, u64)> {
    let flip = py.detach(|| crc_repair::find(data.len() as u64, crc::crc32c(data), stored));
    flip.map(|flip| match flip {
        crc_repair::Flip::Data(bit) => ("data", bit),
        crc_repair::Flip::Checksum(bit) => ("checksum", u64::from(bit)),
    })
}
