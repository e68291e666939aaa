"""Rows as bytes: what a message, the redo log and a spill file hold of them.

Rows of fixed size are their own bytes. Text is, for each array of values in turn (the fields of a
compound row one after the other): the length of every value as u32, then all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardkeep.errors import CollectorError
from shardkeep.hdf5.rows import as_bytes

__all__ = ["decode_rows", "encode_rows"]


def encode_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of rows; a view where that is possible."""
    if not rows.dtype.hasobject:
        return as_bytes(rows)
    return np.frombuffer(b"".join(_pieces(rows)), np.uint8)


def decode_rows(
    data: memoryview, rows: int, dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return the rows that `encode_rows` made bytes of.

    Raises
    ------
    CollectorError
        The bytes are not that many rows.

    Examples
    --------
    >>> from shardkeep.hdf5.rows import TEXT
    >>> words = np.array([b"no", b"yes"], TEXT)
    >>> decode_rows(memoryview(encode_rows(words)), 2, TEXT, ()).tolist()
    [b'no', b'yes']
    """
    result = np.empty((rows, *row_shape), dtype)
    if not dtype.hasobject:
        if len(data) != result.nbytes:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {result.nbytes} bytes")
        result.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        return result
    if _take(data, 0, result) != len(data):
        raise CollectorError("a batch of text has bytes left over")
    return result


def _pieces(rows: np.ndarray[Any, Any]) -> list[bytes]:
    if rows.dtype.names is not None:
        return [piece for name in rows.dtype.names for piece in _pieces(rows[name])]
    if not rows.dtype.hasobject:
        return [np.ascontiguousarray(rows).tobytes()]
    values = [one if isinstance(one, bytes) else str(one).encode() for one in rows.ravel().tolist()]
    return [np.array([len(one) for one in values], "<u4").tobytes(), *values]


def _take(data: memoryview, offset: int, target: np.ndarray[Any, Any]) -> int:
    if target.dtype.names is not None:
        for name in target.dtype.names:
            offset = _take(data, offset, target[name])
        return offset
    size = target.nbytes if not target.dtype.hasobject else 4 * target.size
    if size > len(data) - offset:
        raise CollectorError("a batch of text is cut off")
    if not target.dtype.hasobject:
        values = np.frombuffer(data[offset : offset + size], target.dtype)
        target[...] = values.reshape(target.shape)
        return offset + size
    lengths = np.frombuffer(data[offset : offset + size], "<u4")
    offset += size
    if int(lengths.sum(dtype=np.uint64)) > len(data) - offset:
        raise CollectorError("a batch of text is cut off")
    values = np.empty(target.size, object)
    for number, length in enumerate(lengths.tolist()):
        values[number] = bytes(data[offset : offset + length])
        offset += length
    target[...] = values.reshape(target.shape)
    return offset
