"""Checks that a virtual merge made of its sources, stored so that opening the result need not repeat them.

The table ``_checks`` of a virtual file has size and modification time of every source at the time of the
merge. A source that still has both counts as unchanged: it is opened and locked, but not through HDF5, which
takes twenty times as long. A row of the table is used only if

- the table has the CRC32C that is stored with it (`shardkeep.hdf5.sources.tables`),
- the virtual dataset has the type and the row shape for which the source was checked,
- the time of the source is not within 0.1 s of the merge, where a later change might have the same time, and
  not in whole seconds, to which some file systems and archives round it.

Other sources are checked through HDF5. A source that was replaced by one of the same size and time is not
noticed; `shardkeep.hdf5.verify` reads the rows of all sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import h5py
import numpy as np

from shardkeep.hdf5.storage.content_hash import content_crc

__all__ = [
    "CHECKS",
    "CheckedSource",
    "is_settled",
    "layout_digest",
    "read_table",
    "states_of",
]

CHECKS = "_checks"
_CRC = "crc32c"
_NUMBERS = ("size_bytes", "mtime_ns", "rows", "offset_bytes")
_COLUMNS = {"file", "layout", *_NUMBERS}
_SETTLED_NS = 100_000_000
_SECOND_NS = 1_000_000_000


class CheckedSource(NamedTuple):
    """State of a source when it was merged.

    Attributes
    ----------
    size_bytes, mtime_ns : int
        Size and modification time of the file.
    rows : int
        Number of rows of the dataset.
    offset_bytes : int
        Offset of its rows if they are contiguous in the type of the virtual dataset; otherwise -1.
    layout : str
        `layout_digest` of the virtual dataset, which has the same row shape and a type that holds its values.
    """

    size_bytes: int
    mtime_ns: int
    rows: int
    offset_bytes: int
    layout: str


def is_settled(mtime_ns: int, begun_ns: int) -> bool:
    """Return whether a change of a file after `begun_ns` certainly changes its time."""
    return mtime_ns < begun_ns - _SETTLED_NS and mtime_ns % _SECOND_NS != 0


def layout_digest(shape: Sequence[int], stored: h5py.h5t.TypeID) -> str:
    """Return a digest of type and row shape of a dataset: 32 hexadecimal digits."""
    found = hashlib.blake2b(repr(tuple(shape[1:])).encode(), digest_size=16)
    found.update(stored.encode())
    return found.hexdigest()


def read_table(file_id: h5py.h5f.FileID) -> np.ndarray[Any, Any] | None:
    """Return the table of an open HDF5 file; None if it has no undamaged one."""
    try:
        if not file_id.links.exists(CHECKS.encode()):
            return None
        dataset = h5py.Dataset(h5py.h5d.open(file_id, CHECKS.encode()))
        if dataset.is_virtual or not _COLUMNS.issubset(dataset.dtype.names or ()):
            return None
        table: np.ndarray[Any, Any] = dataset[()]
        return table if int(dataset.attrs[_CRC]) == content_crc(table) else None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
        return None


def states_of(
    table: np.ndarray[Any, Any] | None,
    name: bytes,
    layout: str,
    files: Sequence[bytes],
    datasets: Sequence[bytes],
) -> np.ndarray[Any, Any]:
    """Return the states of the sources of one dataset, as `CheckedSource`; -1 for those without a row.

    Parameters
    ----------
    table : ndarray or None
        From `read_table`.
    name : bytes
        Name of the dataset without a leading "/"; merged sources have the same name.
    layout : str
        Its current `layout_digest`.
    files, datasets : sequence of bytes
        The sources.

    Returns
    -------
    ndarray
        Fields of int64: size_bytes, mtime_ns, rows, offset_bytes.
    """
    states = np.full(len(files), -1, [(column, np.int64) for column in _NUMBERS])
    if table is None:
        return states
    of = (table["dataset"] == name) & (table["layout"] == layout.encode()) & (table["size_bytes"] >= 0)
    rows = table[of]
    places = {file: place for place, file in enumerate(rows["file"].tolist())}
    found = np.array(
        [
            places.get(file, -1) if dataset == name else -1
            for file, dataset in zip(files, datasets, strict=True)
        ],
        np.int64,
    )
    known = found >= 0
    for column in _NUMBERS:
        states[column][known] = rows[column][found[known]]
    return states
