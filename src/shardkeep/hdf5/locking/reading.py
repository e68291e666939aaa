"""Opening of an HDF5 file for reading, with a lock, or without where the file system has none."""

from __future__ import annotations

import errno
import fcntl
import functools
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import h5py

from shardkeep.errors import BudgetError
from shardkeep.files.locks.probe import HELD
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.handles import descriptor_of, exempt
from shardkeep.hdf5.locking.mode import VARIABLE, locking_mode, warn_if_stale
from shardkeep.hdf5.locking.open_errors import flock_errno, open_error
from shardkeep.hdf5.locking.open_file_budget import open_file_budget
from shardkeep.hdf5.read_errors import is_of_hdf5

__all__ = [
    "link_access",
    "locks",
    "open_for_reading",
    "open_with_or_without_lock",
    "pauses",
    "read_access",
]

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
_OTHER_LOCKING = "file locking flag values don't match"
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


def open_for_reading(
    path: str, name: str, timeout_s: float | None, rdcc_nbytes: int, options: dict[str, Any]
) -> tuple[h5py.h5f.FileID, int | None, str]:
    """Return the identifier, its descriptor, and the text of `File.locking`.

    Parameters
    ----------
    path : str
        Absolute path.
    name : str
        The path as the caller wrote it, for errors.
    timeout_s : float or None
        How long to wait for a writer.
    rdcc_nbytes : int
        Size of the chunk cache of each dataset.
    options : dict
        Options of `h5py.File`.

    Raises
    ------
    ShardkeepError, PermissionError
        As `shardkeep.hdf5.open` for mode "r".
    """
    effect = warn_if_stale().effect
    pause = pauses(timeout_s)
    collected = False
    start = time.monotonic()
    while True:
        refuse_damage(path, name=name)
        try:
            file_id, locked = open_with_or_without_lock(
                path, lambda locked: _open(path, rdcc_nbytes, options, locked=locked)
            )
        except Exception as error:
            if not is_of_hdf5(error) and not isinstance(error, PermissionError):
                raise
            if getattr(error, "errno", None) in _NO_DESCRIPTOR:
                if open_file_budget.close_all():
                    continue
                if collected:
                    message = f"no descriptor is left to open {name!r}, and no HDF5 file is left to close"
                    raise BudgetError(
                        f"{message}: raise ulimit -n, or close other files", path=name
                    ) from None
                # The garbage collector may close a file that is not referenced any more.
                gc.collect()
                collected = True
                continue
            waited_s = None
            if flock_errno(error) in HELD:
                if next(pause, None) is not None:
                    continue
                waited_s = time.monotonic() - start
            raise open_error(name if os.path.exists(name) else path, error, waited_s=waited_s) from error
        return file_id, descriptor_of(file_id, ours=True), _locking_text(locked, effect)


def open_with_or_without_lock(
    path: str, open_file: Callable[[bool], h5py.h5f.FileID]
) -> tuple[h5py.h5f.FileID, bool]:
    """Open a file under HDF5's lock, or without it where the file system has no locks, with a warning.

    HDF5 refuses a second handle of one file in a process unless it asks for the same lock as the first, so
    one answer holds for all files of a file system.

    Parameters
    ----------
    path : str
        The file.
    open_file : callable
        Opens it, as ``open_file(locked)``; raises the errors of HDF5.

    Returns
    -------
    tuple
        The identifier, and whether HDF5 locked the file.
    """
    locked = locks(path)
    try:
        return open_file(locked), locked
    except (OSError, RuntimeError) as error:
        number = flock_errno(error)
        if number is None and _OTHER_LOCKING in str(error):
            if not locked:  # a handle from before the file system refused a lock
                return open_file(True), True
            number = _refusal(path)
        if number is None or number in HELD or not locked or locking_mode().effect != "asked":
            raise
        _forget_locks(path, number)
        return open_file(False), False


def locks(path: str) -> bool:
    """Return whether HDF5 locks a file that is opened for reading, as far as that is known."""
    effect = locking_mode().effect
    if effect == "asked" and _without_locks:
        try:
            return os.stat(path).st_dev not in _without_locks
        except (OSError, ValueError):
            return True
    return effect != "off"


@functools.lru_cache(maxsize=8)
def read_access(rdcc_nbytes: int | None = None, *, locked: bool = True) -> h5py.h5p.PropFAID:
    """Return the properties with which a file is opened for reading.

    h5py.File would create them for every file, which is half of the cost of opening it.

    Parameters
    ----------
    rdcc_nbytes : int, optional
        Size of the chunk cache of each dataset; HDF5's default without it.
    locked : bool
        Whether HDF5 takes its lock.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # h5py's own: two handles of one file in one process must have the same, or the second one fails.
    with h5py.File("empty", "w", driver="core", backing_store=False) as file:
        access.set_fclose_degree(file.id.get_access_plist().get_fclose_degree())
    if rdcc_nbytes is not None:
        elements, slots, _, preemption = access.get_cache()
        access.set_cache(elements, slots, rdcc_nbytes, preemption)
    if not locked:
        access.set_file_locking(False, False)
    return access


@functools.lru_cache(maxsize=2)
def link_access(*, locked: bool = True) -> h5py.h5p.PropLAID:
    """Return the properties with which external links are followed: as h5py's, with or without locks."""
    access = h5py.h5p.create(h5py.h5p.LINK_ACCESS)
    access.set_elink_fapl(read_access(locked=locked))
    return access


def pauses(timeout_s: float | None) -> Any:
    """Return an iterator that sleeps before each next value, ever longer, and ends after `timeout_s`."""
    start = time.monotonic()
    pause_s = _FIRST_PAUSE_S
    while True:
        left_s = pause_s if timeout_s is None else timeout_s - (time.monotonic() - start)
        if left_s <= 0:
            return
        time.sleep(min(pause_s, left_s))
        yield True
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _open(path: str, rdcc_nbytes: int, options: dict[str, Any], *, locked: bool) -> h5py.h5f.FileID:
    if not options or options.keys() == {"rdcc_nbytes"}:
        return h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, read_access(rdcc_nbytes, locked=locked))
    with exempt():
        return h5py.File(path, "r", **options, **({} if locked else {"locking": False})).id


def _locking_text(locked: bool, effect: str) -> str:
    if effect == "off":
        return f"none ({VARIABLE} switches locks off)"
    return "flock, shared" if locked else "none (the file system refuses locks)"


def _refusal(path: str) -> int | None:
    """Return the error number with which the file system refuses a lock; None if it has locks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno
    else:
        return None
    finally:
        os.close(fd)


def _forget_locks(path: str, number: int) -> None:
    # Reading without a lock is a risk only while another process writes.
    try:
        _without_locks.add(os.stat(path).st_dev)
    except OSError:
        return
    code = errno.errorcode.get(number, f"errno {number}")
    message = f"{path!r} is read without a lock: its file system refuses locks ({code})"
    warn_user(f"{message}; make sure that no process writes it meanwhile")


# Devices.
_without_locks: set[int] = set()
