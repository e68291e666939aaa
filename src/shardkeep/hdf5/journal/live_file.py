"""`LiveFile`: an HDF5 file that is written in place and survives a kill at any instant.

HDF5 overwrites its own structures in no promised order. It writes to this Python file object, which keeps one
invariant: the bytes of the last commit are on disk, or in the redo log, until the next commit is durable.

1. A change of committed bytes is held in memory. The next commit writes all such changes into the redo log.
2. Bytes after the end of the last commit are written at once, since no committed structure refers to them.
   Rows take this way (`allocate`, `write_rows`), so each of their bytes is written once.
3. Logged changes are applied to the file after that (`apply`), and the log is emptied. A crash in between is
   repaired by applying them again (`shardkeep.hdf5.journal.recovery`).

The order of writes: rows and new structures, ``fdatasync`` of the file, one record of the log, ``fdatasync``
of the log. **A row is durable, and the commit valid, once this record is** (`LiveFile.write_commit`). To
apply it: the changes, ``fdatasync`` of the file, the empty log. Changed rows may be applied earlier than
structures (`apply_rows`); the log keeps them until `apply`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardkeep.errors import DurabilityError, ShardkeepError
from shardkeep.files.durable import durability_error, durably, read_all, sync_folder, write_all
from shardkeep.files.owner import this_process
from shardkeep.files.positioned import PositionedFile
from shardkeep.hdf5.journal.extent_map import ExtentMap
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import Extent, LogHeader, RedoLog
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES, without_flags

__all__ = ["Commit", "LiveFile"]

# The path is one without links (`real_name`).
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Commit:
    """A commit before it is written: the length of the file, and the changes of committed bytes."""

    file_bytes: int
    extents: list[Extent]


class LiveFile(PositionedFile):
    """The file object that HDF5 writes to.

    Parameters
    ----------
    path : str
        Recovered before (`shardkeep.hdf5.journal.recovery.recover`), and locked by the caller.
    synced : bool
        Whether commits survive a power cut, or only the death of processes.

    Attributes
    ----------
    is_new : bool
        Whether the file was created, and no commit was applied to it yet.
    failure : ShardkeepError or None
        The first failure of a write. There are no more commits after one.
    """

    def __init__(self, path: str, *, synced: bool) -> None:
        self.path = path
        self.failure: ShardkeepError | None = None
        self._synced = synced
        with durably("open", path):
            try:
                self._fd = os.open(path, os.O_RDWR | _SAFE)
            except FileNotFoundError:
                self._fd = -1
        self.is_new = self._fd < 0
        try:
            # The log first: a file without a log would be taken for a complete one.
            self._log = self._create_log()
        except BaseException:
            if self._fd >= 0:
                os.close(self._fd)
            raise
        try:
            with durably("open", path):
                if self.is_new:
                    self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)
                self._size = os.fstat(self._fd).st_size
                if synced:
                    sync_folder(os.path.dirname(path))
        except BaseException:
            self.abandon()
            raise
        self._committed_bytes = self._size
        # Structures of HDF5, and bytes of rows (`change`): an offset is never in both.
        self._dirty, self._dirty_rows = ExtentMap(), ExtentMap()
        self._logged, self._logged_rows = ExtentMap(), ExtentMap()
        self._in_flight: tuple[ExtentMap, ExtentMap] | None = None
        self._zeros = np.zeros(0, np.uint8)

    def _create_log(self) -> RedoLog:
        boot = this_process().boot
        if self.is_new:
            return RedoLog(log_path(self.path), LogHeader(True, self._synced, boot, 0))
        with durably("read", self.path):
            status, start = os.fstat(self._fd), os.pread(self._fd, SUPERBLOCK_BYTES, 0)
        header = LogHeader(False, self._synced, boot, status.st_size, superblock=start.hex())
        return RedoLog(log_path(self.path), header, status)

    # -- calls of HDF5 -------------------------------------------------------------------------------------

    def _end_bytes(self) -> int:
        return self._size

    def _read(self, target: memoryview) -> int:
        # Bytes on disk, overlaid with the changes in memory.
        count = min(len(target), max(self._size - self._position, 0))
        done = read_all(self._fd, target[:count], self._position)
        target[done:count] = bytes(count - done)  # not that long on disk yet
        for layer in self._layers():
            layer.overlay(self._position, target[:count])
        return count

    def write(self, data: Any) -> int:
        """Write at the position. A failure is kept in `failure`, since HDF5 does not survive an exception."""
        with memoryview(data) as view, view.cast("B") as rest:
            size, offset = len(rest), self._position
            is_placed = self._is_placed(data)
            self._position += size
            self._size = max(self._size, self._position)
            if is_placed:
                return size
            committed = max(min(self._committed_bytes - offset, size), 0)
            # The superblock always goes through the log: its flags are cleared there.
            if offset < SUPERBLOCK_BYTES:
                committed = size
            try:
                if committed:
                    self._dirty.put(offset, bytes(rest[:committed]))
                if committed < size and self.failure is None:
                    write_all(self._fd, rest[committed:], offset + committed)
            except (OSError, MemoryError) as error:
                if isinstance(error, MemoryError):
                    error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
                self.failure = self.failure or durability_error("write", self.path, error)
            return size

    def truncate(self, size: int | None = None) -> int:
        """Set the length; the file itself gets it with the next commit."""
        self._size = self._position if size is None else size
        return self._size

    def _layers(self) -> list[ExtentMap]:
        logged, dirty = (self._logged, self._logged_rows), (self._dirty, self._dirty_rows)
        return [*logged, *(self._in_flight or ()), *dirty]

    # -- rows ----------------------------------------------------------------------------------------------

    def allocate(self, write_chunk: Callable[[np.ndarray[Any, Any]], None], size: int) -> int:
        """Return the offset that HDF5 assigns to a new chunk, without writing the chunk.

        Parameters
        ----------
        write_chunk : callable
            Calls ``write_direct_chunk`` with the array that is passed to it. That write is dropped.
        size : int
            Bytes of the chunk. They read as zeros until `write_rows` writes them.
        """
        if len(self._zeros) != size:
            self._zeros = np.zeros(size, np.uint8)  # its pages are never touched
        with self.placing(self._zeros) as placed:
            write_chunk(self._zeros)
        if not placed:
            raise AssertionError("HDF5 wrote a chunk in another way than expected")
        return placed[0]

    def write_rows(self, offset: int, data: Any) -> None:
        """Write rows of the next commit into a chunk from `allocate`.

        Raises
        ------
        DurabilityError
            Full disk, quota, I/O error. The commits so far are untouched.
        """
        try:
            write_all(self._fd, data, offset)
        except OSError as error:
            raise durability_error("write", self.path, error) from error

    def change(self, offset: int, data: bytes) -> None:
        """Write bytes that are no structure of HDF5: through the log if they are committed, else at once."""
        if offset >= self._committed_bytes:
            self.write_rows(offset, data)
        else:
            self._dirty_rows.put(offset, data)

    def read_at(self, offset: int, size: int) -> bytearray:
        """Return the current bytes, committed or not."""
        result = bytearray(size)
        self.read_into(offset, result)
        return result

    def read_into(self, offset: int, target: Any) -> None:
        """Read the current bytes into a buffer."""
        before, self._position = self._position, offset
        try:
            self.readinto(target)
        finally:
            self._position = before

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def changed_bytes(self) -> int:
        """Memory of the changes for the next commit."""
        return self._dirty.held_bytes + self._dirty_rows.held_bytes

    @property
    def log_bytes(self) -> int:
        """Length of the redo log."""
        return self._log.bytes

    @property
    def unapplied_bytes(self) -> int:
        """Memory of changes that are logged and not applied."""
        return self._logged.held_bytes + self._logged_rows.held_bytes

    @property
    def held_bytes(self) -> int:
        """Memory of all changes."""
        return sum(one.held_bytes for one in self._layers())

    def begin_commit(self) -> Commit:
        """Return a commit of everything so far. HDF5 has flushed; rows of the next commit may follow at once.

        Raises
        ------
        DurabilityError
            An earlier write failed: there are no more commits.
        """
        if self.failure is not None:
            raise self.failure
        self._check_name()
        assert self._in_flight is None
        structures, rows = self._in_flight = self._dirty, self._dirty_rows
        self._dirty, self._dirty_rows = ExtentMap(), ExtentMap()
        if any(offset < SUPERBLOCK_BYTES for offset, _ in structures):
            superblock = bytearray(SUPERBLOCK_BYTES)
            structures.overlay(0, superblock)
            structures.put(0, without_flags(bytes(superblock)))
        # Not in `write_commit`: it runs in another thread, and would cut off rows written meanwhile.
        with durably("extend", self.path):
            if os.fstat(self._fd).st_size < self._size:
                os.ftruncate(self._fd, self._size)
        self._committed_bytes = self._size
        return Commit(self._size, [*structures, *rows])

    def _check_name(self) -> None:
        """Raise `DurabilityError` if the path names another file by now, or none."""
        try:
            if os.path.samestat(os.stat(self.path), os.fstat(self._fd)):
                return
        except OSError:
            pass
        message = f"{self.path!r} was removed, moved or replaced while the collector wrote it"
        self.failure = DurabilityError(f"{message}: put it back", path=self.path)
        raise self.failure

    def write_commit(self, commit: Commit) -> None:
        """Make a commit durable. May run in another thread; the next commit begins after `end_commit`.

        Raises
        ------
        DurabilityError
            The commit is not valid, and there are no more commits.
        """
        with self._failing("sync"):
            if self._synced:
                os.fdatasync(self._fd)
            self._log.append(commit.file_bytes, commit.extents)

    def end_commit(self) -> None:
        """Record that the commit is durable."""
        assert self._in_flight is not None
        structures, rows = self._in_flight
        self._logged.update(structures)
        self._logged_rows.update(rows)
        self._in_flight = None

    def apply(self) -> None:
        """Apply the logged changes to the file, and empty the log. Not while a commit is written."""
        assert self._in_flight is None
        if not self.unapplied_bytes and not self.is_new:
            return
        self.apply_rows()
        with self._failing("write"):
            for offset, data in self._logged:
                write_all(self._fd, data, offset)
            if self._synced:
                os.fdatasync(self._fd)
            superblock = os.pread(self._fd, SUPERBLOCK_BYTES, 0)
            self._log.restart(self._committed_bytes, superblock)
        self.is_new = False
        self._logged = ExtentMap()

    def apply_rows(self) -> None:
        """Apply the logged changes of rows only. Not while a commit is written.

        Readers of the file may see some of them; no structure that they follow moves.
        """
        with self._failing("write"):
            for offset, data in self._logged_rows:
                write_all(self._fd, data, offset)
        self._logged_rows = ExtentMap()

    def finish(self) -> None:
        """Commit and apply what HDF5 wrote when it closed the file, and remove the log."""
        self.write_commit(self.begin_commit())
        self.end_commit()
        self.apply()
        with durably("sync", self.path):
            os.ftruncate(self._fd, self._committed_bytes)
            os.fsync(self._fd)
        self._log.close(remove=True)
        os.close(self._fd)

    def abandon(self) -> None:
        """Close the file as it is on disk; `recover` restores the last commit."""
        self.failure = self.failure or DurabilityError(f"{self.path!r} was abandoned", path=self.path)
        # A network file system reports lost bytes here; no commit depends on them.
        with contextlib.suppress(OSError):
            self._log.close(remove=False)
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):
            os.close(fd)

    @contextlib.contextmanager
    def _failing(self, action: str) -> Iterator[None]:
        """Keep a `DurabilityError` of the body in `failure`."""
        try:
            with durably(action, self.path):
                yield
        except DurabilityError as error:
            self.failure = error
            raise
