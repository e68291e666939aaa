//! `shardkeep._core`: converts arguments, releases the GIL, maps errors. No logic lives here.
//!
//! The stub `src/shardkeep/_core.pyi` lists the same names in the same order of files.

mod assignment;
mod checksum;
mod chunk_copy;
mod descriptors;
mod errors;
mod hdf5;
mod known_files;
mod lending;
mod positions;
mod protobuf;
mod records;
mod salvage;
mod writing;

mod columns;
mod engine;
mod example;

use pyo3::panic::PanicException;
use pyo3::prelude::*;

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // pyo3 raises a panic as a BaseException, which no `except Exception` catches.
    let internal_error = py.import("shardkeep.errors")?.getattr("InternalError")?;
    py.get_type::<PanicException>().setattr("__bases__", (internal_error,))?;
    // The numpy crate loads the C API of NumPy at its first use, and panics if Ctrl-C interrupts that.
    py.import("numpy")?;
    numpy::npyffi::is_numpy_2(py);
    assignment::register(m)?;
    checksum::register(m)?;
    chunk_copy::register(m)?;
    descriptors::register(m)?;
    hdf5::register(m)?;
    known_files::register(m)?;
    positions::register(m)?;
    records::register(m)?;
    salvage::register(m)?;
    writing::register(m)?;
    columns::register(m)?;
    example::register(m)?;
    protobuf::register(m)?;
    engine::register(m)?;
    Ok(())
}
