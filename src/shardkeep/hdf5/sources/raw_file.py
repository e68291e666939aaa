"""Bytes of chunks and rows, read at the addresses that HDF5 reports, without HDF5."""

from __future__ import annotations

import fcntl
import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._core import ChunkCopier, ChunkCopy
from shardkeep.errors import CorruptDataError, LockError, NotFoundError
from shardkeep.files.durable import read_all, reading_from
from shardkeep.files.kinds.kind import HDF5_SIGNATURE
from shardkeep.files.locks.probe import HELD
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.threads.groups import size_runs
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.storage.chunk_table import ChunkTable

__all__ = ["RawFile"]

_BLOCK_BYTES = 4 * 1024 * 1024
# All of a smaller file is read at once: many datasets of a few rows need one call and not one each.
_READ_WHOLE_BYTES = 1024 * 1024
_PART_BYTES = 4 * 1024 * 1024
_AHEAD = 4
_MOST_THREADS = 2


class RawFile:
    """A file that is read by offsets, into one buffer.

    An array that `rows` yields is valid until the next one: new memory for each costs more than the read.
    """

    def __init__(self, fd: int, path: str, size_bytes: int) -> None:
        self._fd = fd
        self._path = path
        self._size_bytes = size_bytes
        self._version: FileVersion | None = None
        self._buffer = np.empty(0, np.uint8)
        self._holds_all = False
        self._hasher: ChunkCopier | None = None

    @classmethod
    def open_source(cls, path: str, version: FileVersion) -> RawFile | None:
        """Open a file that was inspected; return None if it has a user block, which shifts its offsets.

        Raises
        ------
        CorruptDataError
            The file changed since.
        LockError
            A process is writing the file, under the lock of HDF5.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            message = f"there is no file {path!r} any more: it was moved or removed during the merge"
            raise NotFoundError(message, path=path) from None
        try:
            with reading_from(path):
                start = os.pread(fd, len(HDF5_SIGNATURE), 0)
            if start != HDF5_SIGNATURE:  # a user block
                os.close(fd)
                return None
            _lock(fd, path)
            file = cls(fd, path, version.size_bytes)
            file._version = version
            file.check_unchanged()
        except BaseException:
            os.close(fd)
            raise
        return file

    @property
    def version(self) -> FileVersion:
        """State of a source in which it was inspected."""
        assert self._version is not None
        return self._version

    def use(self, other: RawFile | None) -> None:
        """Use the buffer of a file that is no longer read."""
        if other is not None:
            self._buffer = other._buffer

    def check_unchanged(self) -> None:
        """Raise `CorruptDataError` if the file changed since it was inspected."""
        if self._version is not None and not self._version.is_unchanged(os.fstat(self._fd)):
            message = f"{self._path!r} changed while it was merged: wait for its writer and merge again"
            raise CorruptDataError(message, path=self._path)

    def begin(
        self, copier: ChunkCopier, table: ChunkTable, places: npt.NDArray[np.int64], result_fd: int
    ) -> ChunkCopy:
        """Begin to hash chunks, and to copy each to its place in another file (-1: hash only).

        Raises
        ------
        CorruptDataError
            The address of a chunk is beyond the end of this file.
        """
        ends = table.addresses + table.sizes
        wrong = (table.addresses < 0) | (table.sizes < 0) | (ends > self._size_bytes)
        if wrong.any():
            raise self._beyond_its_end(int(table.addresses[wrong][0]))
        return copier.begin(self._fd, result_fd, table.addresses, table.sizes, places)

    def outcome(self, copy: ChunkCopy, result: TemporaryFile | None = None) -> list[int]:
        """Wait for a copy that was begun; return the CRC32C of each chunk.

        Raises
        ------
        CorruptDataError, OSError
            This file cannot be read, or `result` cannot be written.
        """
        crcs, failure = copy.wait()
        if failure is None:
            found: list[int] = crcs.tolist()
            return found
        side, offset_bytes, number = failure
        if side == "write" and result is not None:
            result.fail(OSError(number, os.strerror(number)))
            result.raise_failure()
        if number == 0:
            raise self._ends_at(offset_bytes)
        raise OSError(number, os.strerror(number), self._path)

    def crcs(self, table: ChunkTable) -> list[int]:
        """Return the CRC32C of each chunk."""
        if self._hasher is None:
            self._hasher = ChunkCopier(min(_MOST_THREADS, os.cpu_count() or 1))
        found = []
        waiting: deque[ChunkCopy] = deque()
        try:
            for first, last in size_runs(table.sizes, _PART_BYTES):
                nowhere = np.full(last - first, -1, np.int64)
                waiting.append(self.begin(self._hasher, table.part(first, last), nowhere, self._fd))
                if len(waiting) > _AHEAD:
                    found += self.outcome(waiting.popleft())
            while waiting:
                found += self.outcome(waiting.popleft())
        finally:
            for part in waiting:  # the caller closes the descriptor
                part.wait()
        return found

    def rows(
        self,
        addresses: Sequence[int] | npt.NDArray[np.int64],
        chunk_rows: int,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...],
        start: int,
        stop: int,
    ) -> Iterator[np.ndarray[Any, Any]]:
        """Yield rows ``[start, stop)`` of unfiltered chunks at these addresses that are as wide as a row."""
        row_bytes = dtype.itemsize * math.prod(row_shape)
        most = max(1, _BLOCK_BYTES // row_bytes)
        while start < stop:
            chunk, inside = divmod(start, chunk_rows)
            address = int(addresses[chunk]) + inside * row_bytes
            end = min(stop, start - inside + chunk_rows)
            while (
                end < stop
                and end - start < most
                and int(addresses[chunk + 1]) == (int(addresses[chunk]) + chunk_rows * row_bytes)
            ):
                chunk += 1
                end = min(stop, end + chunk_rows)
            end = min(end, start + most)
            piece = self._read(address, (end - start) * row_bytes)
            rows = piece.view(dtype.base).reshape(end - start, *row_shape, *dtype.shape)
            yield rows if rows.flags.aligned else rows.copy()  # HDF5 writes only aligned arrays
            start = end

    def __enter__(self) -> RawFile:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if error is None:
                self.check_unchanged()
        finally:
            if self._version is not None:
                os.close(self._fd)

    def _read(self, address: int, size: int) -> np.ndarray[Any, Any]:
        if address < 0 or size < 0 or address + size > self._size_bytes:
            raise self._beyond_its_end(address)
        if self._size_bytes > _READ_WHOLE_BYTES:
            return self._fill(address, size)
        if not self._holds_all:
            self._fill(0, self._size_bytes)
            self._holds_all = True
        return self._buffer[address : address + size]

    def _fill(self, address: int, size: int) -> np.ndarray[Any, Any]:
        if len(self._buffer) < size:
            self._buffer = np.empty(max(size, _BLOCK_BYTES), np.uint8)
        piece = self._buffer[:size]
        with reading_from(self._path):
            done = read_all(self._fd, piece, address)
        if done < size:
            raise self._ends_at(address + done)
        return piece

    def _beyond_its_end(self, address: int) -> CorruptDataError:
        message = f"{self._path!r} has an address beyond its end: it is damaged, restore it from a copy"
        return CorruptDataError(message, path=self._path, offset_bytes=address)

    def _ends_at(self, offset_bytes: int) -> CorruptDataError:
        message = f"{self._path!r} ends near byte {offset_bytes}, in the middle of rows"
        return CorruptDataError(f"{message}: copy it again", path=self._path)


def _lock(fd: int, path: str) -> None:
    """Take the lock that HDF5 takes for reading, so that no writer begins."""
    if locking_mode().effect == "off":
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            message = f"{path!r} is open in a process that writes it: wait until it has closed it"
            raise LockError(message, path=path) from error
        # This file system has no locks; a change of the file is noticed in any case.
