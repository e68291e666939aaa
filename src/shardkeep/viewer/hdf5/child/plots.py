"""Curves of at most about 2,000 points, from the smallest and largest value of each part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardkeep.viewer.hdf5.child.values import Values

__all__ = ["can_plot", "plot_of"]

_PARTS = 1000
_BLOCK_BYTES = 4 * 1024 * 1024
_MOST_BYTES = 16 * 1024 * 1024


def can_plot(values: Values) -> list[str]:
    """Return the fields that can be plotted; one empty text for a plain one-dimensional dataset."""
    if len(values.shape) != 1:
        return []
    if values.dtype.names is not None:
        return [name for name in values.dtype.names if values.dtype[name].kind in "iufb"]
    return [""] if values.dtype.kind in "iufb" else []


def plot_of(values: Values, field: str, start: int, stop: int) -> dict[str, Any]:
    """Return a curve as `charts.js` draws it.

    Parameters
    ----------
    values : Values
        One-dimensional.
    field : str
        A result of `can_plot`.
    start, stop : int
        Rows.

    Returns
    -------
    dict
        ``x`` and ``series``; ``read`` is the number of values that were read, fewer than there are if the
        curve is sampled.
    """
    total = values.shape[0]
    start, stop = min(start, total), min(stop or total, total)
    count = max(0, stop - start)
    label = field or "value"
    if count <= 2 * _PARTS:
        rows = _numbers(values, field, start, stop)
        x = list(range(start, stop))
        return {"x": x, "series": [{"name": label, "values": _plain(rows)}], "xlabel": "row", "read": count}
    width = values.dtype.itemsize
    limits = np.linspace(start, stop, _PARTS + 1).astype(np.int64)
    low, high = np.full(_PARTS, np.nan), np.full(_PARTS, np.nan)
    read = 0
    if count * width <= _MOST_BYTES:
        parts_a_block = max(1, _BLOCK_BYTES * _PARTS // (count * width))
        for part in range(0, _PARTS, parts_a_block):
            end = min(_PARTS, part + parts_a_block)
            rows = _numbers(values, field, int(limits[part]), int(limits[end]))
            edges = limits[part:end] - limits[part]
            low[part:end] = np.fmin.reduceat(rows, edges)
            high[part:end] = np.fmax.reduceat(rows, edges)
            read += len(rows)
        used = np.arange(_PARTS)
    else:
        # HDF5 reads whole chunks.
        chunk_bytes = values.chunks[0] * width if values.chunks else 4096
        pieces = max(8, min(_PARTS, _MOST_BYTES // chunk_bytes))
        piece = max(
            1,
            min(count // _PARTS, _MOST_BYTES // pieces // width, values.chunks[0] if values.chunks else 4096),
        )
        used = np.linspace(0, _PARTS - 1, pieces).astype(np.int64)
        for part in used.tolist():
            rows = _numbers(values, field, int(limits[part]), int(limits[part]) + piece)
            low[part], high[part] = np.fmin.reduce(rows), np.fmax.reduce(rows)
            read += len(rows)
    return {
        "x": limits[used].tolist(),
        "series": [
            {"name": f"smallest {label}", "values": _plain(low[used])},
            {"name": f"largest {label}", "values": _plain(high[used])},
        ],
        "xlabel": "row",
        "read": read,
    }


def _numbers(values: Values, field: str, start: int, stop: int) -> Any:
    if start >= stop:
        return np.zeros(0)
    rows = values.read(slice(start, stop, 1))
    return (rows[field] if field else rows).astype(np.float64)


def _plain(numbers: Any) -> list[float | None]:
    return [float(one) if math.isfinite(one) else None for one in numbers]
