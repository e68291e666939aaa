"""How each dataset goes into the result: its chunks as they are, its rows, or a pointer to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np

from shardkeep.hdf5.storage.layout import Layout

if TYPE_CHECKING:
    from shardkeep.hdf5.merge.plan import Part
    from shardkeep.hdf5.merge.schema.survey import Settled

__all__ = ["Way", "layout_of_result", "way_of"]

Way = Literal["chunks", "rows", "chunks and rows", "virtual", "constant", "ranks"]


def layout_of_result(one: Settled, parts: Sequence[Part], rows: int, *, virtual: bool) -> Layout:
    """Return the layout of a dataset of the result: that of the first source with rows, if it may be."""
    layout = parts[0].layout if parts else one.layout
    if one.converted:
        layout = replace(layout, type_code=_type_code(one.dtype), fill=b"")
    if one.row_shape is None or virtual:
        return layout
    return layout.for_result(one.dtype, one.row_shape, rows)


def way_of(
    one: Settled, parts: Sequence[Part], layout: Layout, rows: int, *, virtual: bool, keyed: bool
) -> tuple[Way, str]:
    """Return the way of a dataset, and why."""
    if one.row_shape is None:
        what = "written once" if one.put else "a scalar"
        if len(one.values) > 1:
            return "ranks", f"{what}, and not equal: one row for each of {len(one.values):,} ranks"
        return "constant", f"{what}, and equal in every source"
    if virtual:
        if not parts:
            return "rows", "there are none to point to"
        return "virtual", "points to the sources" + (" in the order of the key" if keyed else "")
    if keyed:
        return "rows", "put in the order of the key, one by one"
    if not layout.filters:
        return "rows", "copied and checked, since not compressed"
    return _chunk_way(one, parts, layout, rows)


def _chunk_way(one: Settled, parts: Sequence[Part], layout: Layout, rows: int) -> tuple[Way, str]:
    chunk_rows = layout.chunks[0] if layout.chunks else 1
    whole = other = 0
    why: set[str] = set()
    for part in parts:
        obstacle = layout.obstacle_to_chunk_copy(part.layout)
        if obstacle is None and part.chunks is None:
            obstacle = "has chunks whose places HDF5 does not report reliably"
        if obstacle is None and part.first_row % chunk_rows:
            obstacle = f"starts inside a chunk of {chunk_rows} rows"
        last = part.first_row + part.rows == rows
        if obstacle is not None:
            other += part.rows
            why.add(obstacle)
        elif part.rows % chunk_rows and not last:
            whole += part.rows // chunk_rows
            other += part.rows % chunk_rows
            why.add(f"ends inside a chunk of {chunk_rows} rows")
        else:
            whole += -(-part.rows // chunk_rows)
    if not other:
        return "chunks", "same type, chunks and filters in every source, and whole chunks"
    reason = f"{other} of {rows} rows are compressed anew, since a source " + " or ".join(sorted(why))
    return ("chunks and rows" if whole else "rows"), reason


def _type_code(dtype: np.dtype[Any]) -> bytes:
    code: bytes = h5py.h5t.py_create(dtype, logical=True).encode()
    return code
