"""A whole view of a file that a collector writes: the lock that its readers share.

The collector brings new rows into the file about once a second, under the exclusive lock; what a reader sees
stays as it is while it holds the shared one. A file whose collector was killed is brought to its last commit
before it is read. Files that no collector wrote cost a ``stat`` and a look for one name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TypeVar

import h5py

from shardkeep.errors import DurabilityError, LockError, LockTimeoutError
from shardkeep.files.lock import FileLock

__all__ = ["OWN_GROUP", "log_path", "open_whole", "reader_lock"]

OWN_GROUP = "_collector"
_TURN_S = 5.0
_Opened = TypeVar("_Opened")


def log_path(path: str) -> str:
    """Return the name of the redo log of a file; it is there while a collector writes, or was killed."""
    return f"{path}.redo"


def reader_lock(path: str, *, shared: bool, timeout_s: float | None) -> FileLock:
    """Return the lock that readers share, and that the collector holds while it changes the file in place."""
    return FileLock(f"{path}.readers", shared=shared, timeout_s=timeout_s, if_unsafe="trust")


def open_whole(
    path: str,
    timeout_s: float | None,
    open_it: Callable[[], _Opened],
    id_of: Callable[[_Opened], h5py.h5f.FileID],
) -> tuple[_Opened, FileLock | None]:
    """Open a file for reading; return it with the lock to release after it was closed.

    Parameters
    ----------
    path : str
    timeout_s : float or None
        How long to wait while a collector brings rows into the file, which takes milliseconds; at least 5.
    open_it : callable
        Opens it; may be called twice.
    id_of : callable
        Returns the identifier of what `open_it` returned.

    Returns
    -------
    tuple
        None instead of the lock if no collector wrote the file, or if nobody may make a lock there and
        no collector is at work.

    Raises
    ------
    LockTimeoutError
        The lock could not be had in time.
    DurabilityError
        A collector is at work, or was killed, and this user may not make the lock.
    """
    collected = os.path.exists(log_path(path))
    while True:
        lock = _share(path, timeout_s) if collected else None
        try:
            opened = open_it()
            file_id = id_of(opened)
            # A collector may start on its old file at any time, so the file of one is never read without.
            if collected or not file_id.links.exists(OWN_GROUP.encode()):
                return opened, lock
            file_id.close()
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        collected = True


def _share(path: str, timeout_s: float | None) -> FileLock | None:
    if os.path.exists(log_path(path)):
        _recover_if_dead(path)
    try:
        # Its turns take milliseconds, so who would not wait for a writer waits for them all the same.
        wait_s = None if timeout_s is None else max(timeout_s, _TURN_S)
        return reader_lock(path, shared=True, timeout_s=wait_s).acquire()
    except LockTimeoutError:
        raise
    except (DurabilityError, LockError):
        if os.path.exists(log_path(path)):
            raise
        return None


def _recover_if_dead(path: str) -> None:
    from shardkeep.hdf5.collect.live_file import recover

    with contextlib.suppress(LockTimeoutError):
        FileLock(path, timeout_s=0.0, if_unsafe="warn").acquire().release()
        # Nobody writes it, and yet there is a log: its collector was killed. The readers' lock comes first:
        # whoever finds the other one taken waits for it, and so sees no half of a recovery.
        with (
            reader_lock(path, shared=False, timeout_s=0.0),
            FileLock(path, timeout_s=0.0, if_unsafe="warn"),
        ):
            recover(path)
