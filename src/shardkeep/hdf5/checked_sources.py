"""What a virtual merge found out about its sources, so that opening the result need not open each of them.

The table ``_checks`` of a virtual file has size and time of every source as they were when its rows were
read. A source that still has both is taken for the file that was checked: it is opened and locked, but not
through HDF5, which takes twenty times as long. A row of the table is used only if

- the table has the CRC32C that stands beside it,
- the virtual dataset has the type and the row shape for which the source was checked,
- the time of the source was not within 0.1 s of the merge, when a change might not show in it, and is not
  in whole seconds, as it is where the file system or an archive rounds it.

Whatever does not agree is checked through HDF5. Not noticed is a source replaced by one of the same size
and time; `shardkeep.hdf5.verify` reads the rows of all sources.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from shardkeep._core import crc32c

__all__ = [
    "CHECKS",
    "CheckedSource",
    "is_settled",
    "layout_digest",
    "read_table",
    "sources_in",
    "write_table_crc",
]

CHECKS = "_checks"
_CRC = "crc32c"
_COLUMNS = ("file", "size_bytes", "mtime_ns", "rows", "offset_bytes", "layout")
_SETTLED_NS = 100_000_000
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class CheckedSource:
    """A source when it was merged.

    Attributes
    ----------
    size_bytes, mtime_ns : int
        Of the file.
    rows : int
        Of the dataset.
    offset_bytes : int
        Where its rows begin, if they lie there one after another in the type of the virtual dataset;
        otherwise -1.
    layout : str
        `layout_digest` of the virtual dataset, whose row shape it has and into whose type its values fit.
    """

    size_bytes: int
    mtime_ns: int
    rows: int
    offset_bytes: int
    layout: str


def is_settled(mtime_ns: int, begun_ns: int) -> bool:
    """Whether a change of a file after `begun_ns` is certain to change its time."""
    return mtime_ns < begun_ns - _SETTLED_NS and mtime_ns % _SECOND_NS != 0


def layout_digest(oid: h5py.h5d.DatasetID) -> str:
    """Return what identifies type and row shape of an open dataset: 32 hexadecimal digits."""
    found = hashlib.blake2b(repr(tuple(oid.shape[1:])).encode(), digest_size=16)
    found.update(oid.get_type().encode())
    return found.hexdigest()


def write_table_crc(dataset: h5py.Dataset, table: np.ndarray[Any, Any]) -> None:
    """Put the CRC32C of a table beside it."""
    dataset.attrs[_CRC] = np.uint32(_crc_of(table))


def read_table(file_id: h5py.h5f.FileID) -> np.ndarray[Any, Any] | None:
    """Return the table of an open HDF5 file; None if there is none, or none that can be trusted."""
    try:
        if not file_id.links.exists(CHECKS.encode()):
            return None
        dataset = h5py.Dataset(h5py.h5d.open(file_id, CHECKS.encode()))
        if dataset.is_virtual or not set(_COLUMNS) <= set(dataset.dtype.names or ()):
            return None
        table: np.ndarray[Any, Any] = dataset[()]
        return table if int(dataset.attrs[_CRC]) == _crc_of(table) else None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
        return None


def sources_in(table: np.ndarray[Any, Any], name: str, layout: str) -> dict[str, CheckedSource]:
    """Return what a table has of the sources of one dataset, by file.

    Parameters
    ----------
    table : ndarray
        From `read_table`.
    name : str
        Of the dataset, without a "/" before it.
    layout : str
        Its `layout_digest`, now.
    """
    of = (table["dataset"] == name.encode("utf-8", "surrogateescape")) & (table["layout"] == layout.encode())
    rows = table[of & (table["size_bytes"] >= 0)]
    columns = [rows[column].tolist() for column in _COLUMNS[:5]]
    return {
        path.decode("utf-8", "surrogateescape"): CheckedSource(size, mtime, count, offset, layout)
        for path, size, mtime, count, offset in zip(*columns, strict=True)
    }


def _crc_of(table: np.ndarray[Any, Any]) -> int:
    return crc32c(np.ascontiguousarray(table).reshape(-1).view(np.uint8))
