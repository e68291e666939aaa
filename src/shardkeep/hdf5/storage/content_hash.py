"""CRC32C of the values of a dataset or attribute, the same in every file that has them."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from numpy.lib.recfunctions import repack_fields

from shardkeep._core import crc32c
from shardkeep.hdf5.storage.dtypes import flat_dtype

__all__ = ["as_bytes", "content_crc", "value_crc"]

# The extended precision of x87: 10 of the 12 or 16 bytes of a long double have content.
_X87_FRACTION_BITS, _X87_BYTES = 63, 10


def as_bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of fixed-size values, without a copy where they are contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def content_crc(values: np.ndarray[Any, Any], crc: int = 0) -> int:
    """Return the CRC32C of rows, continued from that of the rows before them.

    Fixed-size values count as the bytes that are in the file; of a variable-length value, its
    length in bytes (8 bytes, little-endian) and then its bytes.

    Examples
    --------
    >>> rows = np.arange(10)
    >>> content_crc(rows[4:], content_crc(rows[:4])) == content_crc(rows)
    True
    """
    if not values.dtype.hasobject:
        if values.dtype.names is not None:
            # Padding between fields is not content: copies lose it.
            values = repack_fields(values, recurse=True)
        return crc32c(as_bytes(values), crc)
    if values.dtype.names is not None:
        for row in values.reshape(-1, 1):
            for name in values.dtype.names:
                crc = content_crc(row[name], crc)
        return crc
    # In one call: the start of a call costs as much as the checksum of a megabyte.
    pieces: list[bytes] = []
    for value in values.ravel():
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
        pieces += (len(data).to_bytes(8, "little"), data)
    return crc32c(b"".join(pieces), crc)


def value_crc(value: Any, dtype: np.dtype[Any], crc: int = 0) -> int:
    """Return `content_crc` of a value without a row axis, as h5py reads it; an empty value has no content.

    The unused bytes of a long double count as zero: a scalar does not keep them.
    """
    if isinstance(value, h5py.Empty):
        return crc
    array = np.asarray(value, flat_dtype(dtype).base)
    if _has_long_double(array.dtype):
        if array.dtype.names is None:
            array = _with_unused_bytes_cleared(array)
        else:
            for row in array.reshape(-1, 1):
                for name in array.dtype.names:
                    crc = value_crc(row[name], row.dtype[name], crc)
            return crc
    return content_crc(array, crc)


def _has_long_double(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return any(_has_long_double(dtype[name].base) for name in dtype.names)
    return dtype.char in "gG"


def _with_unused_bytes_cleared(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if np.finfo(np.longdouble).nmant != _X87_FRACTION_BITS:
        return array
    array = array.copy(order="C")
    parts = array.reshape(-1).view(np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize)
    if array.dtype.isnative:
        parts[:, _X87_BYTES:] = 0
    else:
        parts[:, :-_X87_BYTES] = 0
    return array
