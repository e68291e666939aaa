"""Schemas of the collector's datasets, and their form in messages.

Types are sent as JSON, never as a pickle or in HDF5's own encoding: neither is safe to decode when it comes
from an untrusted sender.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CollectorError
from shardkeep.hdf5.storage.dtypes import TEXT, is_text, same_dtype
from shardkeep.hdf5.storage.layout import chunk_rows_of

__all__ = ["FilterSpec", "Schema", "checked_count", "dtype_from_json", "dtype_to_json"]

FilterSpec = tuple[int, int, tuple[int, ...]]

_DEEPEST = 8
# HDF5 keeps types of up to 64 KiB. A field takes 20 bytes and a member of an enum 8, and HDF5 compares each
# with all previous ones.
_MOST_FIELDS = 4096
_MOST_MEMBERS = 8192


@dataclass(frozen=True)
class Schema:
    """Type, row shape and storage of one dataset.

    Attributes
    ----------
    name : str
    dtype : dtype
    row_shape : tuple of int
    chunk_rows : int
    filters : tuple
        (code, flags, parameters) of each HDF5 filter.
    rows : int or None
        The number of rows, if they are placed by number (``key=``); None if they are appended.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    chunk_rows: int = 0
    filters: tuple[FilterSpec, ...] = ()
    rows: int | None = None

    @property
    def row_bytes(self) -> int:
        """The size of a row of fixed size, or of the references of a row of text."""
        return self.dtype.itemsize * math.prod(self.row_shape)

    def fits(self, other: Schema) -> bool:
        """Whether encoded rows of `other` are valid rows of this schema."""
        return (
            same_dtype(self.dtype, other.dtype)
            and self.row_shape == other.row_shape
            and self.rows == other.rows
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values of a message."""
        return {
            "name": self.name,
            "dtype": dtype_to_json(self.dtype),
            "row_shape": list(self.row_shape),
            "chunk_rows": self.chunk_rows,
            "filters": [[code, flags, list(values)] for code, flags, values in self.filters],
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """Read the JSON values of a message.

        Raises
        ------
        CollectorError
            They are not a valid schema.
        """
        try:
            dtype = dtype_from_json(data["dtype"])
            row_shape = tuple(checked_count(size) for size in data["row_shape"])
            chunk_rows = checked_count(data["chunk_rows"]) or chunk_rows_of(dtype, row_shape)
            if len(row_shape) > 31 or dtype.itemsize * math.prod(row_shape) >= 1 << 32:
                raise ValueError("a row is longer than the 4 GiB of an HDF5 chunk")
            filters = tuple(
                (checked_count(code), checked_count(flags), tuple(checked_count(value) for value in values))
                for code, flags, values in data["filters"]
            )
            rows = None if data["rows"] is None else checked_count(data["rows"])
            name = data["name"]
            if not isinstance(name, str):
                raise TypeError("a name must be a str")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise CollectorError(f"a declaration is not valid ({error})") from None
        return cls(name, dtype, row_shape, chunk_rows, filters, rows)


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """Return a type as JSON values.

    Examples
    --------
    >>> dtype_to_json(np.dtype(">f4"))
    '>f4'
    >>> kind = np.dtype([("x", "<i2"), ("y", "<f8", (2,))])
    >>> dtype_from_json(dtype_to_json(kind)) == kind
    True
    """
    if is_text(dtype):
        return {"text": True}
    enum = h5py.check_enum_dtype(dtype)
    if enum is not None and dtype != np.dtype(bool):
        return {"enum": dtype.str, "members": {name: int(value) for name, value in enum.items()}}
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": dtype_to_json(base), "shape": list(shape)}
    if dtype.names is not None:
        assert dtype.fields is not None
        fields = [[name, dtype_to_json(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "itemsize": dtype.itemsize}
    return dtype.str


def dtype_from_json(data: Any, depth: int = 0) -> np.dtype[Any]:
    """Read a type; raises ValueError or TypeError if it is not valid."""
    if depth > _DEEPEST:
        raise ValueError(f"types nested deeper than {_DEEPEST}")
    if isinstance(data, str):
        dtype: np.dtype[Any] = np.dtype(data)
        if dtype.hasobject or dtype.kind not in "biufcSV" or dtype.names is not None or dtype.str != data:
            raise ValueError(f"{data!r} is not a type of HDF5")
        return dtype
    if "text" in data:
        text: np.dtype[Any] = TEXT
        return text
    if "enum" in data:
        base = dtype_from_json(data["enum"], depth + 1)
        if len(data["members"]) > _MOST_MEMBERS:
            raise ValueError(f"an enum of more than {_MOST_MEMBERS} members")
        members = {str(name): int(value) for name, value in data["members"].items()}
        enum: np.dtype[Any] = h5py.enum_dtype(members, base)
        return enum
    if "base" in data:
        return np.dtype((dtype_from_json(data["base"], depth + 1), tuple(map(checked_count, data["shape"]))))
    names, formats, offsets = [], [], []
    if len(data["fields"]) > _MOST_FIELDS:
        raise ValueError(f"a row of more than {_MOST_FIELDS} fields")
    for name, one, offset in data["fields"]:
        names.append(str(name))
        formats.append(dtype_from_json(one, depth + 1))
        offsets.append(checked_count(offset))
    itemsize = checked_count(data["itemsize"])
    # NumPy checks that fields lie inside the row; HDF5 does not allow overlapping ones.
    ends = sorted(zip(offsets, (kind.itemsize for kind in formats), strict=True))
    if any(start + size > later for (start, size), (later, _) in itertools.pairwise(ends)):
        raise ValueError("fields that overlap")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


def checked_count(value: Any, most: int = 1 << 63) -> int:
    """Return a number from JSON; raises `ValueError` if it is not an int from 0 to below `most`."""
    if type(value) is not int or not 0 <= value < most:
        raise ValueError(f"{value!r} is not a count")
    return value
