"""Rows in the order of a key, sorted in bounded memory.

The result is divided into windows of consecutive rows. Each row that is read from a source is written to the
end of its window in a scratch file. Then one window after the other is read, sorted in memory, and written
into the result. So every row is written and read once more, in large blocks and not one by one. Rows that
fit into a share of memory do not go to the scratch file. Values of variable length have no fixed place: they
are written one after the other and read by their offset.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.recfunctions import repack_fields

from shardkeep.errors import CorruptDataError
from shardkeep.files.durable import durably, read_all, write_all
from shardkeep.hdf5.merge.checks import Check
from shardkeep.hdf5.merge.dataset_writer import DatasetWriter
from shardkeep.hdf5.merge.order import KeyOrder
from shardkeep.hdf5.storage.content_hash import as_bytes, content_crc

__all__ = ["KeyedRows", "Scratch"]

WINDOW_BYTES = 32 * 1024 * 1024
_SHARED_BYTES = 256 * 1024 * 1024
_WINDOW_OBJECTS = 1 << 16


class Scratch:
    """Rows of all datasets of a merge until they are in order: in memory, and in one file without a name."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._memory_left = _SHARED_BYTES
        self._file: Any = None
        self._size_bytes = 0

    def take_memory(self, size_bytes: int) -> bool:
        """Take memory and return whether that much was left."""
        if size_bytes > self._memory_left:
            return False
        self._memory_left -= size_bytes
        return True

    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a new part of the file."""
        offset = self._size_bytes
        self._size_bytes += size_bytes
        return offset

    def write(self, data: Any, offset: int) -> None:
        """Write into the file."""
        with durably("write scratch rows beside", self._output):
            if self._file is None:
                folder = os.path.dirname(os.path.abspath(self._output))
                self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            write_all(self._file.fileno(), data, offset)

    def read(self, buffer: Any, offset: int) -> None:
        """Fill a buffer from the file."""
        with durably("read scratch rows beside", self._output):
            read_all(self._file.fileno(), buffer, offset)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


class KeyedRows:
    """Rows of one dataset, added in the order of the sources and written in the order of the key."""

    def __init__(self, writer: DatasetWriter, key: KeyOrder, output: str, scratch: Scratch) -> None:
        self.plan = writer.plan
        self._writer = writer
        self._key = key
        self._output = output
        self._places = key.places()
        self._arrived = 0
        # The sum over all rows of a hash of each: the order does not change it.
        self._sum = 0
        dtype, shape = writer.plan.dtype, writer.plan.row_shape
        self._row_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._scratch = scratch
        self._memory: np.ndarray[Any, Any] | None = None
        self._objects = dtype.hasobject
        if self._objects:
            self._window_rows = _WINDOW_OBJECTS
            self._extents = np.zeros((writer.plan.rows, 2), np.int64)
            return
        self._window_rows = max(1, WINDOW_BYTES // max(1, self._row_bytes))
        size_bytes = self._row_bytes * writer.plan.rows
        if scratch.take_memory(size_bytes):
            self._memory = np.empty((writer.plan.rows, *shape), dtype)
        else:
            self._offset_bytes = scratch.allocate(size_bytes)
        self._cursors = np.zeros(-(-writer.plan.rows // self._window_rows) or 1, np.int64)

    def add_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Add the next rows of the sources."""
        places = self._places[self._arrived : self._arrived + len(rows)]
        self._sum = (self._sum + _row_sum(rows)) & _MASK
        if self._objects:
            self._add_objects(rows)
        elif self._memory is not None:
            self._memory[places] = rows
        else:
            self._scatter(rows, places)
        self._arrived += len(rows)

    def finish(self) -> Iterator[Check]:
        """Write all rows, window by window; yield the hash of each window."""
        total = 0
        for start in range(0, self.plan.rows, self._window_rows):
            stop = min(self.plan.rows, start + self._window_rows)
            rows = self._window(start, stop)
            total = (total + _row_sum(rows)) & _MASK
            self._writer.add_rows(rows)
            yield Check(self.plan.name, start, stop - start, "rows", content_crc(self._writer.as_read(rows)))
        if total != self._sum or self._arrived != self.plan.rows:
            message = f"rows of {self.plan.name!r} changed while they were put in order"
            raise CorruptDataError(f"{message}: check disk and memory, merge again", path=self._output)
        self._writer.finish()

    # -- rows of a fixed size --------------------------------------------------------------------

    def _scatter(self, rows: np.ndarray[Any, Any], places: npt.NDArray[np.int64]) -> None:
        windows = places // self._window_rows
        order = np.argsort(windows, kind="stable")
        windows, rows = windows[order], rows[order]
        starts = np.flatnonzero(np.diff(windows, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            window = int(windows[start])
            row = window * self._window_rows + int(self._cursors[window])
            self._scratch.write(as_bytes(rows[start:stop]), self._offset_bytes + row * self._row_bytes)
            self._cursors[window] += stop - start

    def _window(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        if self._memory is not None:
            return self._memory[start:stop]
        # Rows of a window are in the order in which they were added.
        arrived = self._key.order[start:stop]
        if self._objects:
            return self._objects_of(arrived)
        rows = np.empty((stop - start, *self.plan.row_shape), self.plan.dtype)
        self._scratch.read(as_bytes(rows), self._offset_bytes + start * self._row_bytes)
        rank = np.empty(len(arrived), np.int64)
        rank[np.argsort(arrived)] = np.arange(len(arrived))
        ordered: np.ndarray[Any, Any] = rows[rank]
        return ordered

    # -- values of variable length ---------------------------------------------------------------

    def _add_objects(self, rows: np.ndarray[Any, Any]) -> None:
        extents = self._extents[self._arrived : self._arrived + len(rows)]
        spool, begin = bytearray(), 0
        for i, row in enumerate(rows):
            value = row.item() if isinstance(row, np.void) else row
            start = len(spool)
            spool += pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            extents[i] = start, len(spool)
            if len(spool) >= WINDOW_BYTES or i == len(rows) - 1:
                offset = self._scratch.allocate(len(spool))
                self._scratch.write(spool, offset)
                extents[begin : i + 1] += offset
                spool, begin = bytearray(), i + 1

    def _objects_of(self, arrived: npt.NDArray[np.int64]) -> np.ndarray[Any, Any]:
        rows = np.empty((len(arrived), *self.plan.row_shape), self.plan.dtype)
        for place in np.argsort(arrived):
            start, end = self._extents[arrived[place]].tolist()
            data = bytearray(end - start)
            self._scratch.read(data, start)
            rows[place] = pickle.loads(data)  # written by _add_objects, into a file without a name
        return rows


_MASK = (1 << 64) - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)


def _row_sum(rows: np.ndarray[Any, Any]) -> int:
    """Return the sum of a hash of each row, modulo 2**64."""
    if rows.dtype.hasobject:
        return sum(content_crc(rows[i : i + 1]) * 0x9E3779B97F4A7C15 for i in range(len(rows))) & _MASK
    if rows.dtype.names is not None:
        rows = repack_fields(rows, recurse=True)  # copies lose the padding
    flat = as_bytes(rows).reshape(len(rows), -1)
    words = -(-flat.shape[1] // 8)
    if words * 8 != flat.shape[1]:
        padded = np.zeros((len(rows), words * 8), np.uint8)
        padded[:, : flat.shape[1]] = flat
        flat = padded
    weights = np.random.default_rng(words).integers(0, 1 << 63, words, np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    values = flat.view(np.uint64)
    mixed = np.zeros(len(rows), np.uint64)
    step = max(1, (1 << 20) // max(1, words))
    for start in range(0, len(rows), step):
        block = values[start : start + step]
        mixed[start : start + step] = ((block ^ (block >> np.uint64(29))) * weights).sum(
            axis=1, dtype=np.uint64
        )
    mixed ^= mixed >> np.uint64(32)
    return int((mixed * _MIX).sum(dtype=np.uint64))
