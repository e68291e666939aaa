"""`LiveFile`: one HDF5 file, written in place, that no kill can break.

HDF5 sees a Python file. Three rules make it safe although HDF5 overwrites its own structures:

1. Bytes that the last commit speaks of are never overwritten directly. A change of them is held in
   memory, and goes into the redo log as a whole when the next commit is made.
2. Bytes behind the end of the last commit are written at once: no committed structure points
   there. Rows go this way (`allocate`, `write_rows`), so they are written once.
3. What the log says is brought into the file (`apply`) after it was logged, and the log is
   forgotten after that. A crash in between is repaired by doing it again
   (`shardkeep.hdf5.journal.recovery`). Bytes that are no
   structure of HDF5 may be brought in earlier (`apply_rows`); the log keeps them until `apply`.

So the state of the file is that of the last whole record of the log, or, without one, the file itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardkeep.errors import DurabilityError, ShardkeepError
from shardkeep.files.durable import durability_error, durably
from shardkeep.files.owner import this_process
from shardkeep.files.positioned import PositionedFile
from shardkeep.hdf5.journal.extent_map import ExtentMap
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import Extent, LogHeader, RedoLog, write_all
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES, without_flags

__all__ = ["Commit", "LiveFile", "sync_folder"]

# The path is one without links (`real_name`).
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Commit:
    """A commit that was begun: what has to be written before it stands."""

    file_bytes: int
    extents: list[Extent]


class LiveFile(PositionedFile):
    """What HDF5 writes to.

    Parameters
    ----------
    path : str
        Recovered before (`shardkeep.hdf5.journal.recovery.recover`), and locked by the caller.
    synced : bool
        Whether commits survive a power cut, or only the death of processes.
    """

    def __init__(self, path: str, *, synced: bool) -> None:
        self.path = path
        self.failure: ShardkeepError | None = None
        self._synced = synced
        boot = this_process().boot
        with durably("open", path):
            try:
                self._fd = os.open(path, os.O_RDWR | _SAFE)
            except FileNotFoundError:
                self._fd = -1
        self.fresh = self._fd < 0
        try:
            # The log first: a file without one would be taken for a whole one.
            self._log = self._make_log(boot)
        except BaseException:
            if self._fd >= 0:
                os.close(self._fd)
            raise
        try:
            with durably("open", path):
                if self.fresh:
                    self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)
                self._size = os.fstat(self._fd).st_size
                if synced:
                    sync_folder(path)
        except BaseException:
            self.abandon()
            raise
        self._floor = self._size
        # Structures of HDF5, and the bytes of `change`: never the same ones.
        self._dirty, self._dirty_rows = ExtentMap(), ExtentMap()
        self._logged, self._logged_rows = ExtentMap(), ExtentMap()
        self._in_flight: tuple[ExtentMap, ExtentMap] | None = None
        self._muted: tuple[int, int] | None = None
        self._muted_at: int | None = None
        self._nothing = np.zeros(0, np.uint8)
        self._nothing_at = 0

    def _make_log(self, boot: str) -> RedoLog:
        if self.fresh:
            return RedoLog(log_path(self.path), LogHeader(True, self._synced, boot, 0))
        with durably("read", self.path):
            found, start = os.fstat(self._fd), os.pread(self._fd, SUPERBLOCK_BYTES, 0)
        header = LogHeader(False, self._synced, boot, found.st_size, superblock=start.hex())
        return RedoLog(log_path(self.path), header, found)

    # -- what HDF5 calls ---------------------------------------------------------------------------------

    def _end_bytes(self) -> int:
        return self._size

    def readinto(self, buffer: Any) -> int:
        """Read at the position: the file, and above it what is not in it yet."""
        with memoryview(buffer) as view, view.cast("B") as target:
            count = min(len(target), max(self._size - self._position, 0))
            done = 0
            while done < count:
                got = os.preadv(self._fd, [target[done:count]], self._position + done)
                if got == 0:  # not that long on disk yet
                    target[done:count] = bytes(count - done)
                    break
                done += got
            for layer in self._layers():
                layer.lay_over(self._position, target[:count])
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Write at the position; a failure is kept in `failure`, since HDF5 cannot stand one."""
        with memoryview(data) as view, view.cast("B") as rest:
            size, offset = len(rest), self._position
            self._position += size
            self._size = max(self._size, self._position)
            if self._muted is not None and self._is_muted(rest):
                self._muted_at = offset
                return size
            below = max(min(self._floor - offset, size), 0)
            # The superblock always goes through the log: its flags are taken off there.
            if offset < SUPERBLOCK_BYTES:
                below = size
            try:
                if below:
                    self._dirty.put(offset, bytes(rest[:below]))
                if below < size and self.failure is None:
                    write_all(self._fd, rest[below:], offset + below)
            except OSError as error:
                self.failure = self.failure or durability_error("write", self.path, error)
            except MemoryError:
                reason = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
                self.failure = self.failure or durability_error("write", self.path, reason)
            return size

    def truncate(self, size: int | None = None) -> int:
        """Note the length; the file itself gets it with the next commit."""
        self._size = self._position if size is None else size
        return self._size

    def _layers(self) -> list[ExtentMap]:
        return [
            *(self._logged, self._logged_rows),
            *(self._in_flight or ()),
            *(self._dirty, self._dirty_rows),
        ]

    # -- rows ----------------------------------------------------------------------------------------------

    def allocate(self, write_chunk: Callable[[np.ndarray[Any, Any]], None], size: int) -> int:
        """Have HDF5 find a place for a chunk, without writing it; return the offset.

        Parameters
        ----------
        write_chunk : callable
            Calls ``write_direct_chunk`` with the array that it is given.
        size : int
            Bytes of the chunk. They read as zeros until `write_rows` writes them.
        """
        nothing = self._nothing
        if len(nothing) != size:
            nothing = self._nothing = np.zeros(size, np.uint8)  # its pages are never touched
            self._nothing_at = nothing.ctypes.data
        self._muted, self._muted_at = (self._nothing_at, size), None
        try:
            write_chunk(nothing)
        finally:
            self._muted = None
        if self._muted_at is None:
            raise AssertionError("HDF5 wrote a chunk in another way than expected")
        return self._muted_at

    def write_rows(self, offset: int, data: Any) -> None:
        """Write rows that no commit speaks of, into a chunk from `allocate`.

        Raises
        ------
        DurabilityError
            Full disk, quota, I/O error. Commits so far are untouched.
        """
        try:
            write_all(self._fd, data, offset)
        except OSError as error:
            raise durability_error("write", self.path, error) from error

    def change(self, offset: int, data: bytes) -> None:
        """Write bytes that a commit may speak of: through the log where it does."""
        if offset >= self._floor:
            self.write_rows(offset, data)
        else:
            self._dirty_rows.put(offset, data)

    def read_at(self, offset: int, size: int) -> bytearray:
        """Return bytes as they are now, logged or not."""
        result = bytearray(size)
        self.read_into(offset, result)
        return result

    def read_into(self, offset: int, target: Any) -> None:
        """Do the same into memory that is there."""
        before, self._position = self._position, offset
        try:
            self.readinto(target)
        finally:
            self._position = before

    def _is_muted(self, data: memoryview) -> bool:
        assert self._muted is not None
        address, size = self._muted
        return len(data) == size and np.frombuffer(data, np.uint8).ctypes.data == address

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def changed_bytes(self) -> int:
        """Memory that changes for the next commit take."""
        return self._dirty.held_bytes + self._dirty_rows.held_bytes

    @property
    def log_bytes(self) -> int:
        """Length of the redo log."""
        return self._log.bytes

    @property
    def unapplied_bytes(self) -> int:
        """Memory that changes take which are logged, but not in the file yet."""
        return self._logged.held_bytes + self._logged_rows.held_bytes

    @property
    def held_bytes(self) -> int:
        """Memory that all changes take."""
        return sum(one.held_bytes for one in self._layers())

    def begin_commit(self) -> Commit:
        """Fix what the commit holds; call it after HDF5 has flushed. Rows may be written on at once.

        Raises
        ------
        DurabilityError
            Something could not be written before: there will be no more commits.
        """
        if self.failure is not None:
            raise self.failure
        self._check_in_place()
        assert self._in_flight is None
        structures, rows = self._in_flight = self._dirty, self._dirty_rows
        self._dirty, self._dirty_rows = ExtentMap(), ExtentMap()
        superblock = bytearray(SUPERBLOCK_BYTES)
        probe = [data for offset, data in structures if offset < SUPERBLOCK_BYTES]
        if probe:
            structures.lay_over(0, superblock)
            structures.put(0, without_flags(bytes(superblock)))
        # Here and not in `write_commit`: rows that are written meanwhile would be cut off.
        with durably("extend", self.path):
            if os.fstat(self._fd).st_size < self._size:
                os.ftruncate(self._fd, self._size)
        self._floor = self._size
        return Commit(self._size, [*structures, *rows])

    def _check_in_place(self) -> None:
        """Raise `DurabilityError` if the name of the file means another one, or nothing, by now."""
        mine = os.fstat(self._fd)
        try:
            named = os.stat(self.path)
        except OSError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino):
            message = f"{self.path!r} was removed, moved or replaced while the collector wrote it"
            self.failure = DurabilityError(f"{message}: put it back", path=self.path)
            raise self.failure

    def write_commit(self, commit: Commit) -> None:
        """Make it stand. May run in another thread; the next one begins after `end_commit`.

        Raises
        ------
        DurabilityError
            It does not stand, and there will be no more commits.
        """
        try:
            with durably("sync", self.path):
                if self._synced:
                    os.fdatasync(self._fd)
            self._log.append(commit.file_bytes, commit.extents)
        except DurabilityError as error:
            self.failure = error
            raise

    def end_commit(self) -> None:
        """Note that the commit stands."""
        assert self._in_flight is not None
        structures, rows = self._in_flight
        self._logged.update(structures)
        self._logged_rows.update(rows)
        self._in_flight = None

    def apply(self) -> None:
        """Bring what is logged into the file, and forget the log. Not while a commit is written."""
        assert self._in_flight is None
        if not self.unapplied_bytes and not self.fresh:
            return
        self.apply_rows()
        try:
            with durably("write", self.path):
                for offset, data in self._logged:
                    write_all(self._fd, data, offset)
                if self._synced:
                    os.fdatasync(self._fd)
                superblock = os.pread(self._fd, SUPERBLOCK_BYTES, 0)
            self._log.restart(self._floor, superblock)
        except DurabilityError as error:
            self.failure = error
            raise
        self.fresh = False
        self._logged = ExtentMap()

    def apply_rows(self) -> None:
        """Bring what is logged and no structure of HDF5 into the file. Not while a commit is written.

        Who reads the file meanwhile sees some of it; nothing that they follow moves.
        """
        try:
            with durably("write", self.path):
                for offset, data in self._logged_rows:
                    write_all(self._fd, data, offset)
        except DurabilityError as error:
            self.failure = error
            raise
        self._logged_rows = ExtentMap()

    def finish(self) -> None:
        """After HDF5 has closed: one last commit, everything into the file, and no log any more."""
        self.write_commit(self.begin_commit())
        self.end_commit()
        self.apply()
        with durably("sync", self.path):
            os.ftruncate(self._fd, self._floor)
            os.fsync(self._fd)
        self._log.close(remove=True)
        os.close(self._fd)

    def abandon(self) -> None:
        """Let the file go as it is on disk; `recover` brings it to the last commit."""
        self.failure = self.failure or DurabilityError(f"{self.path!r} was given up", path=self.path)
        # A network file system tells here that bytes are lost; no commit has counted on them.
        with contextlib.suppress(OSError):
            self._log.close(remove=False)
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):
            os.close(fd)


def sync_folder(path: str) -> None:
    """Make the names in the folder of a file durable."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
