"""Attributes that survive a merge: those that are equal in every source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.dataset_layout import same_dtype

__all__ = ["Attributes", "read_attributes"]

# Dimension scales refer to other objects of their file; H5Ocopy breaks them too (hdf5#6200).
_SCALES = {"CLASS", "DIMENSION_LIST", "NAME", "REFERENCE_LIST"}


@dataclass(frozen=True)
class Attributes:
    """Names with (value, dtype)."""

    values: dict[str, tuple[Any, np.dtype[Any]]] = field(default_factory=dict)

    def common(self, others: Attributes) -> tuple[Attributes, set[str]]:
        """Return what is equal in both, and the names of what is not."""
        equal = {
            name: mine
            for name, mine in self.values.items()
            if name in others.values and _equal(mine, others.values[name])
        }
        return Attributes(equal), (set(self.values) | set(others.values)) - set(equal)

    def write(self, target: h5py.Dataset) -> None:
        """Put them on an object."""
        for name, (value, dtype) in self.values.items():
            target.attrs.create(name, value, dtype=None if isinstance(value, h5py.Empty) else dtype)


def read_attributes(item: h5py.Dataset) -> tuple[Attributes, set[str]]:
    """Return the attributes of an object, and the names of those that cannot be kept."""
    values: dict[str, tuple[Any, np.dtype[Any]]] = {}
    unkept = set()
    is_scale = "CLASS" in item.attrs and item.attrs["CLASS"] == b"DIMENSION_SCALE"
    for name in item.attrs:
        dtype = item.attrs.get_id(name).dtype
        scale = name == "DIMENSION_LIST" or (is_scale and name in _SCALES)
        if scale or h5py.check_ref_dtype(dtype) is not None:
            unkept.add(name)
        else:
            values[name] = (item.attrs[name], dtype)
    return Attributes(values), unkept


def _equal(one: tuple[Any, np.dtype[Any]], two: tuple[Any, np.dtype[Any]]) -> bool:
    (value, dtype), (other, other_dtype) = one, two
    if not same_dtype(dtype, other_dtype):
        return False
    if isinstance(value, h5py.Empty) or isinstance(other, h5py.Empty):
        return bool(value == other)
    # Bytes and not values: a NaN equals itself here.
    mine, theirs = np.asarray(value), np.asarray(other)
    if mine.dtype.hasobject:
        return bool(np.array_equal(mine, theirs))
    return mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
