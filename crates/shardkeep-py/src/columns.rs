//! Features from Python, columns to NumPy. Buffers change hands without a copy.

use numpy::{Element, IxDyn, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use shardkeep_core::columns::{Column, DType, DefaultValue, Feature, ImageDType, Kind, Schema};
use shardkeep_core::error::{self, Error};

use crate::errors::raise;

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

/// An array, or for rows of different lengths the pair (values, offsets).
pub(crate) fn to_numpy(py: Python<'_>, column: Column) -> PyResult<Bound<'_, PyAny>> {
    match column {
        Column::FixedI64 { data, shape } => shaped(py, data, &shape),
        Column::FixedF32 { data, shape } => shaped(py, data, &shape),
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

fn shaped<'py, T: Element>(py: Python<'py>, data: Vec<T>, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyArray1::from_vec(py, data).reshape(IxDyn(shape))?.into_any())
}

fn pair<'py>(py: Python<'py>, values: Bound<'py, PyAny>, offsets: Vec<i64>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyTuple::new(py, [values, PyArray1::from_vec(py, offsets).into_any()])?.into_any())
}

/// Byte strings as an object array of `bytes`.
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
