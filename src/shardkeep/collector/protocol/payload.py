"""The encoding of rows in messages, the redo log and spill files.

Rows of fixed size are encoded as their bytes in memory. Text is encoded array by array (a compound row has
one for each field): the length of every value as u32, then all values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.recfunctions import repack_fields

from shardkeep.errors import CollectorError
from shardkeep.hdf5.storage.content_hash import as_bytes

__all__ = ["TEXT_BYTES", "decode_rows", "encode_rows", "texts_in"]

TEXT_BYTES = 96
"""Memory of a text while it is decoded, without its bytes: an object, references, a length."""


def encode_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of rows, if possible as a view."""
    if not rows.dtype.hasobject:
        return as_bytes(rows)
    return np.frombuffer(b"".join(_pieces(rows)), np.uint8)


def decode_rows(
    data: memoryview, rows: int, dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return the rows that `encode_rows` has encoded.

    Raises
    ------
    CollectorError
        The number of bytes does not fit; checked before memory is allocated.

    Notes
    -----
    The result has no padding between the fields of rows with text.

    Examples
    --------
    >>> from shardkeep.hdf5.storage.dtypes import TEXT
    >>> words = np.array([b"no", b"yes"], TEXT)
    >>> decode_rows(memoryview(encode_rows(words)), 2, TEXT, ()).tolist()
    [b'no', b'yes']
    """
    count = rows * math.prod(row_shape)
    if not dtype.hasobject:
        if len(data) != count * dtype.itemsize:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {count * dtype.itemsize} bytes")
        result = np.empty((rows, *row_shape), dtype)
        result.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        return result
    # The sender claims the number of rows, and the padding between their fields.
    if dtype.names is not None:
        dtype = repack_fields(dtype, recurse=True)
    # The length of each text; text itself may be empty.
    if count * _summed(dtype, text=4, other=lambda one: one.itemsize) > len(data):
        raise CollectorError(f"{len(data)} bytes are too few for {rows} rows of text")
    result = np.empty((rows, *row_shape), dtype)
    if _take(data, 0, result) != len(data):
        raise CollectorError("a batch of text is longer than its rows")
    return result


def texts_in(dtype: np.dtype[Any]) -> int:
    """Return the number of texts in one value.

    Examples
    --------
    >>> from shardkeep.hdf5.storage.dtypes import TEXT
    >>> texts_in(np.dtype([("words", TEXT, (3,)), ("x", "<f8")]))
    3
    """
    return _summed(dtype, text=1, other=lambda one: 0)


def _summed(dtype: np.dtype[Any], text: int, other: Callable[[np.dtype[Any]], int]) -> int:
    """Return the sum of numbers for the scalars of a type: `text`, or that of another type."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _summed(base, text, other) * math.prod(shape)
    if dtype.names is not None:
        return sum(_summed(dtype[name], text, other) for name in dtype.names)
    return text if dtype.hasobject else other(dtype)


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
    total = int(lengths.sum(dtype=np.uint64))
    if total > len(data) - offset:
        raise CollectorError("a batch of text is cut off")
    text = bytes(data[offset : offset + total])
    if b"\0" in text:
        raise CollectorError("a text holds a NUL character, which HDF5 cannot keep: take it out")
    values = np.empty(target.size, object)
    place = 0
    for number, length in enumerate(lengths.tolist()):
        values[number] = text[place : place + length]
        place += length
    offset += total
    target[...] = values.reshape(target.shape)
    return offset
