//! CRC32C, and flipped bits of records.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_core::crc;
use shardkeep_core::record::{bit_flip, frame_repair};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(masked_crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(mask_crc, m)?)?;
    m.add_function(wrap_pyfunction!(find_flipped_bit, m)?)?;
    m.add_function(wrap_pyfunction!(correct_flipped_bits, m)?)
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

#[pyfunction]
#[pyo3(signature = (crc, /))]
fn mask_crc(crc: u32) -> u32 {
    crc::mask(crc)
}

/// Return the field ("data" or "checksum") and the number of the bit in it.
#[pyfunction]
#[pyo3(signature = (data, stored, /))]
fn find_flipped_bit(py: Python<'_>, data: &[u8], stored: u32) -> Option<(&'static str, u64)> {
    let flip = py.detach(|| bit_flip::find(data.len() as u64, crc::crc32c(data), stored));
    flip.map(|flip| match flip {
        bit_flip::Flip::Data(bit) => ("data", bit),
        bit_flip::Flip::Checksum(bit) => ("checksum", u64::from(bit)),
    })
}

/// Return the corrected frame and a description of the flipped bits; None if nothing else than flipped bits can be corrected.
#[pyfunction]
#[pyo3(signature = (frame, /))]
fn correct_flipped_bits<'py>(py: Python<'py>, frame: &[u8]) -> Option<(Bound<'py, PyBytes>, String)> {
    let (header, rest) = frame.split_first_chunk()?;
    let (payload, footer) = rest.split_last_chunk()?;
    let (mut header, mut payload, mut footer) = (*header, payload.to_vec(), *footer);
    let what = py.detach(|| frame_repair::correct_flipped_bits(&mut header, &mut payload, &mut footer))?;
    Some((PyBytes::new(py, &[&header, payload.as_slice(), &footer].concat()), what))
}
