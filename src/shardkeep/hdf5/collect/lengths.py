"""What is too long for a message: rows and names that are refused before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.hdf5.collect.payload import encode_rows
from shardkeep.hdf5.collect.schema import Schema
from shardkeep.hdf5.collect.slots import SLOT_BYTES

__all__ = ["check_chunk", "check_length", "check_name_length", "check_value_length"]

# Of a message, beside one row: its headers, and the longest name.
_OVERHEAD_BYTES = 70_000
# The table of a batch has 16 bits for it.
_LONGEST_NAME_BYTES = 65_535


def check_name_length(name: str) -> None:
    """Raise `SchemaError` for a name that no message can hold."""
    if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME_BYTES:
        message = f"{name[:40]!r}… is a name of more than {_LONGEST_NAME_BYTES} bytes"
        raise SchemaError(f"{message}: choose a shorter one")


def check_chunk(schema: Schema, memory_bytes: int) -> None:
    """Raise `SchemaError` for a dataset whose chunks do not fit into a collector's memory."""
    # Rows of fixed size that are not compressed are written at their places, whatever the chunk.
    held = schema.chunk_rows * schema.row_bytes if schema.filters or schema.dtype.hasobject else 0
    if held > memory_bytes // 4:
        message = f"dataset {schema.name!r}: chunks of {schema.chunk_rows:,} rows have {held:,} bytes"
        raise SchemaError(
            f"{message}: give it a smaller chunk_rows=, or the collector {held * 4 // 10**6 + 1} MB of memory"
        )


def check_value_length(what: str, data: np.ndarray[Any, Any], largest: int) -> None:
    """Raise `SchemaError` for a value whose `data` fit into no message."""
    needed = len(data) + _OVERHEAD_BYTES
    if largest and needed > largest:
        message = f"{what} of {len(data):,} bytes is too long for this collector"
        raise SchemaError(f"{message}: give it {needed * 8 // 10**6 + 1} MB of memory, or append rows")


def check_length(name: str, rows: np.ndarray[Any, Any], largest: int) -> int:
    """Raise `SchemaError` for a row that fits into no message; return the bytes of text, or a bit more.

    Parameters
    ----------
    name : str
    rows : ndarray, shape (n, ...)
    largest : int
        Bytes of the longest message that the collector takes; 0 if that is not known yet.
    """
    text_bytes = longest = 0
    if not rows.dtype.hasobject:
        longest = rows.dtype.itemsize * math.prod(rows.shape[1:])
    elif len(rows):
        if rows.dtype.names is None:
            text_bytes = 4 * rows.size + 4 * sum(map(len, rows.ravel().tolist()))
        if rows.dtype.names is not None or text_bytes > SLOT_BYTES:
            sizes = [len(encode_rows(rows[place : place + 1])) for place in range(len(rows))]
            text_bytes, longest = sum(sizes), max(sizes)
    needed = longest + _OVERHEAD_BYTES
    if largest and needed > largest:
        message = f"dataset {name!r}: a row of {longest:,} bytes is too long for this collector"
        raise SchemaError(f"{message}: give it {needed * 8 // 10**6 + 1} MB of memory")
    return text_bytes
