"""Conversion of what a program passes as rows or values into arrays that HDF5 keeps without loss."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.casts import fits_as_python_numbers, keeps_whole_numbers, rounded_whole_number
from shardkeep.hdf5.storage.dtypes import TEXT, check_storable, describe, enum_members, is_text, vlen_base
from shardkeep.hdf5.storage.tensors import as_numpy, conversion_advice

__all__ = ["as_first_rows", "as_more_rows", "as_value"]


def as_value(label: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a scalar or an array of any shape, as HDF5 will keep it.

    Errors begin with `label`, as in "dataset 'x'".

    Raises
    ------
    SchemaError
        HDF5 has no such type.
    """
    array = _as_array(label, value)
    check_storable(label, array.dtype)
    return array.copy()


def as_first_rows(name: str, rows: Any) -> np.ndarray[Any, Any]:
    """Return the rows that define a dataset, as HDF5 will keep them; a scalar is one row.

    Raises
    ------
    SchemaError
        HDF5 has no such type.
    """
    label = f"dataset {name!r}"
    rows = as_numpy(label, rows)
    if _is_ragged(rows) or _holds_bytes(rows):
        base = np.asarray(rows.values).dtype if _is_ragged(rows) else np.dtype("u1")
        if base.kind == "O":
            raise SchemaError(
                f"{label}: HDF5 has no rows of several byte strings; append rows.values and rows.lengths to"
                " two datasets"
            )
        return _as_ragged(name, rows, h5py.vlen_dtype(base), base)
    array = _with_row_axis(_as_array(label, rows))
    check_storable(label, array.dtype)
    return array


def as_more_rows(
    name: str, rows: Any, dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return rows for a dataset that exists, in its dtype; a scalar is one row.

    Raises
    ------
    SchemaError
        The row shape differs, or a value could not be kept. Shows both sides.
    """
    label = f"dataset {name!r}"
    rows = as_numpy(label, rows)
    base = vlen_base(dtype)
    if base is not None:
        return _as_ragged(name, rows, dtype, base)
    if _is_ragged(rows):
        have = describe(dtype, row_shape)
        raise SchemaError(f"{label} has {have}, these are rows of different lengths: use another name")
    if _holds_bytes(rows):
        rows = _decoded(label, rows) if is_text(dtype) else rows.tolist()
    array = _with_row_axis(_as_array(label, rows, dtype))
    if array.shape[1:] != row_shape:
        raise _mismatch(name, array, dtype, row_shape)
    members, own_members = enum_members(dtype), enum_members(array.dtype)
    if array.dtype == dtype and own_members == members:
        return array
    if is_text(dtype) or is_text(array.dtype):
        is_cast = is_text(dtype) and (is_text(array.dtype) or array.size == 0)
    elif members is not None:
        is_cast = own_members is None and (array.size == 0 or array.dtype.kind in "iu")
        if is_cast:
            unknown = array[~np.isin(array, list(members.values()))]
            if unknown.size:
                have = describe(dtype, row_shape)
                message = f"dataset {name!r} has {have}, and {unknown.flat[0]} is not one of its members"
                raise SchemaError(f"{message}: convert it")
    elif array.dtype.names != dtype.names:
        is_cast = False
    else:
        is_cast = (
            array.size == 0
            or (np.can_cast(array.dtype, dtype, "safe") and keeps_whole_numbers(array, dtype))
            or (not hasattr(rows, "dtype") and fits_as_python_numbers(array, dtype))
        )
    if not is_cast:
        raise _mismatch(name, array, dtype, row_shape)
    return array.astype(dtype)


def _as_array(label: str, rows: Any, dtype: np.dtype[Any] | None = None) -> np.ndarray[Any, Any]:
    if isinstance(rows, np.ma.MaskedArray):
        if np.ma.is_masked(rows):
            raise SchemaError(f"{label}: masked values cannot be kept; append rows.filled(…)")
        rows = rows.data
    try:
        array = np.asarray(rows)
    except (ValueError, TypeError, RuntimeError) as error:  # a tensor with a gradient, or on a device
        reason = first_line(error)
        advice = conversion_advice(rows) or "pass a NumPy array"
        if "inhomogeneous" in reason:
            advice = "use one shape for all, or declare the dataset with dtype=h5py.vlen_dtype(…)"
        raise SchemaError(f"{label}: these rows do not form an array ({reason}): {advice}") from None
    if array.dtype.kind in "fc" and not hasattr(rows, "dtype"):
        kept = array.dtype if dtype is None else dtype
        rounded = rounded_whole_number(rows, array, kept)
        if rounded is not None:
            message = f"{label}: {rounded} would be rounded to {kept}, since floats are among these numbers"
            raise SchemaError(f"{message} or no integer type holds all; append integers by themselves")
    if array.dtype.kind in "OUT":
        return _as_text(label, array if hasattr(rows, "dtype") else np.asarray(rows, dtype=object))
    if array.dtype.kind == "S" and not hasattr(rows, "dtype"):
        _check_bytes(label, np.asarray(rows, dtype=object), array)
    if array.dtype.names is not None and array.dtype.hasobject:
        return _with_text_fields(label, array)
    return array


def _with_row_axis(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rows as they are, and a scalar as one row."""
    return array if array.ndim else array[None]


def _as_ragged(name: str, rows: Any, dtype: np.dtype[Any], base: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return one array of `base` for each row."""
    if _is_ragged(rows):
        values = np.asarray(rows.values)
        given = [values[start:stop] for start, stop in pairwise(np.asarray(rows.offsets).tolist())]
    else:
        try:
            given = list(rows)
        except TypeError:
            raise _not_ragged(name) from None
    result = np.empty(len(given), dtype)
    for i, row in enumerate(given):
        if isinstance(row, bytes) and base == np.uint8:
            row = np.frombuffer(row, np.uint8)
        if np.isscalar(row):
            raise _not_ragged(name)
        array = as_more_rows(name, row, base, ())
        result[i] = array.copy() if array is row else array
    return result


def _is_ragged(rows: Any) -> bool:
    """Return whether these are a `Ragged`, or as one of an adapter: values, and the offsets of the rows."""
    values, offsets = getattr(rows, "values", None), getattr(rows, "offsets", None)
    return values is not None and offsets is not None and not callable(values)


def _holds_bytes(rows: Any) -> bool:
    """Return whether these are byte strings of any length, as a `Loader` delivers them."""
    return (
        isinstance(rows, np.ndarray)
        and rows.dtype == object
        and rows.ndim == 1
        and bool(rows.size)
        and all(type(row) is bytes for row in rows.tolist())
    )


def _decoded(label: str, rows: np.ndarray[Any, Any]) -> list[str]:
    try:
        return [row.decode() for row in rows.tolist()]
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{label} has text, and {error.object!r:.60} is not UTF-8: use another name"
        ) from None


def _not_ragged(name: str) -> SchemaError:
    message = f"dataset {name!r}: a row of variable length is a sequence, not a single value"
    return SchemaError(f"{message}; append [[value]] for one row")


def _with_text_fields(label: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = array.copy()
    for field in array.dtype.names or ():
        if is_text(array.dtype[field]):
            values = [v.decode() if isinstance(v, bytes) else v for v in array[field].ravel().tolist()]
            result[field] = _as_text(label, np.array([*values, None], object)[:-1].reshape(array.shape))
    return result


def _as_text(label: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Encode strings to UTF-8 bytes, as h5py needs them."""
    result = np.empty(array.shape, dtype=TEXT)
    flat = result.reshape(-1)
    for i, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, str):
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
                shown = value if value.bit_length() < 200 else f"an integer of {value.bit_length()} bits"
                raise SchemaError(f"{label}: {shown} has more than 64 bits: append it as a float, or as text")
            kind = type(value).__name__
            message = f"{label}: object rows hold {kind}, only str can be kept; use an array of numbers"
            if kind == "bytes":
                message = f"{label}: byte strings are kept as rows of one dimension; append each column alone"
            raise SchemaError(message)
        try:
            flat[i] = value.encode()
        except UnicodeEncodeError:
            raise SchemaError(f"{label}: {value!r} is not Unicode text; append it as bytes") from None
        if "\0" in value:
            raise SchemaError(f"{label}: HDF5 text ends at a NUL, as in {value!r}; append uint8 arrays")
    return result


def _check_bytes(label: str, given: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> None:
    for before, after in zip(given.ravel().tolist(), array.ravel().tolist(), strict=True):
        if before != after:
            message = f"{label}: fixed bytes lose trailing NULs, as in {before!r}; append uint8 arrays"
            raise SchemaError(message)


def _mismatch(
    name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> SchemaError:
    got, have = describe(array.dtype, array.shape[1:]), describe(dtype, row_shape)
    return SchemaError(f"dataset {name!r} has {have}, these are {got}: convert them, or use another name")
