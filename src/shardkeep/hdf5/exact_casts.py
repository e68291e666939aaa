"""Whether numbers keep their values in another type, where their types alone do not tell."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["fits_as_python_numbers", "keeps_whole_numbers"]


def fits_as_python_numbers(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Python numbers have no width: a float may be rounded, though not to infinity; an int must fit."""
    kinds = array.dtype.kind + dtype.kind
    if kinds in ("ff", "fc", "cc"):
        with np.errstate(over="ignore"):
            return bool((np.isfinite(array.astype(dtype)) == np.isfinite(array)).all())
    if kinds in ("if", "ic", "uf", "uc"):
        return keeps_whole_numbers(array, dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return bool(int(array.min()) >= limits.min and int(array.max()) <= limits.max)
    return False


def keeps_whole_numbers(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Whether integers have a float each; NumPy calls int64 to float64 safe, which rounds above 2**53."""
    if array.dtype.kind not in "iu" or dtype.kind not in "fc" or np.finfo(dtype).nmant >= 63:
        return True
    limit = 1 << (np.finfo(dtype).nmant + 1)
    if int(array.max()) <= limit and int(array.min()) >= -limit:
        return True
    with np.errstate(over="ignore"):
        # Python compares floats and ints exactly; NumPy makes one of the other first.
        return bool((array.astype(dtype).real.astype(object) == array.astype(object)).all())
