//! `tf.train.Example` and `SequenceExample` from and to Python values.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyType};
use shardkeep_core::error::Error;
use shardkeep_core::example::{self, Content, FeatureValue, Value};

use crate::errors::raise;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(encode_example, m)?)?;
    m.add_function(wrap_pyfunction!(decode_example, m)?)?;
    m.add_function(wrap_pyfunction!(encode_sequence_example, m)?)?;
    m.add_function(wrap_pyfunction!(decode_sequence_example, m)?)?;
    m.add_function(wrap_pyfunction!(record_content, m)?)
}

enum Values<'py> {
    Bytes(Vec<Bound<'py, PyBytes>>),
    Float(PyReadonlyArray1<'py, f32>),
    Int64(PyReadonlyArray1<'py, i64>),
    Empty,
}

impl<'py> Values<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = value.cast::<PyList>() {
            let items = list.iter().map(|one| Ok(one.cast_into::<PyBytes>()?));
            return Ok(Self::Bytes(items.collect::<PyResult<_>>()?));
        }
        if value.is_none() {
            return Ok(Self::Empty);
        }
        if let Ok(array) = value.extract::<PyReadonlyArray1<'py, i64>>() {
            return Ok(Self::Int64(array));
        }
        Ok(Self::Float(value.extract::<PyReadonlyArray1<'py, f32>>()?))
    }

    fn all_of(values: &[Bound<'py, PyAny>]) -> PyResult<Vec<Self>> {
        values.iter().map(Self::of).collect()
    }

    /// The slices that `value` borrows.
    fn slices(&self) -> Vec<&[u8]> {
        match self {
            Self::Bytes(items) => items.iter().map(|item| item.as_bytes()).collect(),
            _ => Vec::new(),
        }
    }

    fn value<'a>(&'a self, slices: &'a [&'a [u8]]) -> PyResult<FeatureValue<'a>> {
        Ok(match self {
            Self::Bytes(_) => FeatureValue::Bytes(slices),
            Self::Float(array) => FeatureValue::Float(array.as_slice()?),
            Self::Int64(array) => FeatureValue::Int64(array.as_slice()?),
            Self::Empty => FeatureValue::Empty,
        })
    }
}

fn named<'a>(
    names: &'a [String],
    values: &'a [Values<'_>],
    slices: &'a [Vec<&'a [u8]>],
) -> PyResult<Vec<(&'a str, FeatureValue<'a>)>> {
    let both = values.iter().zip(slices);
    names.iter().zip(both).map(|(name, (one, bytes))| Ok((name.as_str(), one.value(bytes)?))).collect()
}

#[pyfunction]
#[pyo3(signature = (names, values, /))]
fn encode_example<'py>(
    py: Python<'py>,
    names: Vec<String>,
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = Values::all_of(&values)?;
    let slices: Vec<Vec<&[u8]>> = values.iter().map(Values::slices).collect();
    Ok(PyBytes::new(py, &example::encode(&named(&names, &values, &slices)?)))
}

#[pyfunction]
#[pyo3(signature = (names, values, list_names, lists, /))]
fn encode_sequence_example<'py>(
    py: Python<'py>,
    names: Vec<String>,
    values: Vec<Bound<'py, PyAny>>,
    list_names: Vec<String>,
    lists: Vec<Vec<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = Values::all_of(&values)?;
    let slices: Vec<Vec<&[u8]>> = values.iter().map(Values::slices).collect();
    let lists = lists.iter().map(|steps| Values::all_of(steps)).collect::<PyResult<Vec<_>>>()?;
    let list_slices: Vec<Vec<Vec<&[u8]>>> =
        lists.iter().map(|steps| steps.iter().map(Values::slices).collect()).collect();
    let mut steps = Vec::with_capacity(lists.len());
    for (list, slices) in lists.iter().zip(&list_slices) {
        let each = list.iter().zip(slices).map(|(step, bytes)| step.value(bytes));
        steps.push(each.collect::<PyResult<Vec<_>>>()?);
    }
    let steps: Vec<(&str, &[FeatureValue<'_>])> =
        list_names.iter().map(String::as_str).zip(steps.iter().map(Vec::as_slice)).collect();
    Ok(PyBytes::new(py, &example::encode_sequence(&named(&names, &values, &slices)?, &steps)))
}

#[pyfunction]
#[pyo3(signature = (record, /))]
fn decode_example<'py>(py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let values = example::decode(record)
        .map_err(|e| raise(Error::new(e.kind(), format!("not a tf.train.Example: {e}"))))?;
    features(py, values)
}

/// Return the pair (context, lists).
#[pyfunction]
#[pyo3(signature = (record, /))]
fn decode_sequence_example<'py>(
    py: Python<'py>,
    record: &[u8],
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let (context, lists) = example::decode_sequence(record)
        .map_err(|e| raise(Error::new(e.kind(), format!("not a tf.train.SequenceExample: {e}"))))?;
    let out = PyDict::new(py);
    for (key, steps) in lists {
        let list = PyList::empty(py);
        for step in steps {
            list.append(to_python(py, step)?)?;
        }
        out.set_item(key, list)?;
    }
    Ok((features(py, context)?, out))
}

/// Return the name of the message or data in a record, such as "tf.train.Example"; None for unknown bytes.
#[pyfunction]
#[pyo3(signature = (record, /))]
fn record_content(record: &[u8]) -> Option<&'static str> {
    Content::of(record).map(Content::name)
}

fn features<'py>(py: Python<'py>, values: Vec<(&str, Value<'_>)>) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (key, value) in values {
        out.set_item(key, to_python(py, value)?)?;
    }
    Ok(out)
}

/// An empty list of bytes is a list that has its kind, and a Feature without a kind is None, so that both can be encoded
/// again.
fn to_python<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(match value {
        Value::Bytes(items) if items.is_empty() => {
            EMPTY.import(py, "shardkeep.tfrecord.example.example", "EmptyBytesList")?.call0()?
        }
        Value::Bytes(items) => PyList::new(py, items.iter().map(|one| PyBytes::new(py, one)))?.into_any(),
        Value::Float(values) => PyArray1::from_vec(py, values).into_any(),
        Value::Int64(values) => PyArray1::from_vec(py, values).into_any(),
        Value::Empty => py.None().into_bound(py),
    })
}
