//! Pieces of a file, hashed on their way into another one, by threads.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardkeep_core::error::Error;
use shardkeep_core::io::chunk_copy::{Copier, Failure, Piece, Ticket};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ChunkCopier>()?;
    m.add_class::<ChunkCopy>()
}

/// The failed side, the offset in bytes, the errno.
type Failed = (&'static str, u64, i32);

/// Threads that copy.
#[pyclass(module = "shardkeep._core", frozen)]
struct ChunkCopier {
    copier: ManuallyDrop<Copier>,
    process: u32,
}

/// A copy in progress.
#[pyclass(module = "shardkeep._core", frozen)]
struct ChunkCopy {
    ticket: Mutex<Option<Ticket>>,
}

#[pymethods]
impl ChunkCopier {
    #[new]
    #[pyo3(signature = (threads, /))]
    fn new(threads: usize) -> Self {
        Self { copier: ManuallyDrop::new(Copier::new(threads)), process: std::process::id() }
    }

    /// Begin to copy; the place -1 only hashes a chunk. Both descriptors may be closed during the copy.
    #[pyo3(signature = (source, result, addresses, sizes, places, /))]
    fn begin(
        &self,
        py: Python<'_>,
        source: i32,
        result: i32,
        addresses: PyReadonlyArray1<'_, i64>,
        sizes: PyReadonlyArray1<'_, i64>,
        places: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<ChunkCopy> {
        let (addresses, sizes, places) = (addresses.as_array(), sizes.as_array(), places.as_array());
        if sizes.len() != addresses.len() || places.len() != addresses.len() {
            return Err(PyValueError::new_err("all arrays must be equally long"));
        }
        let piece = |((address, size), place): ((&i64, &i64), &i64)| {
            Some(Piece {
                from: u64::try_from(*address).ok()?,
                size: u64::try_from(*size).ok()?,
                to: u64::try_from(*place).ok(),
            })
        };
        let pieces: Option<Vec<Piece>> = addresses.iter().zip(sizes).zip(places).map(piece).collect();
        let pieces = pieces.ok_or_else(|| PyValueError::new_err("a number is negative"))?;
        let (source, result) = (own(source)?, own(result)?);
        let ticket = py.detach(|| self.copier.begin(source, result, pieces));
        Ok(ChunkCopy { ticket: Mutex::new(Some(ticket)) })
    }
}

impl Drop for ChunkCopier {
    fn drop(&mut self) {
        // The threads are not in a forked child, and may have held a lock that this would wait for.
        if std::process::id() == self.process {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.copier) };
        }
    }
}

#[pymethods]
impl ChunkCopy {
    /// Wait for the end; return the CRC32C of each piece, or the failed side ("read", "write"), the offset, and the errno,
    /// which is 0 if a file ends too early.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyArray1<u32>>, Option<Failed>)> {
        let ticket = self.ticket.lock().unwrap_or_else(|e| e.into_inner()).take();
        let ticket = ticket.ok_or_else(|| raise(Error::internal("a copy that was waited for before")))?;
        let outcome = py.detach(|| ticket.wait());
        let (side, offset_bytes, error) = match outcome {
            Ok(crcs) => return Ok((PyArray1::from_vec(py, crcs), None)),
            Err(Failure::Read { offset_bytes, error }) => ("read", offset_bytes, error),
            Err(Failure::Write { offset_bytes, error }) => ("write", offset_bytes, error),
            Err(Failure::Other(error)) => return Err(raise(error)),
        };
        let none = PyArray1::from_vec(py, Vec::new());
        Ok((none, Some((side, offset_bytes, error.raw_os_error().unwrap_or(0)))))
    }
}

/// Duplicate the descriptor of an open file.
fn own(fd: i32) -> PyResult<File> {
    if fd < 0 {
        return Err(PyValueError::new_err("a negative descriptor"));
    }
    // SAFETY: the caller has it open for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}
