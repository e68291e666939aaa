//! Buffers of the Rust half that arrays show without a copy.

use std::ops::DerefMut;

use numpy::ndarray::ArrayView1;
use numpy::{Element, PyArray1};
use pyo3::prelude::*;

/// Keeps a buffer for as long as an array shows it.
#[pyclass(frozen)]
struct Loan {
    _buffer: Box<dyn Send + Sync>,
}

/// An array over all of `buffer`, whose elements do not move with their owner.
pub(crate) fn lent<T: Element>(
    py: Python<'_>,
    mut buffer: impl DerefMut<Target = [T]> + Send + Sync + 'static,
) -> PyResult<Bound<'_, PyArray1<T>>> {
    let (base, length) = (buffer.as_mut_ptr(), buffer.len());
    let loan = Bound::new(py, Loan { _buffer: Box::new(buffer) })?;
    // SAFETY: the array keeps `loan` alive, and with it the buffer, which does not move with its owner. Nobody looks
    // at it through the loan, so the array is its only user and may write.
    Ok(unsafe {
        let view = ArrayView1::from_shape_ptr(length, base);
        PyArray1::borrow_from_array(&view, loan.into_any())
    })
}
