"""Empty arrays of MATLAB files (version 7.3), whose datasets hold the dimensions in place of values."""

from __future__ import annotations

import h5py
import numpy as np

__all__ = ["empty_shape"]

_EMPTY = b"MATLAB_empty"


def empty_shape(item: h5py.h5d.DatasetID) -> tuple[int, ...] | None:
    """Return the shape of an empty array, as HDF5 orders its axes; None for every other dataset.

    MATLAB writes its dimensions, first to last, and the attribute ``MATLAB_empty`` with the value 1. The axes
    of all its datasets are in the opposite order.
    """
    if not h5py.h5a.exists(item, _EMPTY) or item.rank != 1:
        return None
    flag = np.zeros(h5py.h5a.open(item, _EMPTY).shape, "u1")
    h5py.h5a.open(item, _EMPTY).read(flag)
    if not flag.size or not flag.all():
        return None
    dimensions = np.zeros(item.shape, "u8")
    item.read(h5py.h5s.ALL, h5py.h5s.ALL, dimensions)
    return tuple(dimensions[::-1].tolist())
