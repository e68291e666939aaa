"""`InodeLock`: the lock of a collector on the file itself, for processes that use another name of it.

The lock of a file, its redo log, readers' lock and address file are named after the file. A process that
comes by another name (a hard link, or the new name of a file that was moved) finds none of them. Therefore:

- A file with several names is refused at the start. A second collector could not detect the first one, nor,
  after a kill, a log under another name, whose commits are durable and not in the file.
- A collector holds an exclusive lock on one byte of the file (``F_OFD_SETLK``), unless the file system is
  shared with other hosts: there it may be another form of `flock`, and would exclude readers.
- It holds a shared `flock` on the file. Readers take theirs as well, and HDF5 refuses to open the file for
  writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
from collections.abc import Callable

from shardkeep.errors import LockError, LockTimeoutError
from shardkeep.files.durable import durably
from shardkeep.files.locks.probe import HELD, is_of_one_kernel
from shardkeep.hdf5.locking.reading import pauses

__all__ = ["InodeLock"]

_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process
_OFFSET = 1 << 62
_WAIT_S = 0.5


class InodeLock:
    """A lock on the file itself, from `acquire` to `release`. The caller holds the lock of the name.

    Parameters
    ----------
    path : str
        Need not exist: then there is nothing to lock yet.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def acquire(self) -> None:
        """Lock the file that has the name now; may be called again after it was created.

        Raises
        ------
        LockError
            The file has another name.
        LockTimeoutError
            The file is being written under another name, or without a collector.
        """
        path = self._path
        with durably("open", path):
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, IsADirectoryError):
                return  # not created yet; a folder is refused by the code that opens it
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or (
            self._fd >= 0 and os.path.samestat(os.fstat(self._fd), status)
        ):
            os.close(fd)
            return
        self.release()
        self._fd = fd
        _held.add(self)
        try:
            if status.st_nlink > 1:
                message = (
                    f"{path!r} has {status.st_nlink} names (hard links), and lock and log go by the name"
                )
                raise LockError(f"{message}: remove the others, or pass a copy of the file", path=path)
            if is_of_one_kernel(os.path.dirname(path) or ".") and not _acquired(self._lock_byte):
                message = f"{path!r} is being written by a collector under another name"
                raise LockTimeoutError(f"{message}: end that collector, or wait for it", path=path)
            if not _acquired(lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)):
                message = f"{path!r} is open for writing in a program that is not a collector"
                raise LockTimeoutError(f"{message}: close it there", path=path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd >= 0:
            os.close(fd)

    def _lock_byte(self) -> None:
        command = getattr(fcntl, "F_OFD_SETLK", None)
        if command is not None:
            fcntl.fcntl(self._fd, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OFFSET, 1, 0))


def _acquired(lock: Callable[[], None]) -> bool:
    """Return False if another process holds a lock for longer than a moment.

    On a file system without such locks none is acquired.
    """
    pause = pauses(_WAIT_S)
    while True:
        try:
            lock()
        except OSError as error:
            if error.errno not in HELD:
                return True
        else:
            return True
        if next(pause, None) is None:
            return False


_held: set[InodeLock] = set()


def _forget_in_child() -> None:
    # It belongs to the parent; a copy of the descriptor would keep it held after the end of the parent.
    for one in list(_held):
        with contextlib.suppress(OSError):
            one.release()


os.register_at_fork(after_in_child=_forget_in_child)
