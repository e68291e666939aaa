"""What is too long for a message: rows and names that are refused before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardkeep.collector.protocol.payload import TEXT_BYTES, encode_rows, texts_in
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.errors import SchemaError

__all__ = ["MOST_NUMBERED_ROWS", "check_chunk", "check_length", "check_name_length", "check_value_length"]

# Of a message, beside one row: its headers, and the longest name.
_OVERHEAD_BYTES = 70_000
# The table of a batch has 16 bits for it.
_LONGEST_NAME_BYTES = 65_535
MOST_NUMBERED_ROWS = 4096
"""Rows by number in one part: each may be a change by itself, in a chunk that HDF5 has to make first."""

# Of each group that an object is in, the collector keeps the whole name.
_MOST_GROUPS = 100


def check_name_length(name: str) -> None:
    """Raise `SchemaError` for a name that no message can hold."""
    if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME_BYTES:
        message = f"{name[:40]!r}… is a name of more than {_LONGEST_NAME_BYTES} bytes"
        raise SchemaError(f"{message}: choose a shorter one")
    if name.count("/") > _MOST_GROUPS:
        raise SchemaError(f"{name[:40]!r}… is in more than {_MOST_GROUPS} groups: choose a shorter name")


def check_chunk(schema: Schema, memory_bytes: int) -> None:
    """Raise `SchemaError` for a dataset whose chunks do not fit into a collector's memory."""
    # Rows of fixed size that are not compressed are written at their places, whatever the chunk. HDF5 copies
    # a chunk of others twice, and has 16 bytes of each text in it.
    held = schema.chunk_rows * schema.row_bytes if schema.filters or schema.dtype.hasobject else 0
    if schema.dtype.hasobject:
        texts = texts_in(schema.dtype) * math.prod(schema.row_shape)
        held = max(held + 8 * schema.chunk_rows * texts, TEXT_BYTES * texts)
    if held > memory_bytes // 8:
        message = f"dataset {schema.name!r}: chunks of {schema.chunk_rows:,} rows have {held:,} bytes"
        raise SchemaError(
            f"{message}: give it a smaller chunk_rows=, or the collector {held * 8 // 10**6 + 1} MB of memory"
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
