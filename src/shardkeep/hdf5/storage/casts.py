"""Casts between dtypes that keep every value: which exist, and which common dtype holds several.

A common dtype is:

=================================  =========================================================
integers, floats, complex numbers  the widest of their kind; an unsigned and a signed integer
                                   have the next wider signed one
integers and floats                a float whose mantissa holds every value of the integer
byte orders                        little-endian, where they differ
fixed strings                      the longest; UTF-8 if one is not ASCII
enums                              all members, if no name has two values and no value two names
compound types                     field by field, if names and order are equal
=================================  =========================================================
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.storage.dtypes import TEXT, enum_members, is_text, same_dtype

__all__ = [
    "fits",
    "fits_as_python_numbers",
    "is_exact",
    "keeps_whole_numbers",
    "promoted",
    "rounded_whole_number",
]

_Dtype = np.dtype[Any]


def promoted(dtypes: list[_Dtype]) -> _Dtype | None:
    """Return a dtype that every value of `dtypes` fits into unchanged; None if there is none.

    Examples
    --------
    >>> promoted([np.dtype("i4"), np.dtype("u4"), np.dtype("i1")])
    dtype('int64')
    >>> promoted([np.dtype("i2"), np.dtype("f4")]), promoted([np.dtype("i8"), np.dtype("f8")])
    (dtype('float32'), None)
    """
    try:
        return functools.reduce(_two, dtypes)
    except _NoneHoldsBothError:
        return None


class _NoneHoldsBothError(Exception):
    pass


def _two(one: _Dtype, two: _Dtype) -> _Dtype:
    if same_dtype(one, two):
        return one
    if one.subdtype is not None or two.subdtype is not None:
        return _arrays(one, two)
    if one.names is not None or two.names is not None:
        return _compounds(one, two)
    enums = enum_members(one), enum_members(two)
    if enums[0] is not None and enums[1] is not None:
        return _enums(one, two, enums[0], enums[1])
    if enums != (None, None) or "b" in (one.kind, two.kind):
        raise _NoneHoldsBothError
    if one.kind == two.kind == "S":
        return _strings(one, two)
    if one.kind in "iufc" and two.kind in "iufc":
        return _numbers(one, two)
    if is_text(one) and is_text(two):
        return TEXT  # ASCII text is UTF-8 text
    raise _NoneHoldsBothError


def _numbers(one: _Dtype, two: _Dtype) -> _Dtype:
    wide = np.result_type(one, two)
    if not all(is_exact(dtype, wide) for dtype in (one, two)):
        raise _NoneHoldsBothError
    # Of one size and kind in two byte orders; otherwise the native one is what result_type gives.
    return wide.newbyteorder("<") if one.newbyteorder("<") == two.newbyteorder("<") else wide


def is_exact(dtype: _Dtype, wide: _Dtype) -> bool:
    """Return whether every number of one dtype is one of the other; NumPy calls int64 to float64 safe."""
    if dtype.kind in "iu" and wide.kind in "fc":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        return bool(bits <= np.finfo(wide).nmant + 1)
    return bool(np.can_cast(dtype, wide, "safe"))


def _strings(one: _Dtype, two: _Dtype) -> _Dtype:
    encodings = {_encoding(one), _encoding(two)}
    length = max(one.itemsize, two.itemsize)
    if encodings == {"ascii"}:
        return np.dtype(f"S{length}")
    dtype: _Dtype = h5py.string_dtype("utf-8", length)
    return dtype


def _encoding(dtype: _Dtype) -> str:
    return str(getattr(h5py.check_string_dtype(dtype), "encoding", "ascii"))


def _enums(one: _Dtype, two: _Dtype, members: dict[str, int], others: dict[str, int]) -> _Dtype:
    both = {**members, **others}
    agree = all(others.get(name, value) == value for name, value in members.items())
    if not agree or len(set(both.values())) < len(both):
        raise _NoneHoldsBothError
    base = _numbers(np.dtype(one.str), np.dtype(two.str))
    if base.kind not in "iu":
        raise _NoneHoldsBothError
    dtype: _Dtype = h5py.enum_dtype(both, basetype=base)
    return dtype


def _arrays(one: _Dtype, two: _Dtype) -> _Dtype:
    if one.subdtype is None or two.subdtype is None or one.shape != two.shape:
        raise _NoneHoldsBothError
    return np.dtype((_two(one.base, two.base), one.shape))


def _compounds(one: _Dtype, two: _Dtype) -> _Dtype:
    if one.names is None or one.names != two.names:
        raise _NoneHoldsBothError
    return np.dtype([(name, _two(one[name], two[name])) for name in one.names])


def fits(source: np.dtype[Any], virtual: np.dtype[Any]) -> bool:
    """Return whether HDF5 shows every value of a source's type unchanged in a virtual dataset's type.

    It has no conversion from real to complex numbers or between character sets, and none that is safe between
    enums: a member that only one has becomes another value.
    """
    ours, theirs = h5py.check_enum_dtype(virtual), h5py.check_enum_dtype(source)
    if ours is not None or theirs is not None:
        return bool(ours == theirs)
    text, other = h5py.check_string_dtype(virtual), h5py.check_string_dtype(source)
    if text is not None or other is not None:
        if text is None or other is None or text.encoding != other.encoding:
            return False
        return text.length == other.length or (
            None not in (text.length, other.length) and text.length >= other.length
        )
    if virtual.names is not None or source.names is not None:
        return virtual.names == source.names and all(
            fits(source[name], virtual[name]) for name in virtual.names or ()
        )
    if virtual.subdtype is not None or source.subdtype is not None:
        return virtual.shape == source.shape and fits(source.base, virtual.base)
    if virtual.hasobject or source.hasobject:
        # NumPy calls all of them objects, and equal.
        bases = h5py.check_vlen_dtype(source), h5py.check_vlen_dtype(virtual)
        references = h5py.check_ref_dtype(source), h5py.check_ref_dtype(virtual)
        return bool(source == virtual and bases[0] == bases[1] and references[0] == references[1])
    return (source.kind == "c" or virtual.kind != "c") and is_exact(source, virtual)


def fits_as_python_numbers(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Return whether Python numbers fit into a dtype.

    They have no width: a float may be rounded, though not to infinity; an int must be kept.
    """
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
    """Return whether each integer is kept as a float; NumPy calls int64 to float64 safe, but it rounds."""
    if array.dtype.kind not in "iu" or dtype.kind not in "fc" or np.finfo(dtype).nmant >= 63:
        return True
    limit = 1 << (np.finfo(dtype).nmant + 1)
    if int(array.max()) <= limit and int(array.min()) >= -limit:
        return True
    with np.errstate(over="ignore"):
        # Python compares floats and ints exactly; NumPy makes one of the other first.
        return bool((array.astype(dtype).real.astype(object) == array.astype(object)).all())


@functools.lru_cache(maxsize=64)
def _exact_up_to(one: np.dtype[Any], two: np.dtype[Any]) -> int:
    """Return the largest integer up to which both float types have every integer."""
    return 1 << (min(np.finfo(one).nmant, np.finfo(two).nmant) + 1)


def rounded_whole_number(rows: Any, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> int | None:
    """Return the first integer among Python numbers that `dtype` would round; None if there is none.

    NumPy converts a list in which integers and floats, or signed and unsigned integers, are mixed to floats.

    Parameters
    ----------
    rows : sequence
        Numbers, or sequences and arrays of them.
    array : ndarray
        Result of ``numpy.asarray(rows)``.
    dtype : dtype
        Type in which the numbers are kept.
    """
    if array.dtype.kind not in "fc" or dtype.kind not in "fc":
        return None
    if type(rows) is list and set(map(type, rows)) == {float}:
        return None  # the usual case: the check below costs as much as the rest of an append
    limit = _exact_up_to(array.dtype, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        large = ~(np.abs(array) < limit)  # also true for NaN
        if not large.any():
            return None
        kept = array[large].astype(dtype).real.astype(object)
    objects = np.asarray(rows, dtype=object)
    if objects.shape != array.shape:  # a type with its own conversion to an array
        return None
    for given, value in zip(objects[large], kept, strict=True):
        try:
            number = operator.index(given)
        except TypeError:
            continue
        if number != value:
            return number
    return None
