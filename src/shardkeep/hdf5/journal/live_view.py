"""Consistent views of files that collectors write, under a lock that readers share.

A collector applies its commits to the file about once a second, under the exclusive lock ``FILE.readers``. A
reader holds that lock shared, so the file stays unchanged until it releases the lock. A file whose collector
was killed is recovered before it is read. For a file that no collector wrote this costs a ``stat`` and the
look-up of one name.

Locks are taken in a fixed order: the readers' lock, then the lock of the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

import h5py

from shardkeep.errors import (
    CorruptDataError,
    DurabilityError,
    LockError,
    LockTimeoutError,
    UntrustedFileError,
)
from shardkeep.files.durable import durably
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.journal.paths import log_path, readers_path, real_name
from shardkeep.hdf5.journal.recovery import recover
from shardkeep.hdf5.read_errors import is_of_hdf5

__all__ = [
    "OWN_GROUP",
    "hold_views",
    "is_collected",
    "open_consistent",
    "reader_lock",
    "recover_before_writing",
]

OWN_GROUP = "_collector"
# Collectors hold the lock for milliseconds, so that callers that wait for no writer wait for them.
_LEAST_WAIT_S = 5.0
_Opened = TypeVar("_Opened")


def reader_lock(path: str, *, shared: bool, timeout_s: float | None) -> FileLock:
    """Return the lock that readers share, and that a collector holds while it changes the file in place."""
    return FileLock(readers_path(path), shared=shared, timeout_s=timeout_s, if_unsafe="trust")


def open_consistent(
    path: str,
    timeout_s: float | None,
    open_file: Callable[[], _Opened],
    id_of: Callable[[_Opened], h5py.h5f.FileID],
) -> tuple[_Opened, FileLock | None]:
    """Open a file for reading; return it with the lock to release after the file was closed.

    Parameters
    ----------
    path : str
    timeout_s : float or None
        How long to wait while a collector applies rows to the file; at least 5.
    open_file : callable
        Opens the file; may be called twice.
    id_of : callable
        Returns the identifier of the result of `open_file`.

    Returns
    -------
    tuple
        None instead of the lock if no collector wrote the file, or if this user cannot create the lock and
        no collector is running.

    Raises
    ------
    LockTimeoutError
        The lock was not released in time.
    DurabilityError, UntrustedFileError
        A collector is running, or was killed, and this user cannot create the lock, or the lock or the log
        may be the work of another user.
    """
    collected = os.path.exists(log_path(path))
    while True:
        lock, refusal = None, None
        if collected:
            try:
                lock = _share(path, timeout_s)
            except UntrustedFileError as error:
                refusal = error
        try:
            opened = open_file()
            file_id = id_of(opened)
            # A collector may start on its old file at any time, so that file is never read unlocked.
            if not is_collected(file_id):
                if refusal is not None:
                    warn_user(f"{refusal}; no collector wrote {path!r}, so it is read as it is")
                return opened, lock
            if collected and refusal is None:
                return opened, lock
            file_id.close()
            if refusal is not None:
                raise refusal
        except CorruptDataError:
            if lock is not None:
                lock.release()
            if refusal is not None or collected or not os.path.exists(log_path(path)):
                raise
            # A collector began meanwhile, and was in the middle of a change: read again under the lock.
        except BaseException as error:
            if lock is not None:
                lock.release()
            if refusal is not None and isinstance(error, OSError):
                raise refusal from None
            raise
        collected = True


def hold_views(paths: Iterable[str], views: contextlib.ExitStack) -> set[str]:
    """Keep the files that collectors write unchanged until `views` is closed; return their paths.

    A collector may start later on one of the other files: a caller that reads one of them twice has to check
    whether it changed.

    Raises
    ------
    LockTimeoutError, DurabilityError
        As `open_consistent`.
    """
    held = set()
    for path in paths:
        if os.path.exists(log_path(path)):
            lock = _share(path, _LEAST_WAIT_S)
            if lock is not None:
                views.callback(lock.release)
                if _watch_log(path, views):
                    held.add(path)
    return held


def _watch_log(path: str, views: contextlib.ExitStack) -> bool:
    """Make the end of `views` raise if a collector stopped waiting for the lock; False if it has ended.

    A collector waits for a limited time at its start and at its end. If it continues without the lock, the
    log is replaced or removed. The log of before stays open, so its inode number is not used again.
    """
    try:
        # Not opened for reading: that needs a permission, and waits if another user has put a pipe there.
        fd = os.open(log_path(path), getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False

    def check(_kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            same = os.path.samestat(os.fstat(fd), os.lstat(log_path(path)))
        except OSError:
            same = False
        finally:
            os.close(fd)
        if error is None and not same:
            message = f"the collector of {path!r} ended or began while the file was read"
            raise LockError(f"{message}, and waited no longer: read it again", path=path)

    views.push(check)
    return True


def recover_before_writing(path: str, timeout_s: float | None, *, emptied: bool) -> None:
    """Apply the commits of a killed collector to its file before another program writes the file.

    Parameters
    ----------
    path : str
        Locked by the caller, by its `real_name`: no collector is running.
    timeout_s : float or None
        How long to wait for readers; at least 5.
    emptied : bool
        Whether the caller empties the file: then the commits are removed with it.

    Raises
    ------
    LockTimeoutError
        A reader did not release the file in time.
    NotFoundError, FormatError, DurabilityError
        The commits belong to another file; the file cannot be written. Nothing was changed.
    """
    if not os.path.exists(log_path(path)):
        return
    with reader_lock(path, shared=False, timeout_s=_at_least(timeout_s)):
        if emptied:
            with durably("remove", log_path(path)):
                os.unlink(log_path(path))
        else:
            recover(real_name(path))


def is_collected(file_id: h5py.h5f.FileID) -> bool:
    """Return whether a collector writes an open file, or wrote it."""
    try:
        return bool(file_id.links.exists(OWN_GROUP.encode()))
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        return False  # damaged: the next call on it reports the damage


def _share(path: str, timeout_s: float | None) -> FileLock | None:
    if os.path.exists(log_path(path)):
        _recover_if_dead(real_name(path))
    try:
        return reader_lock(path, shared=True, timeout_s=_at_least(timeout_s)).acquire()
    except LockTimeoutError:
        raise
    except (DurabilityError, LockError, UntrustedFileError):
        if os.path.exists(log_path(path)):
            raise
        return None


def _recover_if_dead(path: str) -> None:
    with contextlib.suppress(LockTimeoutError):
        FileLock(path, timeout_s=0.0, if_unsafe="warn").acquire().release()
        # The file is not locked and there is a log: its collector was killed. The readers' lock comes first:
        # a reader that finds the file locked waits for that lock, and does not see half of a recovery.
        with (
            reader_lock(path, shared=False, timeout_s=0.0),
            FileLock(path, timeout_s=0.0, if_unsafe="warn"),
        ):
            recover(path)


def _at_least(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else max(timeout_s, _LEAST_WAIT_S)
