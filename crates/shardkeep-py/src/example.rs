//! `tf.train.Example` from and to Python values.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use shardkeep_core::error::{Error, Kind};
use shardkeep_core::example::{self, FeatureValue, Value};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(encode_example, m)?)?;
    m.add_function(wrap_pyfunction!(decode_example, m)?)
}

enum Values<'py> {
    Bytes(Vec<Bound<'py, PyBytes>>),
    Float(PyReadonlyArray1<'py, f32>),
    Int64(PyReadonlyArray1<'py, i64>),
}

impl<'py> Values<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = value.cast::<PyList>() {
            let items = list.iter().map(|one| Ok(one.cast_into::<PyBytes>()?));
            return Ok(Self::Bytes(items.collect::<PyResult<_>>()?));
        }
        if let Ok(array) = value.extract::<PyReadonlyArray1<'py, i64>>() {
            return Ok(Self::Int64(array));
        }
        Ok(Self::Float(value.extract::<PyReadonlyArray1<'py, f32>>()?))
    }
}

#[pyfunction]
#[pyo3(signature = (names, values, /))]
fn encode_example<'py>(
    py: Python<'py>,
    names: Vec<String>,
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = values.iter().map(Values::of).collect::<PyResult<Vec<_>>>()?;
    let slices: Vec<Vec<&[u8]>> = values
        .iter()
        .map(|one| match one {
            Values::Bytes(items) => items.iter().map(|item| item.as_bytes()).collect(),
            _ => Vec::new(),
        })
        .collect();
    let mut features = Vec::with_capacity(names.len());
    for ((name, one), bytes) in names.iter().zip(&values).zip(&slices) {
        let value = match one {
            Values::Bytes(_) => FeatureValue::Bytes(bytes),
            Values::Float(array) => FeatureValue::Float(array.as_slice()?),
            Values::Int64(array) => FeatureValue::Int64(array.as_slice()?),
        };
        features.push((name.as_str(), value));
    }
    Ok(PyBytes::new(py, &example::encode(&features)))
}

#[pyfunction]
#[pyo3(signature = (record, /))]
fn decode_example<'py>(py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let values = example::decode(record)
        .map_err(|e| raise(Error::new(Kind::Corrupt, format!("not a tf.train.Example: {e}"))))?;
    let out = PyDict::new(py);
    for (key, value) in values {
        match value {
            Value::Bytes(items) => {
                out.set_item(key, PyList::new(py, items.iter().map(|one| PyBytes::new(py, one)))?)?
            }
            Value::Float(values) => out.set_item(key, PyArray1::from_vec(py, values))?,
            Value::Int64(values) => out.set_item(key, PyArray1::from_vec(py, values))?,
            Value::Empty => out.set_item(key, PyList::empty(py))?,
        }
    }
    Ok(out)
}
