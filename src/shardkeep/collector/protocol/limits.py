"""Limits of rows, values and names, checked before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardkeep.collector.protocol.payload import TEXT_BYTES, encode_rows, texts_in
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.errors import SchemaError

__all__ = ["MOST_NUMBERED_ROWS", "check_chunk", "check_length", "check_name_length", "check_value_length"]

# The rest of a message with one row: its headers, and the longest name.
_OVERHEAD_BYTES = 70_000
# The table of a batch has 16 bits for the length.
_LONGEST_NAME_BYTES = 65_535
MOST_NUMBERED_ROWS = 4096
"""The most rows by number in one part: each may be in another chunk, which HDF5 has to make first."""

# The collector keeps the whole name of each group that an object is in.
_MOST_GROUPS = 100


def check_name_length(name: str) -> None:
    """Raise `SchemaError` if a name is too long for a message."""
    if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME_BYTES:
        message = f"{name[:40]!r}… is a name of more than {_LONGEST_NAME_BYTES} bytes"
        raise SchemaError(f"{message}: choose a shorter one")
    if name.count("/") > _MOST_GROUPS:
        raise SchemaError(f"{name[:40]!r}… is in more than {_MOST_GROUPS} groups: choose a shorter name")


def check_chunk(schema: Schema, memory_bytes: int) -> None:
    """Raise `SchemaError` if chunks of a dataset do not fit into the memory of a collector."""
    # Rows of fixed size that are not compressed are written without the chunk in memory. HDF5 copies a chunk
    # of other rows twice, with 16 bytes for each text.
    held = schema.chunk_rows * schema.row_bytes if schema.filters or schema.dtype.hasobject else 0
    if schema.dtype.hasobject:
        texts = texts_in(schema.dtype) * math.prod(schema.row_shape)
        held = max(held + 8 * schema.chunk_rows * texts, TEXT_BYTES * texts)
    if held > memory_bytes // 8:
        message = f"dataset {schema.name!r}: chunks of {schema.chunk_rows:,} rows have {held:,} bytes"
        raise SchemaError(
            f"{message}: use a smaller chunk_rows=, or a collector with {held * 8 // 10**6 + 1} MB of memory"
        )


def check_value_length(what: str, data: np.ndarray[Any, Any], largest: int) -> None:
    """Raise `SchemaError` if a value is too long for a message of the collector."""
    _check_message(what, len(data), largest, ", or append rows")


def check_length(name: str, rows: np.ndarray[Any, Any], largest: int) -> int:
    """Raise `SchemaError` if a row is too long for a message; return an upper bound of the bytes of text.

    Parameters
    ----------
    name : str
    rows : ndarray, shape (n, ...)
    largest : int
        The longest message that the collector accepts, in bytes; 0 if that is not known yet.
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
    _check_message(f"dataset {name!r}: a row", longest, largest)
    return text_bytes


def _check_message(what: str, size: int, largest: int, advice: str = "") -> None:
    needed = size + _OVERHEAD_BYTES
    if largest and needed > largest:
        message = f"{what} of {size:,} bytes is too long for this collector"
        raise SchemaError(f"{message}: start it with {needed * 8 // 10**6 + 1} MB of memory{advice}")
