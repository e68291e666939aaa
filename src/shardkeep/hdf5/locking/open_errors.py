"""Errors for files that HDF5 cannot open; `read_errors` has those of files that are open."""

from __future__ import annotations

import errno
import os
import re

import h5py

from shardkeep.errors import (
    BudgetError,
    CorruptDataError,
    FormatError,
    LockError,
    NotFoundError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.files.kinds.kind import identify
from shardkeep.files.locks.probe import HELD
from shardkeep.hdf5.locking.holders import conflict
from shardkeep.hdf5.read_errors import failed_read, first_line

__all__ = ["flock_errno", "open_error"]

_LOCK_ERRNO = re.compile(r"unable to lock file, errno = (\d+)")
_KERNEL_ENOTSUPP = 524  # a code of the kernel, not in errno, that some file systems return


def open_error(
    path: str, error: BaseException, *, writing: bool = False, waited_s: float | None = None
) -> ShardkeepError | OSError:
    """Return the error that says why `path` cannot be opened, and what to do.

    Parameters
    ----------
    path : str
    error : OSError or RuntimeError
        The error that h5py raised.
    writing : bool
        Whether the file was opened for writing.
    waited_s : float, optional
        How long a call that has a `timeout_s` waited for a lock.
    """
    number = getattr(error, "errno", None)
    text = first_line(error)
    lock_number = flock_errno(error)
    failed = failed_read(path, error) if lock_number is None else None
    if failed is not None:
        return failed
    if not os.path.exists(path):
        return NotFoundError(f"there is no file {path!r}: it was moved, removed or never written", path=path)
    if os.path.isdir(path):
        return FormatError(f"{path!r} is a folder, not an HDF5 file: pass the files in it", path=path)
    if number in (errno.EMFILE, errno.ENFILE):
        return BudgetError(f"no descriptor is left to open {path!r}: raise ulimit -n", path=path)
    if lock_number is not None and lock_number not in HELD:
        return _no_locks(path, lock_number, writing)
    if lock_number is not None or number in (errno.EAGAIN, errno.EWOULDBLOCK):
        return conflict(path, writing=writing, waited_s=waited_s)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        # The built-in error: the file itself may be undamaged.
        wish = "write" if writing else "read"
        return PermissionError(
            number, f"cannot be {'written' if writing else wish}: get the right to {wish} it", path
        )
    if "truncated file" in text:
        return TruncatedFileError(f"{path!r} is cut off ({text}): copy it again", path=path)
    if "already open for" in text and "h5clear" in text:
        message = f"{path!r} is marked as open by a writer, which was killed or still writes elsewhere"
        return CorruptDataError(f"{message}; if it was killed, repair a copy of the file", path=path)
    if "file is already open" in text or "already open" in text or "flag values don't match" in text:
        message = f"{path!r} is open in this process in another way ({text}): close that handle first"
        return LockError(message, path=path)
    if not _has_signature(path):
        return _other_kind(path)
    return CorruptDataError(f"HDF5 cannot read {path!r} ({text}): restore it from a copy", path=path)


def flock_errno(error: BaseException) -> int | None:
    """Return the error number of HDF5's failed ``flock``; None for another failure."""
    found = _LOCK_ERRNO.search(str(error))
    return None if found is None else int(found[1])


def _no_locks(path: str, number: int, writing: bool) -> LockError:
    code = "ENOTSUPP" if number == _KERNEL_ENOTSUPP else errno.errorcode.get(number, f"errno {number}")
    if writing:
        advice = "write a file per process (hdf5.WorkerFile), or send rows to one writer (a collector)"
    else:
        advice = "if no process writes the file, start the program with HDF5_USE_FILE_LOCKING=FALSE"
    failure = LockError(f"the file system of {path!r} refuses locks ({code}): {advice}", path=path)
    failure.errno = number
    return failure


def _other_kind(path: str) -> ShardkeepError:
    try:
        kind = identify(path)
    except (ShardkeepError, OSError):
        return FormatError(f"{path!r} is not an HDF5 file: it has no HDF5 signature", path=path)
    advice = kind.advice or "pass an HDF5 file"
    if kind.name == "empty":
        advice = "its writer was killed, or its copy failed: write or fetch it again"
    return FormatError(f"{path!r} is not an HDF5 file: it is {kind.described}; {advice}", path=path)


def _has_signature(path: str) -> bool:
    try:
        return bool(h5py.is_hdf5(path))
    except (OSError, RuntimeError):
        return False
