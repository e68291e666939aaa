"""Correction of the byte order of variable-length numbers, which h5py loses when it reads."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.storage.dtypes import flat_dtype

__all__ = ["in_stored_order", "read_value"]


def in_stored_order(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return values that h5py has read, with the stored byte order of variable-length numbers.

    Parameters
    ----------
    values : ndarray or scalar
        An array may be changed in place.
    dtype : dtype
        Of the dataset or attribute.
    """
    dtype = flat_dtype(dtype).base
    if dtype.names is not None:
        if isinstance(values, np.ndarray | np.void):
            for name in dtype.names:
                field = dtype[name].base
                if field.hasobject and (field.names is not None or _swapped(field) is not None):
                    values[name] = in_stored_order(values[name], field)
        return values
    base = _swapped(dtype)
    if base is None or isinstance(values, h5py.Empty):
        return values
    if not values.dtype.hasobject:
        return values.view(base)  # one value of variable length
    for i, value in enumerate(values.flat):
        if isinstance(value, np.ndarray):
            values.flat[i] = value.view(base)
    return values


def _swapped(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    base = h5py.check_vlen_dtype(dtype)
    return base if isinstance(base, np.dtype) and not base.isnative else None


def read_value(dataset: h5py.Dataset) -> Any:
    """Return the whole value of a dataset without a row axis."""
    if dataset.dtype.hasobject:
        refuse_damage(dataset.file.filename, rows=True)
    return in_stored_order(dataset[()], dataset.dtype)
