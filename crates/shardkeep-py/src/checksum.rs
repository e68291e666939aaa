//! CRC32C.

use pyo3::prelude::*;
use shardkeep_core::crc;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(masked_crc32c, m)?)
}

#[pyfunction]
#[pyo3(signature = (data, /))]
fn crc32c(data: &[u8]) -> u32 {
    crc::crc32c(data)
}

#[pyfunction]
#[pyo3(signature = (data, /))]
fn masked_crc32c(data: &[u8]) -> u32 {
    crc::masked_crc32c(data)
}
