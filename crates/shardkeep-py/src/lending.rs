//! Buffers of the Rust half that arrays show without a copy.

use std::ops::DerefMut;

use numpy::ndarray::{ArrayView, Dimension};
use numpy::{Element, PyArray};
use pyo3::prelude::*;

/// Keeps a buffer for as long as an array shows it.
#[pyclass(frozen)]
struct Loan {
    _buffer: Box<dyn Send + Sync>,
}

/// An array of `shape` over `buffer`, whose elements do not move with their owner; `None` if they are not that many.
pub(crate) fn lent<T: Element, D: Dimension>(
    py: Python<'_>,
    mut buffer: impl DerefMut<Target = [T]> + Send + Sync + 'static,
    shape: D,
) -> PyResult<Option<Bound<'_, PyArray<T, D>>>> {
    let (base, length) = (buffer.as_mut_ptr(), buffer.len());
    if shape.size_checked() != Some(length) {
        return Ok(None);
    }
    let loan = Bound::new(py, Loan { _buffer: Box::new(buffer) })?;
    // SAFETY: the array has as many elements as the buffer. It keeps `loan` alive, and with it the buffer, which does
    // not move with its owner. Nobody looks at it through the loan, so the array is its only user and may write.
    Ok(Some(unsafe {
        let view = ArrayView::from_shape_ptr(shape, base);
        PyArray::borrow_from_array(&view, loan.into_any())
    }))
}
