//! Features from Python, and columns as NumPy arrays without a copy.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{Element, IxDyn, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use shardkeep_core::batch::columns::{
    BatchColumns, Block, Column, DType, DefaultValue, Feature, ImageDType, Kind, Schema, Scratch, Zeroed,
};
use shardkeep_core::error::{self, Error};
use shardkeep_image as image;

use crate::errors::raise;
use crate::lending::lent;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ColumnBuilder>()?;
    m.add_function(wrap_pyfunction!(image_shape, m)?)
}

/// Conversion of records in memory into columns.
#[pyclass(module = "shardkeep._core")]
struct ColumnBuilder {
    columns: Option<BatchColumns>,
    filled: usize,
    scratch: Scratch,
    bytes_as: BytesAs,
}

#[pymethods]
impl ColumnBuilder {
    #[new]
    #[pyo3(signature = (features, rows, *, bytes_as = "objects"))]
    fn new(features: Vec<FeatureArgs<'_>>, rows: usize, bytes_as: &str) -> PyResult<Self> {
        let columns = BatchColumns::new(Arc::new(schema(features)?), rows).map_err(|e| raise(e.into()))?;
        let bytes_as = BytesAs::of(bytes_as)?;
        Ok(Self { columns: Some(columns), filled: 0, scratch: Scratch::default(), bytes_as })
    }

    /// Parse records into the next rows. `path` and `first_record` are their origin in an error.
    #[pyo3(signature = (records, /, *, path = None, first_record = 0))]
    fn fill(
        &mut self,
        py: Python<'_>,
        records: Vec<Bound<'_, PyBytes>>,
        path: Option<PathBuf>,
        first_record: u64,
    ) -> PyResult<()> {
        let columns = self.columns.as_ref().ok_or_else(finished)?;
        let payloads: Vec<&[u8]> = records.iter().map(|one| one.as_bytes()).collect();
        let (first, scratch) = (self.filled, &mut self.scratch);
        py.detach(|| columns.fill(first, &payloads, scratch)).map_err(|e| {
            let error = Error::from(e.clone()).record(first_record + (e.row - first) as u64);
            raise(match &path {
                Some(path) => error.at(path),
                None => error,
            })
        })?;
        self.filled += records.len();
        Ok(())
    }

    /// Return the columns; rows that were not filled are zeros, empty strings, or empty lists.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = self.columns.take().ok_or_else(finished)?.finish().map_err(|e| raise(e.into()))?;
        let out = PyDict::new(py);
        for (name, column) in columns {
            out.set_item(name, to_numpy(py, column, self.bytes_as)?)?;
        }
        Ok(out)
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("these columns are finished")
}

/// Return (height, width, channels) of the header of a PNG, JPEG or WebP; None for anything else.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn image_shape(data: &[u8]) -> Option<(usize, usize, usize)> {
    image::header(data).ok().map(|head| (head.height, head.width, head.channels))
}

/// The Python type of byte strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BytesAs {
    /// `bytes` in an object array.
    Objects,
    /// All bytes end to end, and the start of each value.
    Buffers,
}

impl BytesAs {
    pub(crate) fn of(name: &str) -> PyResult<Self> {
        match name {
            "objects" => Ok(Self::Objects),
            "buffers" => Ok(Self::Buffers),
            other => Err(PyValueError::new_err(format!("bytes_as={other:?} is not known"))),
        }
    }
}

/// (name, "fixed" | "var" | "image", dtype, shape or (channels, height, width), default)
pub(crate) type FeatureArgs<'py> = (String, String, String, Vec<usize>, Option<Bound<'py, PyAny>>);

pub(crate) fn schema(features: Vec<FeatureArgs<'_>>) -> PyResult<Schema> {
    let features = features.into_iter().map(feature).collect::<PyResult<Vec<_>>>()?;
    Schema::new(features).map_err(|e| raise(Error::new(error::Kind::Schema, e.to_string())))
}

fn feature((name, kind, dtype, shape, default): FeatureArgs<'_>) -> PyResult<Feature> {
    let kind = match kind.as_str() {
        "fixed" => Kind::Fixed {
            dtype: self::dtype(&dtype)?,
            shape,
            default: default.map(|value| self::default(&dtype, &value)).transpose()?,
        },
        "var" => Kind::Var { dtype: self::dtype(&dtype)? },
        "image" => {
            let (channels, size) = match *shape.as_slice() {
                [channels] => (channels, None),
                [channels, height, width] => (channels, Some((height, width))),
                _ => {
                    return Err(PyValueError::new_err(
                        "an image has channels, or channels, height and width",
                    ));
                }
            };
            let dtype = match dtype.as_str() {
                "uint8" => ImageDType::U8,
                "float32" => ImageDType::F32,
                other => return Err(PyValueError::new_err(format!("no image dtype is called {other:?}"))),
            };
            let channels = u8::try_from(channels).map_err(|_| PyValueError::new_err("too many channels"))?;
            Kind::Image { channels, dtype, size }
        }
        other => return Err(PyValueError::new_err(format!("no kind of feature is called {other:?}"))),
    };
    Ok(Feature { name, kind })
}

fn dtype(name: &str) -> PyResult<DType> {
    match name {
        "int64" => Ok(DType::Int64),
        "float32" => Ok(DType::Float32),
        "bytes" => Ok(DType::Bytes),
        other => Err(PyValueError::new_err(format!("no dtype is called {other:?}"))),
    }
}

fn default(dtype: &str, value: &Bound<'_, PyAny>) -> PyResult<DefaultValue> {
    Ok(match self::dtype(dtype)? {
        DType::Int64 => {
            DefaultValue::Int64(value.extract::<PyReadonlyArray1<'_, i64>>()?.as_slice()?.to_vec())
        }
        DType::Float32 => {
            DefaultValue::Float32(value.extract::<PyReadonlyArray1<'_, f32>>()?.as_slice()?.to_vec())
        }
        DType::Bytes => DefaultValue::Bytes(value.extract()?),
    })
}

/// Return an array, or for rows of different lengths the pair (values, offsets). Byte strings as buffers have another array
/// of offsets between the two, and are a pair if the shape is fixed.
pub(crate) fn to_numpy(py: Python<'_>, column: Column, bytes_as: BytesAs) -> PyResult<Bound<'_, PyAny>> {
    match column {
        Column::FixedI64 { data, shape } => shaped(py, data, &shape),
        Column::FixedF32 { data, shape } => shaped(py, data, &shape),
        Column::FixedBytes { values, offsets, .. } if bytes_as == BytesAs::Buffers => {
            pair(py, PyArray1::from_vec(py, values).into_any(), offsets)
        }
        Column::VarBytes { values, value_offsets, offsets } if bytes_as == BytesAs::Buffers => {
            let values = PyArray1::from_vec(py, values).into_any();
            let offsets = [value_offsets, offsets].map(|one| PyArray1::from_vec(py, one).into_any());
            let [value_offsets, offsets] = offsets;
            Ok(PyTuple::new(py, [values, value_offsets, offsets])?.into_any())
        }
        Column::FixedBytes { values, offsets, shape } => {
            let flat = objects(py, &values, &offsets)?;
            Ok(flat.reshape(IxDyn(&shape))?.into_any())
        }
        Column::ImageU8 { data, shape } => shaped(py, data, &shape),
        Column::ImageF32 { data, shape } => shaped(py, data, &shape),
        Column::VarI64 { values, offsets } => pair(py, PyArray1::from_vec(py, values).into_any(), offsets),
        Column::VarF32 { values, offsets } => pair(py, PyArray1::from_vec(py, values).into_any(), offsets),
        Column::VarBytes { values, value_offsets, offsets } => {
            let values = objects(py, &values, &value_offsets)?;
            pair(py, values.into_any(), offsets)
        }
    }
}

fn shaped<'py, T: Element + Zeroed + 'static>(
    py: Python<'py>,
    data: Block<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let array = lent(py, data, IxDyn(shape))?;
    let lost = || raise(Error::internal("a column has another number of values than its shape says"));
    Ok(array.ok_or_else(lost)?.into_any())
}

fn pair<'py>(py: Python<'py>, values: Bound<'py, PyAny>, offsets: Vec<i64>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyTuple::new(py, [values, PyArray1::from_vec(py, offsets).into_any()])?.into_any())
}

/// Return byte strings as an object array of `bytes`.
fn objects<'py>(
    py: Python<'py>,
    values: &[u8],
    offsets: &[i64],
) -> PyResult<Bound<'py, PyArray1<Py<PyAny>>>> {
    let strings = offsets.windows(2).map(|pair| {
        let bytes = match pair {
            [from, to] => values.get(*from as usize..*to as usize),
            _ => None,
        };
        PyBytes::new(py, bytes.unwrap_or_default()).into_any().unbind()
    });
    Ok(PyArray1::from_vec(py, strings.collect()))
}
