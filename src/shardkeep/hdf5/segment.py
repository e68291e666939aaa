"""One segment while it is being written: rows in memory, then whole chunks in an HDF5 file.

HDF5 writes through a Python file (`shardkeep.files.pending.TemporaryFile`) and not to a path,
for three reasons. A failed write never reaches HDF5, which cannot close a file whose flush failed;
it is kept, and raised here. A forked child inherits an HDF5 library that would flush its stale
view of the file at exit; its writes go nowhere. And no lock of HDF5's own is taken, whatever
``HDF5_USE_FILE_LOCKING`` says: the rank's lock excludes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np

from shardkeep.files.pending import Pending
from shardkeep.hdf5.commit_record import CommitRecord, DatasetRecord, write_record
from shardkeep.hdf5.rows import as_bytes, chunk_rows_of, content_crc

__all__ = ["H5_VERSIONS", "Column", "Segment"]

# Superblock 3 and checksummed object headers; every HDF5 since 1.10 (2016) reads it.
H5_VERSIONS = ("v110", "v110")


class Column:
    """The rows of one dataset since the last commit.

    Attributes
    ----------
    buffer : ndarray, shape (chunk_rows, *row_shape)
        One chunk; its first `fill` rows are waiting.
    spilled : int
        Rows in the segment's file already: whole chunks.
    first_row : int
        Rows of this rank in earlier segments.
    one_row : tuple of int or None
        Shape of one row that may be assigned to ``buffer[i]``; None for rows of shape ().
    accepted : dtype or None
        The very object that was last found to fit: identity is the cheapest test there is.
    """

    __slots__ = (
        "accepted",
        "buffer",
        "chunk_rows",
        "crc",
        "dataset",
        "dtype",
        "fill",
        "first_row",
        "last_row",
        "name",
        "one_row",
        "row_shape",
        "spilled",
    )

    def __init__(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...], first_row: int) -> None:
        self.name = name
        self.dtype = dtype
        self.row_shape = row_shape
        self.first_row = first_row
        self.chunk_rows = chunk_rows_of(dtype, row_shape)
        self.last_row = self.chunk_rows - 1
        self.one_row = (1, *row_shape) if row_shape else None
        self.buffer = np.empty((self.chunk_rows, *row_shape), dtype)
        self.accepted: np.dtype[Any] | None = None
        self.dataset: h5py.Dataset | None = None
        self.fill = self.spilled = self.crc = 0

    @property
    def rows(self) -> int:
        """Rows since the last commit."""
        return self.spilled + self.fill

    def start_segment(self, first_row: int) -> None:
        """Forget the rows: they are committed, or given up."""
        self.first_row = first_row
        self.dataset = None
        self.fill = self.spilled = self.crc = 0


class Segment:
    """A file under a temporary name in the folder of a rank, opened with its first whole chunk.

    Parameters
    ----------
    folder : str
        Of the rank; its lock is held.
    durable : bool
        Whether sealing syncs file and folder.
    """

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._pending: Pending | None = None
        self._file: h5py.File | None = None
        self._pid = os.getpid()

    def write_chunk(self, column: Column, rows: np.ndarray[Any, Any]) -> None:
        """Write one whole chunk of rows (shape (chunk_rows, *row_shape), the column's dtype)."""
        file = self._open()
        dataset = column.dataset
        if dataset is None:
            dataset = column.dataset = file.create_dataset(
                column.name,
                shape=(0, *column.row_shape),
                maxshape=(None, *column.row_shape),
                chunks=(column.chunk_rows, *column.row_shape),
                dtype=column.dtype,
            )
        start = column.spilled
        stop = start + column.chunk_rows
        if dataset.shape[0] < stop:
            dataset.resize(max(2 * start, stop), 0)
        self._put(column, dataset, start, rows)
        column.crc = content_crc(rows, column.crc)
        column.spilled = stop
        self._raise_failure()

    def seal(self, path: str, columns: Iterable[Column], record: CommitRecord) -> CommitRecord:
        """Write what is left and the record, sync, and give the file its final name.

        Returns the record with the rows and hashes of `columns`.
        """
        file = self._open()
        assert self._pending is not None
        for column in columns:
            self._finish(file, column)
            record.datasets[column.name] = DatasetRecord(column.first_row, column.rows, f"{column.crc:08x}")
        write_record(file, record)
        file.close()
        self._file = None
        self._pending.rename(path)
        self._pending.seal()
        self._pending.place()
        self._pending.sync_folder()
        self._pending.close()
        self._pending = None
        return record

    def abort(self) -> None:
        """Drop the file. In a forked child: close HDF5's view of it and touch nothing."""
        pending, self._pending = self._pending, None
        file, self._file = self._file, None
        if pending is None:
            return
        pending.file.ignore()
        with contextlib.suppress(Exception):
            if file is not None:
                file.close()
        if self._pid == os.getpid():
            pending.undo()
        pending.close()

    def _open(self) -> h5py.File:
        if self._file is None:
            self._pending = Pending(
                os.path.join(self._folder, "segment.h5"), replace=False, durable=self._durable
            )
            self._pending.file.deferred = True
            self._file = h5py.File(self._pending.file, "w", libver=H5_VERSIONS)
        return self._file

    def _finish(self, file: h5py.File, column: Column) -> None:
        fill = column.fill
        rows = column.buffer[:fill]
        column.crc = content_crc(rows, column.crc)
        dataset = column.dataset
        if dataset is None:
            dataset = file.create_dataset(column.name, shape=rows.shape, dtype=column.dtype)
            if rows.size:
                dataset[...] = rows
        else:
            if fill:
                column.buffer[fill:] = b"" if column.dtype.hasobject else np.zeros((), column.dtype)
                dataset.resize(column.spilled + column.chunk_rows, 0)
                self._put(column, dataset, column.spilled, column.buffer)
            dataset.resize(column.rows, 0)
        self._raise_failure()

    def _put(self, column: Column, dataset: h5py.Dataset, start: int, rows: np.ndarray[Any, Any]) -> None:
        if column.dtype.hasobject:
            dataset[start : start + len(rows)] = rows
        else:
            dataset.id.write_direct_chunk((start, *(0 for _ in column.row_shape)), as_bytes(rows))

    def _raise_failure(self) -> None:
        if self._pending is not None and self._pending.file.failure is not None:
            raise self._pending.file.failure
