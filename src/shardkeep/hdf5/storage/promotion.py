"""The narrowest dtype that holds every value of several dtypes, or none.

=================================  =========================================================
integers, floats, complex numbers  the widest of their kind; an unsigned and a signed integer
                                   give the next wider signed one
integers and floats                a float whose mantissa holds every value of the integer
byte orders                        little-endian, where they differ
fixed strings                      the longest; UTF-8 if one is not ASCII
enums                              all members, if no name has two values and no value two names
compound types                     field by field, if names and order are equal
=================================  =========================================================
"""

from __future__ import annotations

import functools
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.storage.layout import same_dtype
from shardkeep.hdf5.storage.rows import TEXT, is_text

__all__ = ["converted_by_hdf5", "is_exact", "promoted"]

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


def converted_by_hdf5(dtype: _Dtype, wide: _Dtype) -> bool:
    """Whether HDF5 itself turns values of `dtype` into `wide` unchanged, as a virtual dataset must.

    It has no way from real to complex numbers or between character sets, and none that is safe
    between enums: a member that the other has not becomes another value.
    """
    if same_dtype(dtype, wide):
        return True
    if dtype.subdtype is not None and wide.subdtype is not None:
        return dtype.shape == wide.shape and converted_by_hdf5(dtype.base, wide.base)
    if dtype.names is not None and wide.names is not None:
        return all(converted_by_hdf5(dtype[name], wide[name]) for name in dtype.names)
    if _enum(dtype) is not None or _enum(wide) is not None:
        return False
    if dtype.kind == wide.kind == "S":
        return _encoding(dtype) == _encoding(wide)
    return (dtype.kind in "iuf" and wide.kind in "iuf") or dtype.kind == wide.kind == "c"


class _NoneHoldsBothError(Exception):
    pass


def _two(one: _Dtype, two: _Dtype) -> _Dtype:
    if same_dtype(one, two):
        return one
    if one.subdtype is not None or two.subdtype is not None:
        return _arrays(one, two)
    if one.names is not None or two.names is not None:
        return _compounds(one, two)
    enums = _enum(one), _enum(two)
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
    """Whether every number of one dtype is one of the other; NumPy calls int64 to float64 safe."""
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


def _enum(dtype: _Dtype) -> dict[str, int] | None:
    return None if dtype.kind == "b" else h5py.check_enum_dtype(dtype)


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
