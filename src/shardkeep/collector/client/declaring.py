"""What `Client.declare` is given, as a `Schema`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardkeep.collector.protocol.schema import FilterSpec, Schema
from shardkeep.errors import PlanError, SchemaError
from shardkeep.hdf5.storage.dtypes import TEXT, is_text
from shardkeep.hdf5.storage.layout import chunk_rows_of
from shardkeep.hdf5.storage.names import check_name
from shardkeep.hdf5.storage.rows import as_first_rows

__all__ = ["make_schema"]


def make_schema(
    name: str,
    dtype: Any,
    row_shape: tuple[int, ...],
    rows: int | None,
    chunk_rows: int | None,
    compression: str | None,
    compression_level: int | None,
    shuffle: bool | None,
) -> Schema:
    """Check what was given and put it together; raises `SchemaError` and `PlanError`."""
    check_name(name, ())
    try:
        kind = TEXT if dtype is str else np.dtype(dtype)
        kind = TEXT if kind.kind == "U" else kind
        shape = tuple(int(size) for size in row_shape)
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"dataset {name!r}: dtype={dtype!r}, row_shape={row_shape!r} make no rows ({error})"
        ) from None
    if not is_text(kind):
        as_first_rows(name, np.zeros((0, *shape), kind))
    for what, value in (("rows", rows), ("chunk_rows", chunk_rows)):
        if value is not None and (type(value) is not int or value < (0 if what == "rows" else 1)):
            raise SchemaError(f"dataset {name!r}: {what}={value!r} is no number of rows")
    usual = chunk_rows_of(kind, shape)
    filters = _filters(compression, compression_level, shuffle, kind)
    return Schema(
        name,
        kind,
        shape,
        min(chunk_rows or usual, 1 << 32) if usual < 1 << 40 else 1024,
        filters,
        rows,
    )


def _filters(
    compression: Any, level: int | None, shuffle: bool | None, dtype: np.dtype[Any]
) -> tuple[FilterSpec, ...]:
    if compression is None:
        if level is not None or shuffle:
            raise PlanError("a level or shuffle without compression does nothing: give compression= too")
        return ()
    from shardkeep.hdf5.storage.compression import compression_filters

    filters: tuple[FilterSpec, ...] = compression_filters(compression, level, shuffle, dtype)
    return filters
