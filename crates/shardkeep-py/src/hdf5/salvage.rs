//! What is left of damaged HDF5 files.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use shardkeep_core::io::descriptor_pool::TransientFile;
use shardkeep_hdf5::salvage::{
    Dataset, Index, Kind, Layout, Object, RootSource, Salvage, Superblock, Target, correct_flipped_bit,
    salvage,
};

use super::inspect::signed;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(hdf5_flipped_bit, m)?)?;
    m.add_function(wrap_pyfunction!(hdf5_salvage, m)?)?;
    m.add_class::<Hdf5Salvage>()?;
    m.add_class::<Hdf5Superblock>()?;
    m.add_class::<Hdf5Object>()?;
    m.add_class::<Hdf5Dataset>()
}

/// Return the number of the only bit whose flip makes the checksum at the end right.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn hdf5_flipped_bit(py: Python<'_>, data: &[u8]) -> Option<usize> {
    py.detach(|| correct_flipped_bit(data))
}

/// Return what is left of a file that no process is writing.
#[pyfunction]
#[pyo3(signature = (path, /))]
fn hdf5_salvage(py: Python<'_>, path: PathBuf) -> PyResult<Hdf5Salvage> {
    let mut salvage = py.detach(|| {
        let file = TransientFile::open(&path)?;
        if !file.is_regular()? {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        salvage(&file)
    })?;
    let objects = std::mem::take(&mut salvage.objects).into_iter().map(Arc::new).collect();
    Ok(Hdf5Salvage { salvage, objects })
}

/// What is left of a file.
#[pyclass(frozen, module = "shardkeep._core")]
struct Hdf5Salvage {
    salvage: Salvage,
    objects: Vec<Arc<Object>>,
}

#[pymethods]
impl Hdf5Salvage {
    #[getter]
    fn base(&self) -> u64 {
        self.salvage.base
    }

    #[getter]
    fn superblock(&self) -> Option<Hdf5Superblock> {
        self.salvage.superblock.clone().map(Hdf5Superblock)
    }

    #[getter]
    fn root(&self) -> Option<u64> {
        self.salvage.root
    }

    #[getter]
    fn root_source(&self) -> Option<&'static str> {
        self.salvage.root_source.map(|source| match source {
            RootSource::Superblock => "superblock",
            RootSource::UsualPlace => "usual place",
            RootSource::OnlyCandidate => "only candidate",
        })
    }

    #[getter]
    fn objects(&self) -> Vec<Hdf5Object> {
        self.objects.iter().cloned().map(Hdf5Object).collect()
    }

    #[getter]
    fn ambiguous(&self) -> Vec<(u64, Vec<u64>, usize)> {
        let all = self.salvage.ambiguous.iter();
        all.map(|one| (one.offset, one.datasets.clone(), one.chunks)).collect()
    }

    #[getter]
    fn damage(&self) -> Vec<(&'static str, u64, u64, Option<u64>)> {
        let all = self.salvage.damage.iter();
        all.map(|(offset, one)| (one.what, *offset, one.size_bytes, one.flipped_bit)).collect()
    }

    #[getter]
    fn is_complete(&self) -> bool {
        self.salvage.is_complete
    }
}

/// A superblock.
#[pyclass(frozen, module = "shardkeep._core")]
struct Hdf5Superblock(Superblock);

#[pymethods]
impl Hdf5Superblock {
    #[getter]
    fn version(&self) -> u8 {
        self.0.version
    }

    #[getter]
    fn offset_width(&self) -> usize {
        self.0.offset_width
    }

    #[getter]
    fn length_width(&self) -> usize {
        self.0.length_width
    }

    #[getter]
    fn checksum_is_right(&self) -> Option<bool> {
        self.0.checksum_is_right
    }

    #[getter]
    fn flags(&self) -> u32 {
        self.0.flags
    }

    #[getter]
    fn end(&self) -> u64 {
        self.0.end
    }

    #[getter]
    fn extension(&self) -> Option<u64> {
        self.0.extension
    }

    #[getter]
    fn root(&self) -> Option<u64> {
        self.0.root
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }
}

/// An object of a file.
#[pyclass(frozen, module = "shardkeep._core")]
struct Hdf5Object(Arc<Object>);

#[pymethods]
impl Hdf5Object {
    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind {
            Kind::Group => "group",
            Kind::Dataset => "dataset",
            Kind::NamedType => "type",
            Kind::Lost => "lost",
            Kind::Other => "other",
        }
    }

    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.path.as_ref().map(|path| PyBytes::new(py, path))
    }

    #[getter]
    fn is_checked(&self) -> bool {
        self.0.is_checked
    }

    #[getter]
    fn is_whole(&self) -> bool {
        self.0.is_whole
    }

    #[getter]
    fn extents(&self) -> Vec<(u64, u64)> {
        self.0.extents.clone()
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> Vec<(u16, u8, Bound<'py, PyBytes>)> {
        let all = self.0.messages.iter();
        all.map(|message| (message.kind, message.flags, PyBytes::new(py, &message.data))).collect()
    }

    #[getter]
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for link in &self.0.links {
            let name = link.name.as_ref().map(|name| PyBytes::new(py, name));
            match &link.target {
                Target::Object(offset) => list.append((name, "hard", offset))?,
                Target::Soft(path) => list.append((name, "soft", PyBytes::new(py, path)))?,
                Target::External(file, path) => {
                    list.append((name, "external", (PyBytes::new(py, file), PyBytes::new(py, path))))?;
                }
            }
        }
        Ok(list)
    }

    #[getter]
    fn links_are_whole(&self) -> bool {
        self.0.links_are_whole
    }

    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for one in &self.0.attributes {
            let shape = one.shape.as_ref().map(|shape| PyTuple::new(py, shape)).transpose()?;
            let [name, datatype, values] =
                [&one.name, &one.datatype, &one.values].map(|bytes| PyBytes::new(py, bytes));
            list.append((name, datatype, shape, values, one.is_checked))?;
        }
        Ok(list)
    }

    #[getter]
    fn attributes_are_whole(&self) -> bool {
        self.0.attributes_are_whole
    }

    #[getter]
    fn dataset(&self) -> Option<Hdf5Dataset> {
        self.0.dataset.is_some().then(|| Hdf5Dataset(Arc::clone(&self.0)))
    }
}

type Chunks<'py> = (
    Bound<'py, PyArray2<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u8>>,
);
type Filter<'py> = (u16, u16, Bound<'py, PyBytes>, Vec<u32>);
type Place<'py> = Option<Bound<'py, PyTuple>>;

/// The properties of a dataset.
#[pyclass(frozen, module = "shardkeep._core")]
struct Hdf5Dataset(Arc<Object>);

impl Hdf5Dataset {
    /// Return a property; every object of this class has a dataset.
    fn of<T>(&self, get: impl FnOnce(&Dataset) -> Option<T>) -> Option<T> {
        self.0.dataset.as_ref().and_then(get)
    }
}

#[pymethods]
impl Hdf5Dataset {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Place<'py>> {
        self.of(|dataset| dataset.shape.clone()).map(|shape| PyTuple::new(py, shape)).transpose()
    }

    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.of(|dataset| Some(dataset.limits.clone())).unwrap_or_default())
    }

    #[getter]
    fn datatype<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.of(|dataset| Some(dataset.datatype.clone())).unwrap_or_default())
    }

    #[getter]
    fn value_bytes(&self) -> u64 {
        self.of(|dataset| Some(dataset.value_bytes)).unwrap_or(0)
    }

    #[getter]
    fn filters<'py>(&self, py: Python<'py>) -> Option<Vec<Filter<'py>>> {
        let filters = self.of(|dataset| dataset.filters.clone())?;
        let all = filters.into_iter();
        Some(all.map(|one| (one.id, one.flags, PyBytes::new(py, &one.name), one.values)).collect())
    }

    #[getter]
    fn fill_value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.of(|dataset| dataset.fill_value.as_ref().map(|value| PyBytes::new(py, value)))
    }

    #[getter]
    fn layout(&self) -> Option<&'static str> {
        self.of(|dataset| {
            Some(match dataset.layout {
                Layout::Compact(_) => "compact",
                Layout::Contiguous { .. } => "contiguous",
                Layout::Chunked(_) => "chunked",
                Layout::Virtual(..) => "virtual",
                Layout::External => "external",
            })
        })
    }

    /// The bytes of a compact dataset.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.of(|dataset| match &dataset.layout {
            Layout::Compact(bytes) => Some(PyBytes::new(py, bytes)),
            _ => None,
        })
    }

    /// Offset and size of contiguous values.
    #[getter]
    fn extent(&self) -> Option<(u64, u64)> {
        self.0.contiguous().map(|(offset, end)| (offset, end - offset))
    }

    #[getter]
    fn is_contradicted(&self) -> bool {
        self.0.is_contradicted
    }

    #[getter]
    fn chunk_shape<'py>(&self, py: Python<'py>) -> PyResult<Place<'py>> {
        let chunk = self.of(|dataset| match &dataset.layout {
            Layout::Chunked(chunked) => Some(chunked.chunk.clone()),
            _ => None,
        });
        chunk.map(|chunk| PyTuple::new(py, chunk)).transpose()
    }

    #[getter]
    fn index(&self) -> Option<&'static str> {
        self.of(|dataset| match &dataset.layout {
            Layout::Chunked(chunked) => Some(match chunked.index {
                Index::BTree1 => "btree1",
                Index::Single(_) => "single",
                Index::Implicit => "implicit",
                Index::FixedArray { .. } => "fixed array",
                Index::ExtensibleArray { .. } => "extensible array",
                Index::BTree2 { .. } => "btree2",
            }),
            _ => None,
        })
    }

    #[getter]
    fn edges_unfiltered(&self) -> bool {
        self.of(|dataset| match &dataset.layout {
            Layout::Chunked(chunked) => Some(chunked.edges_unfiltered),
            _ => None,
        })
        .unwrap_or(false)
    }

    #[getter]
    fn chunks<'py>(&self, py: Python<'py>) -> PyResult<Chunks<'py>> {
        let chunks = self.0.chunks.clone();
        let axes = self.of(|dataset| dataset.shape.as_ref().map(Vec::len)).unwrap_or(0);
        let places = signed(py, chunks.places).reshape([chunks.masks.len(), axes])?;
        let proofs: Vec<u8> = chunks.proofs.iter().map(|proof| *proof as u8).collect();
        Ok((
            places,
            signed(py, chunks.offsets),
            signed(py, chunks.sizes),
            chunks.masks.into_pyarray(py),
            proofs.into_pyarray(py),
        ))
    }

    #[getter]
    fn lost_places<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Place<'py>, Place<'py>)>> {
        let place =
            |place: &Option<Vec<u64>>| place.as_ref().map(|place| PyTuple::new(py, place)).transpose();
        let all = self.0.lost_places.iter();
        all.map(|lost| Ok((lost.offset, place(&lost.first)?, place(&lost.end)?))).collect()
    }
}
