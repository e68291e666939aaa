"""Values as short texts."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from shardkeep.errors import one_line
from shardkeep.hdf5.storage.dtypes import enum_members
from shardkeep.jobs.json_values import plain

__all__ = ["cell"]

_CHARACTERS = 160
_BYTES = 24
_VALUES = 12


def cell(value: Any, dtype: np.dtype[Any] | None = None) -> str:
    """Return one value as a text of a few hundred characters at most.

    Parameters
    ----------
    value : object
        As h5py returns it: a scalar, an array, a row of a compound type, text or bytes.
    dtype : dtype, optional
        Its dtype with h5py's metadata, for the names of an enum.
    """
    if isinstance(value, h5py.Empty):
        return "(empty)"
    if isinstance(value, np.ndarray) and value.ndim:
        shown = ", ".join(cell(one, dtype) for one in value.reshape(-1)[:_VALUES])
        more = value.size > _VALUES or value.ndim > 1
        return f"{shown}{', …' * (value.size > _VALUES)} ({_times(value.shape)} values)" if more else shown
    if isinstance(value, np.void) and value.dtype.names is not None:
        # h5py keeps the metadata of the fields in their dtypes.
        return ", ".join(f"{name}: {cell(value[name], value.dtype[name])}" for name in value.dtype.names)
    if isinstance(value, np.bytes_ | np.void | bytes):
        return _bytes(
            value.tobytes() if isinstance(value, np.void) else value, is_text=isinstance(value, np.bytes_)
        )
    if isinstance(value, str):
        # A surrogate is a byte that is not UTF-8.
        text = one_line(value[:_CHARACTERS])
        return text + (f"… ({len(value):,} characters)" if len(value) > _CHARACTERS else "")
    if isinstance(value, h5py.h5r.Reference):
        return "a reference" if value else "a reference to nothing"
    members = None if dtype is None else enum_members(dtype)
    if members is not None:
        names = [name for name, number in members.items() if number == int(value)]
        return f"{names[0]} ({int(value)})" if names else str(int(value))
    return str(plain(value))


def _bytes(data: bytes, *, is_text: bool) -> str:
    try:
        text = data[:_CHARACTERS].decode()
        is_text = is_text or text.isprintable()
    except UnicodeDecodeError:
        text = data[:_CHARACTERS].decode("utf-8", "backslashreplace")
    if is_text:
        return one_line(text) + (f"… ({len(data):,} bytes)" if len(data) > _CHARACTERS else "")
    return data[:_BYTES].hex(" ") + (f" … ({len(data):,} bytes)" if len(data) > _BYTES else "")


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(f"{one:,}" for one in shape)
