//! Reading records: in order, at random, and the index scan.

use std::io::{self, Read};
use std::path::PathBuf;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use shardkeep_core::batch::engine::{Batch, Dataset, Shard, read_now};
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::scan;
use shardkeep_core::record::stream::{Compression, Input, RecordStream};

use crate::errors::raise;
use crate::positions::OneOffsets;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RecordIterator>()?;
    m.add_class::<RecordFile>()?;
    m.add_function(wrap_pyfunction!(scan_frames, m)?)?;
    m.add_function(wrap_pyfunction!(scan_part, m)?)?;
    m.add_function(wrap_pyfunction!(sniff_compression, m)?)
}

/// Payloads copied out at once by `read_many`.
const PASS_BYTES: u64 = 64 << 20;

pub(crate) fn compression(name: Option<&str>) -> PyResult<Compression> {
    match name {
        None => Ok(Compression::None),
        Some("gzip") => Ok(Compression::Gzip),
        Some("zlib") => Ok(Compression::Zlib),
        Some("zstd") => Ok(Compression::Zstd),
        Some(other) => Err(PyValueError::new_err(format!("no compression is called {other:?}"))),
    }
}

pub(crate) fn name(compression: Compression) -> Option<&'static str> {
    match compression {
        Compression::None => None,
        Compression::Gzip => Some("gzip"),
        Compression::Zlib => Some("zlib"),
        Compression::Zstd => Some("zstd"),
    }
}

#[pyclass(module = "shardkeep._core")]
struct RecordIterator {
    stream: RecordStream,
}

#[pymethods]
impl RecordIterator {
    /// `source` is a path; or with a `name` for messages, an object with `read`, and `seek` if it is `seekable`. A longer
    /// record than `most_bytes` is an error.
    #[new]
    #[pyo3(signature = (source, *, compression = "auto", verify = true, name = None, seekable = false, most_bytes = None))]
    fn new(
        py: Python<'_>,
        source: Bound<'_, PyAny>,
        compression: Option<&str>,
        verify: bool,
        name: Option<PathBuf>,
        seekable: bool,
        most_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let wanted = match compression {
            Some("auto") => None,
            given => Some(self::compression(given)?),
        };
        let input = match name {
            None => Input::file(VirtualFile::new(source.extract::<PathBuf>()?)),
            Some(name) => {
                Input::other(Box::new(PythonFile { object: source.unbind(), seekable, at: 0 }), name)
            }
        };
        let mut stream = py.detach(|| RecordStream::open(input, wanted, verify)).map_err(raise)?;
        if let Some(most_bytes) = most_bytes {
            stream.limit(most_bytes);
        }
        Ok(Self { stream })
    }

    #[getter]
    fn compression(&self) -> Option<&'static str> {
        name(self.stream.compression())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if !self.stream.is_buffered() {
            py.detach(|| self.stream.fill()).map_err(raise)?;
        }
        let record = self.stream.next_record().map_err(raise)?;
        // `PyBytes::new` would panic where the memory cannot be had.
        record.map(|record| owned(py, record)).transpose()
    }
}

/// A file object of Python; takes the GIL for each block.
struct PythonFile {
    object: Py<PyAny>,
    seekable: bool,
    at: u64,
}

impl Read for PythonFile {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let object = self.object.bind(py);
            if self.seekable {
                // Its position may be anybody's: this reader has its own.
                object.call_method1("seek", (self.at,))?;
            }
            let data = object.call_method1("read", (room.len(),))?;
            let bytes = data.cast::<PyBytes>()?.as_bytes();
            let n = bytes.len().min(room.len());
            if let (Some(to), Some(from)) = (room.get_mut(..n), bytes.get(..n)) {
                to.copy_from_slice(from);
            }
            self.at += n as u64;
            Ok(n)
        })
        .map_err(|e: PyErr| io::Error::other(e.to_string()))
    }
}

#[pyclass(module = "shardkeep._core", frozen)]
struct RecordFile {
    data: Dataset,
    verify: bool,
}

#[pymethods]
impl RecordFile {
    #[new]
    #[pyo3(signature = (path, positions, shard = 0, *, verify = true))]
    fn new(path: PathBuf, positions: OneOffsets<'_>, shard: usize, verify: bool) -> PyResult<Self> {
        let shard = Shard::packed(VirtualFile::new(path), positions.of_shard(shard)?);
        Ok(Self { data: Dataset::new(vec![shard]), verify })
    }

    #[pyo3(signature = (indices, /))]
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        indices: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let out = PyList::empty(py);
        let mut rest = indices.as_slice()?;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|index| {
                bytes += self.data.locate(**index, 0).map_or(0, |place| place.payload_bytes());
                bytes <= PASS_BYTES
            });
            let (now, later) = rest.split_at(fit.count().max(1));
            rest = later;
            let batch = py.detach(|| read_now(&self.data, now, self.verify)).map_err(raise)?;
            let Batch::Records { values, offsets } = batch else {
                continue;
            };
            for pair in offsets.windows(2) {
                if let [from, to] = pair
                    && let Some(payload) = values.get(*from as usize..*to as usize)
                {
                    out.append(owned(py, payload)?)?;
                }
            }
        }
        Ok(out)
    }
}

fn owned<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
        Ok(())
    })
}

#[pyfunction]
#[pyo3(signature = (paths, *, verify = false, threads = 1))]
fn scan_frames<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    verify: bool,
    threads: usize,
) -> PyResult<Vec<Bound<'py, PyArray1<u64>>>> {
    let found = py
        .detach(|| {
            let files: Vec<VirtualFile> = paths.into_iter().map(VirtualFile::new).collect();
            scan::frame_starts_of(&files, verify, threads)
        })
        .map_err(raise)?;
    Ok(found.into_iter().map(|starts| PyArray1::from_vec(py, starts)).collect())
}

#[pyfunction]
#[pyo3(signature = (path, *, offset_bytes, record, until_bytes, verify = false))]
fn scan_part(
    py: Python<'_>,
    path: PathBuf,
    offset_bytes: u64,
    record: u64,
    until_bytes: u64,
    verify: bool,
) -> PyResult<Bound<'_, PyArray1<u64>>> {
    let starts = py
        .detach(|| {
            let file = VirtualFile::new(path);
            scan::frame_starts_of_part(&file, offset_bytes, record, until_bytes, verify)
        })
        .map_err(raise)?;
    Ok(PyArray1::from_vec(py, starts))
}

#[pyfunction]
#[pyo3(signature = (path, /))]
fn sniff_compression(py: Python<'_>, path: PathBuf) -> PyResult<Option<&'static str>> {
    let stream =
        py.detach(|| RecordStream::open(Input::file(VirtualFile::new(path)), None, false)).map_err(raise)?;
    Ok(name(stream.compression()))
}
