"""Some rows of a dataset as texts, with their origin if the file was merged."""

from __future__ import annotations

import bisect
import math
import os
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.merge.provenance import PROVENANCE
from shardkeep.hdf5.storage.names import is_own_table
from shardkeep.viewer.hdf5.child.cells import cell
from shardkeep.viewer.hdf5.child.limits import COLUMNS, ROWS
from shardkeep.viewer.hdf5.child.opening import OpenFile, shown_path
from shardkeep.viewer.hdf5.child.values import Values

__all__ = ["rows_of"]

_MOST_BYTES = 16 * 1024 * 1024
_VALUES = 16


def rows_of(file: OpenFile, values: Values, path: str, first: int, column: int) -> dict[str, Any]:
    """Return some rows.

    Parameters
    ----------
    file : OpenFile
    values : Values
    path : str
        Path of the dataset.
    first : int
        First row.
    column : int
        First column.
    """
    if not values.shape:
        value = values.read()
        columns, cells = _fields(values.dtype, column)
        page = {"columns": columns, "rows": [cells(value)], "first": 0, "total": 1, "column": column}
        return {**page, "is_scalar": True, "total_columns": 1, "origins": None, "is_number": False}
    total = values.shape[0]
    first = min(first, max(0, total - 1))
    inner = values.shape[1:]
    if len(inner) == 1:
        column = min(column, max(0, inner[0] - 1))
        selection: tuple[slice, ...] = (slice(column, min(inner[0], column + COLUMNS), 1),)
        columns = [f"{one:,}" for one in range(selection[0].start, selection[0].stop)]
        total_columns = inner[0]

        def cells(row: Any) -> list[str]:
            return [cell(one, values.dtype) for one in row]

    elif inner:
        # Of an image or a larger array: the first values of its last axis.
        selection = (*(slice(0, min(1, n), 1) for n in inner[:-1]), slice(0, min(_VALUES, inner[-1]), 1))
        columns, total_columns = ["first values"], 1

        def cells(row: Any) -> list[str]:
            shown = ", ".join(cell(one, values.dtype) for one in np.reshape(row, -1))
            return [f"{shown}, … ({'×'.join(f'{n:,}' for n in inner)} values)"]

    else:
        selection = ()
        columns, cells = _fields(values.dtype, column)
        total_columns = len(values.dtype.names or "x")
    wide = max(1, math.prod(len(range(one.start, one.stop)) for one in selection) * values.dtype.itemsize)
    stop = min(total, first + max(1, min(ROWS, _MOST_BYTES // wide)))
    # Values of variable length may have any size: one row after the other, until they are many.
    step = 1 if values.dtype.hasobject else ROWS
    found: list[list[str]] = []
    read_bytes = 0
    for at in range(first, stop, step):
        for row in values.read(slice(at, min(stop, at + step), 1), *selection):
            found.append(cells(row))
            read_bytes += _size(row)
        if read_bytes > _MOST_BYTES:
            break
    return {
        "columns": columns,
        "rows": found,
        "first": first,
        "total": total,
        "column": column,
        "total_columns": total_columns,
        "origins": _origins(file, path.strip("/"), first, len(found)),
        "is_scalar": False,
        "is_number": values.dtype.kind in "iuf",
    }


def _fields(dtype: np.dtype[Any], column: int) -> tuple[list[str], Any]:
    """Return names of columns, and a function from a row to its cells."""
    if dtype.names is None:
        return ["value"], lambda row: [cell(row, dtype)]
    names = dtype.names[column : column + COLUMNS]
    return list(names), lambda row: [cell(row[name], dtype[name]) for name in names]


def _size(row: Any) -> int:
    if isinstance(row, np.ndarray) and row.dtype.hasobject:
        return sum(_size(one) for one in row.flat)
    return (
        row.nbytes if isinstance(row, np.ndarray | np.generic) else len(row) if hasattr(row, "__len__") else 8
    )


def _origins(file: OpenFile, name: str, first: int, count: int) -> list[dict[str, Any]] | None:
    """Return rank, file and row of each row; None for a dataset that no merge wrote.

    The table has the runs of each dataset together and in their order: the first run is found by bisection.
    """
    if name == PROVENANCE or not count or not file.fid.links.exists(PROVENANCE.encode()):
        return None
    if not is_own_table(file.fid, PROVENANCE):
        return None
    table = h5py.File(file.fid)[PROVENANCE]
    wanted = name.encode("utf-8", "surrogateescape")
    begin, length = 0, len(table)
    while begin < length and _text(table[begin]["dataset"]) != wanted:
        other = _text(table[begin]["dataset"])
        begin = _first(begin, length, lambda i, other=other: _text(table[i]["dataset"]) != other)

    def ends_later(number: int) -> bool:
        row = table[number]
        return _text(row["dataset"]) != wanted or int(row["first_row"] + row["rows"]) > first

    run = _first(begin, length, ends_later)
    root = _text(table.attrs.get("root", b""))
    found: list[dict[str, Any]] = []
    while run < length and len(found) < count:
        row = table[run]
        if _text(row["dataset"]) != wanted:
            break
        path = shown_path(file, os.path.join(os.fsdecode(root), os.fsdecode(_text(row["file"]))))
        at = first + len(found) - int(row["first_row"])
        for inside in range(at, min(int(row["rows"]), at + count - len(found))):
            found.append(
                {
                    "rank": int(row["rank"]),
                    "step": int(row["step"]),
                    "file": os.fsdecode(_text(row["file"])),
                    "row": int(row["source_row"]) + inside,
                    "path": path,
                }
            )
        run += 1
    return found if len(found) == count else None


def _first(low: int, high: int, holds: Any) -> int:
    """Return the first number in ``[low, high)`` from which on a condition holds; `high` if there is none."""
    return bisect.bisect_left(range(high), True, low, key=holds)


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
