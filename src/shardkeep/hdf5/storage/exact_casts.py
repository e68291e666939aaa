"""Whether numbers keep their values in another type, where their types alone do not tell."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from shardkeep.errors import SchemaError

__all__ = ["fits_as_python_numbers", "keeps_whole_numbers", "refuse_rounding", "rounded_whole_number"]


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


def refuse_rounding(label: str, rows: Any, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Raise a `SchemaError` if an integer among Python numbers would be rounded; `rounded_whole_number`."""
    rounded = rounded_whole_number(rows, array, dtype)
    if rounded is not None:
        message = f"{label}: {rounded} would be rounded to {dtype}, since floats are among these numbers"
        raise SchemaError(f"{message} or no integer type holds all; append integers by themselves")


@functools.lru_cache(maxsize=64)
def _exact_up_to(one: np.dtype[Any], two: np.dtype[Any]) -> int:
    """Return up to which size both types have every integer."""
    return 1 << (min(np.finfo(one).nmant, np.finfo(two).nmant) + 1)


def rounded_whole_number(rows: Any, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> int | None:
    """Return the first integer among Python numbers that `dtype` would round; None if there is none.

    NumPy makes floats of a list in which integers and floats are mixed, or integers with and without a sign.

    Parameters
    ----------
    rows : sequence
        Numbers, or sequences and arrays of them.
    array : ndarray
        What NumPy makes of `rows`.
    dtype : dtype
        What is kept.
    """
    if array.dtype.kind not in "fc" or dtype.kind not in "fc":
        return None
    if type(rows) is list and set(map(type, rows)) == {float}:
        return None  # mostly; what follows costs as much as all else about an append
    limit = _exact_up_to(array.dtype, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        large = ~(np.abs(array) < limit)  # and what is not a number
        if not large.any():
            return None
        kept = array[large].astype(dtype).real.astype(object)
    objects = np.asarray(rows, dtype=object)
    if objects.shape != array.shape:  # of a type that NumPy reads in its own way
        return None
    for given, value in zip(objects[large], kept, strict=True):
        try:
            number = operator.index(given)
        except TypeError:
            continue
        if number != value:
            return number
    return None
