//! Offsets of the records of many shards, packed.

use std::os::fd::RawFd;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardkeep_core::crc;
use shardkeep_core::io::mapped_file::MappedFile;
use shardkeep_core::record::positions::{self, PADDING_BYTES, Positions, Storage};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RecordPositions>()
}

#[pyclass(module = "shardkeep._core", frozen)]
pub(crate) struct RecordPositions {
    shards: Vec<Positions>,
    /// CRC32C of the offsets of each shard as 8-byte little-endian integers.
    checksums: Vec<u32>,
}

#[pymethods]
impl RecordPositions {
    /// Pack the offsets of shards.
    #[new]
    fn new(starts: Vec<PyReadonlyArray1<'_, u64>>) -> PyResult<Self> {
        let mut bytes = Vec::new();
        let (mut places, mut checksums) = (Vec::new(), Vec::new());
        for starts in &starts {
            let starts = starts.as_slice()?;
            let at = bytes.len();
            let width = positions::pack(starts, &mut bytes).map_err(raise)?;
            places.push((at, starts.len() as u64 - 1, width));
            checksums.push(checksum(starts));
        }
        bytes.extend_from_slice(&[0; PADDING_BYTES]);
        bytes.shrink_to_fit();
        let storage = Arc::new(Storage::Memory(bytes));
        let shards =
            places.into_iter().map(|(at, records, width)| Positions::new(&storage, at, records, width));
        Ok(Self { shards: shards.collect::<Result<_, _>>().map_err(raise)?, checksums })
    }

    /// Concatenate; nothing is copied.
    #[staticmethod]
    fn joined(parts: Vec<PyRef<'_, Self>>) -> Self {
        let shards = parts.iter().flat_map(|part| part.shards.iter().cloned()).collect();
        Self { shards, checksums: parts.iter().flat_map(|part| part.checksums.iter().copied()).collect() }
    }

    /// Map the first `size_bytes` of a file, which has packed offsets from byte `at` on.
    #[staticmethod]
    #[pyo3(signature = (fd, size_bytes, at, records, widths, checksums, /))]
    fn mapped(
        fd: RawFd,
        size_bytes: usize,
        mut at: usize,
        records: PyReadonlyArray1<'_, u64>,
        widths: PyReadonlyArray1<'_, u8>,
        checksums: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let storage = Arc::new(Storage::File(MappedFile::new(fd, size_bytes)?));
        let mut shards = Vec::new();
        for (records, width) in records.as_slice()?.iter().zip(widths.as_slice()?) {
            shards.push(Positions::new(&storage, at, *records, *width).map_err(raise)?);
            at += positions::packed_bytes(*records, *width).unwrap_or_default();
        }
        Ok(Self { shards, checksums: checksums.as_slice()?.to_vec() })
    }

    fn __len__(&self) -> usize {
        self.shards.len()
    }

    /// Number of records of each shard.
    #[getter]
    fn records<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_iter(py, self.shards.iter().map(Positions::records))
    }

    /// Size of each shard.
    #[getter]
    fn sizes_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_iter(py, self.shards.iter().map(Positions::size_bytes))
    }

    #[getter]
    fn widths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u8>> {
        PyArray1::from_iter(py, self.shards.iter().map(Positions::width))
    }

    #[getter]
    fn checksums<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_slice(py, &self.checksums)
    }

    /// Return the packed offsets of all shards, one after the other.
    fn packed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.shards.iter().map(|one| one.packed().len()).sum();
        PyBytes::new_with(py, bytes, |mut room| {
            for one in &self.shards {
                let (now, rest) = std::mem::take(&mut room).split_at_mut(one.packed().len());
                now.copy_from_slice(one.packed());
                room = rest;
            }
            Ok(())
        })
    }

    /// Return the offsets of a shard.
    fn starts<'py>(&self, py: Python<'py>, shard: usize) -> PyResult<Bound<'py, PyArray1<u64>>> {
        Ok(PyArray1::from_vec(py, self.shard(shard)?.starts()))
    }
}

impl RecordPositions {
    fn shard(&self, number: usize) -> PyResult<&Positions> {
        self.shards.get(number).ok_or_else(|| PyIndexError::new_err(format!("no shard {number}")))
    }
}

/// Offsets of shards, packed or not.
#[derive(FromPyObject)]
pub(crate) enum Offsets<'py> {
    Packed(PyRef<'py, RecordPositions>),
    Starts(Vec<PyReadonlyArray1<'py, u64>>),
}

impl Offsets<'_> {
    pub(crate) fn of_shards(self, count: usize) -> PyResult<Vec<Positions>> {
        let shards = match self {
            Self::Packed(packed) => packed.shards.clone(),
            Self::Starts(starts) => RecordPositions::new(starts)?.shards,
        };
        if shards.len() != count {
            return Err(PyValueError::new_err(format!(
                "{count} paths, and offsets of {} shards",
                shards.len()
            )));
        }
        Ok(shards)
    }
}

/// Offsets of one shard, packed among others or not.
#[derive(FromPyObject)]
pub(crate) enum OneOffsets<'py> {
    Packed(PyRef<'py, RecordPositions>),
    Starts(PyReadonlyArray1<'py, u64>),
}

impl OneOffsets<'_> {
    pub(crate) fn of_shard(self, number: usize) -> PyResult<Positions> {
        match self {
            Self::Packed(packed) => packed.shard(number).cloned(),
            Self::Starts(starts) => Positions::of(starts.as_slice()?).map_err(raise),
        }
    }
}

fn checksum(starts: &[u64]) -> u32 {
    let mut bytes = Vec::new();
    starts.chunks(512).fold(0, |before, some| {
        bytes.clear();
        bytes.extend(some.iter().flat_map(|start| start.to_le_bytes()));
        crc::crc32c_after(before, &bytes)
    })
}
