"""Opening of an HDF5 file for reading, with a lock, or without where the file system has none."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import time
from typing import Any

import h5py

from shardkeep.errors import BudgetError, ShardkeepError
from shardkeep.files.locks.probe import HELD
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.handles import descriptor_of, exempt
from shardkeep.hdf5.locking.mode import VARIABLE, warn_if_stale
from shardkeep.hdf5.locking.open_errors import flock_errno, open_error
from shardkeep.hdf5.locking.open_file_budget import open_file_budget
from shardkeep.hdf5.read_errors import is_of_hdf5

__all__ = ["open_for_reading", "pauses", "read_access"]

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
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
    mode = warn_if_stale()
    locked = mode.effect != "off"
    pause = pauses(timeout_s)
    collected = False
    start = time.monotonic()
    while True:
        refuse_damage(path, name=name)
        try:
            file_id = _open(path, rdcc_nbytes, options, locked=locked)
        except Exception as error:
            if not is_of_hdf5(error) and not isinstance(error, PermissionError):
                raise
            number = flock_errno(error)
            if getattr(error, "errno", None) in _NO_DESCRIPTOR:
                if open_file_budget.close_all():
                    continue
                if collected:
                    raise _no_descriptor(name) from None
                # The garbage collector may close a file that is not referenced any more.
                gc.collect()
                collected = True
                continue
            if number is None:
                raise _why(name, path, error) from error
            if number in HELD:
                if next(pause, None) is None:
                    raise _why(name, path, error, waited_s=time.monotonic() - start) from error
            elif mode.effect == "on" or not locked:
                raise _why(name, path, error) from error
            else:
                # Reading without a lock is a risk only while another process writes.
                _warn_once(path, number)
                locked = False
            continue
        return file_id, descriptor_of(file_id, ours=True), _locking_text(locked, mode.effect)


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
        access.set_file_locking(False, True)
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


def _why(
    name: str, path: str, error: BaseException, waited_s: float | None = None
) -> ShardkeepError | PermissionError:
    return open_error(name if os.path.exists(name) else path, error, waited_s=waited_s)


def _no_descriptor(name: str) -> BudgetError:
    message = f"no descriptor is left to open {name!r}, and no HDF5 file is left to close"
    return BudgetError(f"{message}: raise ulimit -n, or close other files", path=name)


def _warn_once(path: str, number: int) -> None:
    with contextlib.suppress(OSError):
        device = os.stat(path).st_dev
        if device in _warned:
            return
        _warned.add(device)
    code = errno.errorcode.get(number, f"errno {number}")
    message = f"{path!r} is read without a lock: its file system refuses locks ({code})"
    warn_user(f"{message}; make sure that no process writes it meanwhile")


_warned: set[int] = set()
