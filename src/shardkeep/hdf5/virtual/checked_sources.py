"""What a virtual merge found out about its sources, so that opening the result need not open each of them.

The table ``_checks`` of a virtual file has size and time of every source as they were when its rows were
read. A source that still has both is taken for the file that was checked: it is opened and locked, but not
through HDF5, which takes twenty times as long. A row of the table is used only if

- the table has the CRC32C that it carries (`shardkeep.hdf5.sources.tables`),
- the virtual dataset has the type and the row shape for which the source was checked,
- the time of the source was not within 0.1 s of the merge, when a change might not show in it, and is not
  in whole seconds, as it is where the file system or an archive rounds it.

Whatever does not agree is checked through HDF5. Not noticed is a source replaced by one of the same size
and time; `shardkeep.hdf5.verify` reads the rows of all sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep.hdf5.storage.content_hash import content_crc

__all__ = [
    "CHECKS",
    "CheckedSource",
    "MergedSources",
    "is_settled",
    "layout_digest",
    "merged_sources",
    "read_table",
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


@dataclass(frozen=True)
class MergedSources:
    """What a table has of some sources, as arrays of int64: the columns of the table.

    Attributes
    ----------
    size_bytes : ndarray
        -1 for a source of which it has nothing.
    mtime_ns, rows, offset_bytes : ndarray
    """

    size_bytes: npt.NDArray[np.int64]
    mtime_ns: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    offset_bytes: npt.NDArray[np.int64]


def is_settled(mtime_ns: int, begun_ns: int) -> bool:
    """Whether a change of a file after `begun_ns` is certain to change its time."""
    return mtime_ns < begun_ns - _SETTLED_NS and mtime_ns % _SECOND_NS != 0


def layout_digest(shape: Sequence[int], stored: h5py.h5t.TypeID) -> str:
    """Return what identifies type and row shape of a dataset: 32 hexadecimal digits."""
    found = hashlib.blake2b(repr(tuple(shape[1:])).encode(), digest_size=16)
    found.update(stored.encode())
    return found.hexdigest()


def read_table(file_id: h5py.h5f.FileID) -> np.ndarray[Any, Any] | None:
    """Return the table of an open HDF5 file; None if there is none, or none that can be trusted."""
    try:
        if not file_id.links.exists(CHECKS.encode()):
            return None
        dataset = h5py.Dataset(h5py.h5d.open(file_id, CHECKS.encode()))
        if dataset.is_virtual or not set(_COLUMNS) <= set(dataset.dtype.names or ()):
            return None
        table: np.ndarray[Any, Any] = dataset[()]
        return table if int(dataset.attrs[_CRC]) == content_crc(table) else None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
        return None


def merged_sources(
    table: np.ndarray[Any, Any] | None,
    name: bytes,
    layout: str,
    files: Sequence[bytes],
    datasets: Sequence[bytes],
) -> MergedSources:
    """Return what a table has of the sources of one dataset.

    Parameters
    ----------
    table : ndarray or None
        From `read_table`.
    name : bytes
        Of the dataset, without a "/" before it; those of its sources that were merged have the same.
    layout : str
        Its `layout_digest`, now.
    files, datasets : sequence of bytes
        The sources.
    """
    unknown = np.full(len(files), -1, np.int64)
    if table is None:
        return MergedSources(unknown, unknown, unknown, unknown)
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
    columns = []
    for column in _COLUMNS[1:5]:
        numbers = unknown.copy()
        numbers[known] = rows[column][found[known]]
        columns.append(numbers)
    size_bytes, mtime_ns, counts, offset_bytes = columns
    return MergedSources(size_bytes, mtime_ns, counts, offset_bytes)
