"""Columns of a loader as tensors: their specs, and their arrays in the order of a generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Ragged, VarLen

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["batch_spec", "flat_arrays", "read_tensors"]


def batch_spec(loader: Loader, rows: int | None = None) -> dict[str, Any]:
    """Return the specs of a batch by column.

    Parameters
    ----------
    loader : Loader
    rows : int, optional
        Number of rows; by default those of a batch of the loader.
    """
    # A skipped record is a row less, unless it is a masked one.
    is_static = loader.remainder == "mask" or (loader.remainder == "drop" and loader.on_corrupt != "skip")
    size = (loader.batch_size if rows is None else rows) if is_static else None
    spec: dict[str, Any] = {}
    if loader.features is None:
        spec["record"] = tf.TensorSpec([size], tf.string)
    for name, feature in (loader.features or {}).items():
        if isinstance(feature, VarLen):
            spec[name] = tf.RaggedTensorSpec([size, None], _dtype(feature), row_splits_dtype=tf.int64)
        elif isinstance(feature, FixedLen):
            spec[name] = tf.TensorSpec([size, *feature.shape], _dtype(feature))
        else:
            shape = [size, *(feature.size or (None, None)), feature.channels or None]
            spec[name] = tf.TensorSpec(shape, _dtype(feature))
    if loader.remainder == "mask":
        spec["valid"] = tf.TensorSpec([size], tf.bool)
    if loader.with_ids:
        for name in (["source"] if loader.mixture is not None else []) + ["shard", "index"]:
            spec[name] = tf.TensorSpec([size], tf.int64)
    return spec


def _dtype(feature: Any) -> Any:
    return tf.string if feature.dtype == "bytes" else tf.as_dtype(feature.dtype)


def _flat_specs(spec: Mapping[str, Any]) -> list[Any]:
    """Return the specs of `flat_arrays`: a ragged column is two of them, values and offsets."""
    flat: list[Any] = []
    for one in spec.values():
        if isinstance(one, tf.RaggedTensorSpec):
            rows = one.shape[0]
            flat += [
                tf.TensorSpec([None], one.dtype),
                tf.TensorSpec([None if rows is None else rows + 1], tf.int64),
            ]
        else:
            flat.append(one)
    return flat


def flat_arrays(spec: Mapping[str, Any], batch: Mapping[str, Any]) -> list[Any]:
    """Return the arrays of a batch in the order of their specs, without a copy except for raw records."""
    flat: list[Any] = []
    for name, one in spec.items():
        column = batch[name]
        if not isinstance(column, Ragged):
            flat.append(column)
        elif isinstance(one, tf.RaggedTensorSpec):
            flat += [column.values, column.offsets]
        else:
            flat.append(np.asarray(column))  # raw records, as strings
    return flat


def read_tensors(spec: Mapping[str, Any], read: Callable[[int], list[Any]], number: Any) -> dict[str, Any]:
    """Return the tensors by column of a batch whose `flat_arrays` a Python function returns for a number."""
    specs = _flat_specs(spec)
    tensors = tf.numpy_function(read, [number], [one.dtype for one in specs])
    for tensor, one in zip(tensors, specs, strict=True):
        tensor.set_shape(one.shape)
    rest = iter(tensors)
    batch: dict[str, Any] = {}
    for name, one in spec.items():
        tensor = next(rest)
        if isinstance(one, tf.RaggedTensorSpec):
            tensor = tf.RaggedTensor.from_row_splits(tensor, next(rest), validate=False)
        batch[name] = tensor
    return batch
