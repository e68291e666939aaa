//! NumPy arrays over buffers of the Rust half, without a copy.

use std::ops::DerefMut;

use numpy::ndarray::{ArrayView, Dimension};
use numpy::{Element, PyArray};
use pyo3::prelude::*;

/// The owner of the buffer of an array.
#[pyclass(frozen)]
struct Loan {
    _buffer: Box<dyn Send + Sync>,
}

/// Return an array of `shape` over `buffer`, whose elements do not move with their owner; `None` if their number differs.
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
    // not move with its owner. Nothing else uses the buffer, so the array may write to it.
    Ok(Some(unsafe {
        let view = ArrayView::from_shape_ptr(shape, base);
        PyArray::borrow_from_array(&view, loan.into_any())
    }))
}
