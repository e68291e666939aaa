"""Columns of values as `_core.FrameWriter.write_rows` takes them: a row of each is one Example."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.tfrecord.example.arrow_columns import arrow_columns
from shardkeep.tfrecord.example.example import feature_values, named_items
from shardkeep.tfrecord.example.ragged import Ragged

__all__ = ["as_columns"]


def as_columns(columns: Any) -> tuple[list[str], list[Any], int]:
    """Return (names, columns, rows) for `_core.FrameWriter.write_rows`.

    Parameters
    ----------
    columns : mapping of str to array, list or Ragged, or Arrow table
        Columns with the same number of rows along the first axis; see `Writer.write_examples`.

    Raises
    ------
    SchemaError
        The mapping is empty, a value has no row axis, columns have different lengths, or an Example cannot
        hold the values.

    Examples
    --------
    >>> as_columns({"x": np.arange(4).reshape(2, 2), "name": [b"a", b"b"]})
    (['x', 'name'], [(array([0, 1, 2, 3]), 2), ([b'a', b'b'], 1)], 2)
    """
    if hasattr(columns, "__arrow_c_stream__") and not hasattr(columns, "items"):
        columns = arrow_columns(columns)
    if not named_items("columns", columns):
        raise SchemaError("no columns: pass at least one feature")
    names: list[str] = []
    parts: list[Any] = []
    rows: dict[str, int] = {}
    for name, column in columns.items():
        part, rows[name] = _ragged(name, column) if isinstance(column, Ragged) else _dense(name, column)
        names.append(name)
        parts.append(part)
    if len(set(rows.values())) > 1:
        first, other = next((a, b) for a in rows for b in rows if rows[a] != rows[b])
        raise SchemaError(
            f"column {first!r} has {rows[first]} rows and column {other!r} {rows[other]};"
            " pass columns of one length"
        )
    return names, parts, rows[names[0]]


def _ragged(name: str, column: Ragged) -> tuple[tuple[Any, Any], int]:
    offsets = np.ascontiguousarray(column.offsets, dtype=np.int64)
    ascending = offsets.ndim == 1 and len(offsets) and offsets[0] >= 0 and bool(np.all(np.diff(offsets) >= 0))
    if not ascending or offsets[-1] > len(column.values):
        raise SchemaError(f"column {name!r}: the offsets must ascend from 0 to the number of values")
    return (feature_values(f"column {name!r}", column.values), offsets), len(offsets) - 1


def _dense(name: str, column: Any) -> tuple[tuple[Any, int], int]:
    alone = isinstance(column, (str, bytes, bytearray)) or not hasattr(column, "__len__")
    array = column if isinstance(column, np.ndarray) else np.asarray(0) if alone else _as_array(name, column)
    if array.ndim == 0:
        raise SchemaError(f"column {name!r}: a single value has no row axis; pass [value] for one row")
    width = int(np.prod(array.shape[1:], dtype=np.int64))
    return (feature_values(f"column {name!r}", array), width), len(array)


def _as_array(name: str, column: Any) -> np.ndarray[Any, Any]:
    values = list(column)
    if values and isinstance(values[0], (bytes, bytearray, memoryview, str)):
        array = np.empty(len(values), object)  # np.array would remove NULs at the end of byte strings
        array[:] = values
        return array
    try:
        array = np.asarray(values)
    except ValueError:
        raise SchemaError(f"column {name!r}: rows of different lengths; pass a Ragged") from None
    # NumPy makes texts of numbers among texts, and removes NULs at the end of byte strings.
    return np.asarray(values, object) if array.dtype.kind in "SU" else array
