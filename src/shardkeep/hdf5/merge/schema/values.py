"""What has no rows: a scalar that is equal everywhere, or what each rank wrote once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from shardkeep.hdf5.storage.content_hash import value_crc
from shardkeep.hdf5.storage.dtypes import vlen_base
from shardkeep.hdf5.storage.names import PUT, RANKS

if TYPE_CHECKING:
    from shardkeep.hdf5.merge.plan import DatasetPlan

__all__ = ["RANKS", "crc_of_values", "write_values"]


def write_values(file: h5py.File, one: DatasetPlan, *, store: bool = True) -> h5py.Dataset:
    """Write one value as it is; or one row for each rank, and which ranks these are.

    Without `store` the dataset is created, but gets no values.
    """
    dataset: h5py.Dataset
    if one.way == "constant":
        value = one.values[0][1]
        if isinstance(value, h5py.Empty):
            dataset = file.create_dataset(one.name, data=value)
        else:
            dataset = file.create_dataset(one.name, _shape(value, one.dtype), one.dtype)
            if store and dataset.size:
                dataset[...] = value
        if one.put:
            dataset.attrs[PUT] = True
        return dataset
    values = [value for _, value in one.values]
    dataset = file.create_dataset(one.name, (len(values), *_shape(values[0], one.dtype)), one.dtype)
    for row, value in enumerate(values if store else ()):
        dataset[row] = value
    dataset.attrs[RANKS] = np.array([rank for rank, _ in one.values], "<i4")
    return dataset


def crc_of_values(one: DatasetPlan) -> int:
    """Return the hash that the dataset of `write_values` must have."""
    crc = 0
    for _, value in one.values[:1] if one.way == "constant" else one.values:
        crc = value_crc(value, one.dtype, crc)
    return crc


def _shape(value: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the shape of the dataset that h5py reads as this value."""
    shape: tuple[int, ...] = np.shape(value)
    if dtype.subdtype is not None:
        return shape[: len(shape) - len(dtype.shape)]
    # A scalar of variable length is read as its numbers, whose shape is not the dataset's.
    single = vlen_base(dtype) is not None and not np.asarray(value).dtype.hasobject
    return () if single else shape
