"""`InodeLock`: a file that a collector writes is one file, whatever name others know it by.

Lock, redo log, readers' lock and note go by the name of the file. Who comes by another name finds none of
them: a hard link, or the new name of a file that was moved. So

- a file with several names is refused at the start. A second collector could not know that it is written,
  nor, after a kill, that there is a log under another name whose commits are durable and not in the file;
- while it is written an exclusive lock lies on the file itself (``F_OFD_SETLK``), where all who can see it
  share one kernel. Elsewhere it may be another form of `flock`, and would keep readers out;
- and a shared `flock`, as HDF5 takes one: readers take theirs beside it, writers are refused by HDF5.
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
_PLACE = 1 << 62
_WAIT_S = 0.5


class InodeLock:
    """Held from `hold` to `release`; the caller has the lock of the name.

    Parameters
    ----------
    path : str
        Need not exist: then there is nothing to hold yet.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def hold(self) -> None:
        """Lock the file that has the name now; may be called again when it may be another one.

        Raises
        ------
        LockError
            It has another name.
        LockTimeoutError
            It is written under another name, or without a collector.
        """
        path = self._path
        with durably("open", path):
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, IsADirectoryError):
                return  # to be made yet; a folder is refused by its reader
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (self._fd >= 0 and os.path.samestat(os.fstat(self._fd), found)):
            os.close(fd)
            return
        self.release()
        self._fd = fd
        _held.add(self)
        try:
            if found.st_nlink > 1:
                message = f"{path!r} has {found.st_nlink} names (hard links), and lock and log go by the name"
                raise LockError(f"{message}: remove the others, or pass a copy of the file", path=path)
            if is_of_one_kernel(os.path.dirname(path) or ".") and not self._has_it_alone():
                message = f"{path!r} is written by a collector that knows it by another name"
                raise LockTimeoutError(f"{message}: end that one, or wait for it", path=path)
            if not self._is_shared():
                message = f"{path!r} is open for writing in a program that is no collector"
                raise LockTimeoutError(f"{message}: close it there", path=path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let it go."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd >= 0:
            os.close(fd)

    def _has_it_alone(self) -> bool:
        command = getattr(fcntl, "F_OFD_SETLK", None)
        if command is None:
            return True

        def take() -> None:
            fcntl.fcntl(self._fd, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PLACE, 1, 0))

        return _within(take)

    def _is_shared(self) -> bool:
        return _within(lambda: fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB))


def _within(take: Callable[[], None]) -> bool:
    """Take a lock within a moment; False if others have it. Where there are no such locks, none is taken."""
    pause = pauses(_WAIT_S)
    while True:
        try:
            take()
        except OSError as error:
            if error.errno not in HELD:
                return True
        else:
            return True
        if next(pause, None) is None:
            return False


_held: set[InodeLock] = set()


def _forget_in_child() -> None:
    # It belongs to the parent; a copy of the descriptor would keep it held after its end.
    for one in list(_held):
        with contextlib.suppress(OSError):
            one.release()


os.register_at_fork(after_in_child=_forget_in_child)
