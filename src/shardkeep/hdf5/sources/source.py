"""An HDF5 file that is open for reading: its record, names, datasets and rows.

Whatever h5py and HDF5 raise becomes an error of the tree that names the file and the dataset.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.journal.live_view import OWN_GROUP, open_consistent
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.open_errors import open_error
from shardkeep.hdf5.locking.reading import open_with_or_without_lock, read_access
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.commit_record import CommitRecord, read_record
from shardkeep.hdf5.sources.links import walk_links
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.content_hash import content_crc, value_crc
from shardkeep.hdf5.storage.names import decode_name, encode_name, is_own_table

__all__ = [
    "Source",
    "blocks",
    "check_content",
    "check_value",
    "not_as_committed",
    "open_id",
    "open_source",
    "rows_crc",
    "rows_in_block",
]

_BLOCK_BYTES = 4 * 1024 * 1024


class Source:
    """A file that is open for reading; made by `open_source`.

    Attributes
    ----------
    path : str
    file : h5py.File
    record : CommitRecord or None
        The record of a sealed segment.
    collected : bool
        Whether a collector wrote the file.
    """

    def __init__(self, path: str, file: h5py.File, view: FileLock | None = None) -> None:
        self.path = path
        self.file = file
        self._view = view
        self._datasets: dict[str, h5py.Dataset] = {}
        self.record: CommitRecord | None = read_record(file, path)
        clients = f"{OWN_GROUP}/clients"
        self.collected = clients in file and is_own_table(file.id, clients)

    def dataset_names(self) -> list[str]:
        """Return the names of all datasets of the user, in the order of the file.

        Of a segment: those with rows, then the values that were put with this commit. Datasets of the user
        with a name that is reserved for Shardkeep come last.
        """
        if self.record is not None:
            return self.record.objects

        with reading(self.path):
            file = self.file.id
            names = walk_links(file)
            reserved = [encode_name(name) for name in names.reserved]
            hard = [one for one in reserved if file.links.get_info(one).type == h5py.h5l.TYPE_HARD]
            for name in (*names.objects, *hard):
                item = h5py.h5o.open(file, name)
                if isinstance(item, h5py.h5d.DatasetID):
                    self._datasets[decode_name(name)] = h5py.Dataset(item)
        return list(self._datasets)

    def dataset(self, name: str) -> h5py.Dataset:
        """Return a dataset; raise `CorruptDataError` if it is missing or cannot be opened."""
        known = self._datasets.get(name)
        if known is not None:
            return known
        with reading(self.path, name, "dataset"):
            item = self.file[encode_name(name)]
        if not isinstance(item, h5py.Dataset):
            message = f"{name!r} in {self.path!r} must be a dataset and is a group"
            raise CorruptDataError(f"{message}: restore the file from a copy", path=self.path)
        self._datasets[name] = item
        return item

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._datasets.clear()
        try:
            self.file.close()
        finally:
            if self._view is not None:
                self._view.release()


def open_source(path: str) -> Source:
    """Open an HDF5 file for reading; a collector changes nothing in it until it is closed.

    Raises
    ------
    NotFoundError
        The file does not exist.
    LockError
        A writer has it open.
    BudgetError
        No descriptors are left.
    TruncatedFileError, FormatError, CorruptDataError
        The file is cut off; is not HDF5; cannot be read by HDF5.
    PermissionError
        This user may not read it.
    """
    file_id, view = open_consistent(path, 0.0, lambda: open_id(path), lambda opened: opened)
    file = h5py.File(file_id)
    try:
        with reading(path):
            return Source(path, file, view)
    except BaseException:
        file.close()
        if view is not None:
            view.release()
        raise


def open_id(path: str) -> h5py.h5f.FileID:
    """Open an HDF5 file for reading without h5py's high-level objects; errors as `open_source`.

    Of a file that a collector writes, the caller holds the view (`shardkeep.hdf5.journal.live_view`).
    """
    refuse_damage(path)
    try:
        return open_with_or_without_lock(
            path,
            lambda locked: h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, read_access(locked=locked)),
        )[0]
    except Exception as error:
        raise open_error(path, error) from error


def blocks(
    dataset: h5py.Dataset, start: int, stop: int, read: Callable[[slice], Any] | None = None
) -> Iterator[np.ndarray[Any, Any]]:
    """Yield rows ``[start, stop)`` in blocks of about 4 MiB, whole chunks where there are chunks.

    `read` returns the rows of a slice; without it h5py reads them from the dataset.

    Raises
    ------
    MissingExtraError
        Rows are compressed by a filter that is not installed.
    """
    require_filters(dataset)
    dtype = dataset.dtype
    if dtype.hasobject and read is None:
        refuse_damage(dataset.file.filename, rows=True)
    step = rows_in_block(dataset)
    while start < stop:
        end = min(stop, (start // step + 1) * step)
        rows = dataset[start:end] if read is None else read(slice(start, end))
        yield in_stored_order(rows, dtype) if dtype.hasobject else rows
        start = end


def rows_crc(dataset: h5py.Dataset, start: int, stop: int) -> int:
    """Return the hash of rows ``[start, stop)``; errors as `blocks`."""
    crc = 0
    for rows in blocks(dataset, start, stop):
        crc = content_crc(rows, crc)
    return crc


def rows_in_block(dataset: h5py.Dataset) -> int:
    """Return the number of rows in a block of about 4 MiB, whole chunks where there are chunks."""
    row_bytes = max(1, dataset.dtype.itemsize * math.prod(dataset.shape[1:]))
    step: int = max(1, _BLOCK_BYTES // row_bytes)
    if dataset.chunks is not None:
        step = max(dataset.chunks[0], step // dataset.chunks[0] * dataset.chunks[0])
    return step


def check_content(source: Source, name: str, crc32c: str) -> None:
    """Read all rows of a dataset; raise `CorruptDataError` unless they have this hash."""
    dataset = source.dataset(name)
    with reading(source.path, name):
        crc = rows_crc(dataset, 0, dataset.shape[0] if dataset.shape else 0)
    if f"{crc:08x}" != crc32c:
        raise not_as_committed(source.path, name)


def check_value(path: str, name: str, value: tuple[Any, np.dtype[Any]], crc32c: str) -> None:
    """Raise `CorruptDataError` unless a value that was put once, and its dtype, have this hash."""
    if f"{value_crc(*value):08x}" != crc32c:
        raise not_as_committed(path, name, "the value")


def not_as_committed(path: str, name: str, what: str = "rows of") -> CorruptDataError:
    """Return the error for rows or a value whose hash differs from that of their commit."""
    are = "are not those" if what == "rows of" else "is not that"
    message = f"{what} {name!r} in {path!r} {are} of its commit"
    return CorruptDataError(f"{message}: the file is damaged, restore it from a copy", path=path)
