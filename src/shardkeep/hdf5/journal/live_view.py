"""A whole view of a file that a collector writes: the lock that its readers share.

The collector brings new rows into the file about once a second, under the exclusive lock; what a reader sees
stays as it is while it holds the shared one. A file whose collector was killed is brought to its last commit
before it is read. Files that no collector wrote cost a ``stat`` and a look for one name.
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
    "open_whole",
    "reader_lock",
    "settle_before_writing",
]

OWN_GROUP = "_collector"
_TURN_S = 5.0
_Opened = TypeVar("_Opened")


def reader_lock(path: str, *, shared: bool, timeout_s: float | None) -> FileLock:
    """Return the lock that readers share, and that the collector holds while it changes the file in place."""
    return FileLock(readers_path(path), shared=shared, timeout_s=timeout_s, if_unsafe="trust")


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
    DurabilityError, UntrustedFileError
        A collector is at work, or was killed, and this user may not make the lock, or lock or log may be the
        work of another user.
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
            opened = open_it()
            file_id = id_of(opened)
            # A collector may start on its old file at any time, so the file of one is never read without.
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
            # A collector began meanwhile: it was in the middle of a change.
        except BaseException as error:
            if lock is not None:
                lock.release()
            if refusal is not None and isinstance(error, OSError):
                raise refusal from None
            raise
        collected = True


def hold_views(paths: Iterable[str], views: contextlib.ExitStack) -> set[str]:
    """Keep those files as they are that a collector writes, until `views` is closed; return which.

    Of the others nothing is held: of a file that a collector may start on later, who reads it twice has to
    look whether it changed.

    Raises
    ------
    LockTimeoutError, DurabilityError
        As `open_whole`.
    """
    held = set()
    for path in paths:
        if os.path.exists(log_path(path)):
            lock = _share(path, _TURN_S)
            if lock is not None:
                views.callback(lock.release)
                if _watch_log(path, views):
                    held.add(path)
    return held


def _watch_log(path: str, views: contextlib.ExitStack) -> bool:
    """Have the end of `views` raise if a collector had waited too long and went on; False if it has ended.

    It goes on at its end and at its start, and then the log is another one or none. The log that was there is
    kept open, so its number is not used again.
    """
    try:
        # Not to read it, which needs a right, and waits where another user has put a pipe.
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
            message = (
                f"the collector of {path!r} ended or began while the file was read, and waited no longer"
            )
            raise LockError(f"{message}: read it again", path=path)

    views.push(check)
    return True


def settle_before_writing(path: str, timeout_s: float | None, *, emptied: bool) -> None:
    """Bring a killed collector's commits into its file before somebody else writes it.

    Parameters
    ----------
    path : str
        Locked by the caller, by its `real_name`: no collector is at work.
    timeout_s : float or None
        How long to wait for readers; at least 5.
    emptied : bool
        Whether the caller throws the file away: then the commits go with it.

    Raises
    ------
    LockTimeoutError
        Somebody reads the file, and does not end.
    NotFoundError, FormatError, DurabilityError
        The commits are not of this file; it cannot be written. Nothing was changed.
    """
    if not os.path.exists(log_path(path)):
        return
    wait_s = None if timeout_s is None else max(timeout_s, _TURN_S)
    with reader_lock(path, shared=False, timeout_s=wait_s):
        if emptied:
            with durably("remove", log_path(path)):
                os.unlink(log_path(path))
        else:
            recover(real_name(path))


def is_collected(file_id: h5py.h5f.FileID) -> bool:
    """Whether a collector writes an open file, or wrote it."""
    try:
        return bool(file_id.links.exists(OWN_GROUP.encode()))
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        return False  # damaged: the next call on it says how


def _share(path: str, timeout_s: float | None) -> FileLock | None:
    if os.path.exists(log_path(path)):
        _recover_if_dead(path)
    try:
        # Its turns take milliseconds, so who would not wait for a writer waits for them all the same.
        wait_s = None if timeout_s is None else max(timeout_s, _TURN_S)
        return reader_lock(path, shared=True, timeout_s=wait_s).acquire()
    except LockTimeoutError:
        raise
    except (DurabilityError, LockError, UntrustedFileError):
        if os.path.exists(log_path(path)):
            raise
        return None


def _recover_if_dead(path: str) -> None:
    path = real_name(path)
    with contextlib.suppress(LockTimeoutError):
        FileLock(path, timeout_s=0.0, if_unsafe="warn").acquire().release()
        # Nobody writes it, and yet there is a log: its collector was killed. The readers' lock comes first:
        # whoever finds the other one taken waits for it, and so sees no half of a recovery.
        with (
            reader_lock(path, shared=False, timeout_s=0.0),
            FileLock(path, timeout_s=0.0, if_unsafe="warn"),
        ):
            recover(path)
