"""Durable writes: whole buffers, synced folders, and errors of the operating system with advice."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from shardkeep.errors import DurabilityError, ShardkeepError

__all__ = ["durability_error", "durably", "sync_folder", "write_all"]

_ADVICE = {
    errno.ENOSPC: "free space on that file system and run it again",
    errno.EDQUOT: "raise the quota or remove files of this user",
    errno.EFBIG: "raise the limit of the file size (ulimit -f)",
    errno.EROFS: "choose a folder on a file system that is mounted writable",
    errno.EACCES: "get write permission there, or choose another folder",
    errno.EPERM: "get write permission there, or choose another folder",
    errno.EIO: "the disk or its network failed: check the kernel's log before you use it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def durability_error(action: str, path: str, error: OSError) -> DurabilityError:
    """Return the `DurabilityError` for an error of the kernel; `errno` is kept.

    Parameters
    ----------
    action : str
        The failed action, as in "cannot *write*".
    path : str
        The final name, not the temporary one.
    error : OSError
    """
    number = error.errno or 0
    code = errno.errorcode.get(number, f"errno {number}")
    reason = os.strerror(number) if number else str(error)
    advice = _ADVICE.get(number, "look up that error for this file system")
    result = DurabilityError(f"cannot {action} {path!r}: {reason} ({code}); {advice}", path=path)
    result.errno = error.errno
    return result


@contextlib.contextmanager
def durably(action: str, path: str) -> Iterator[None]:
    """Turn any `OSError` of the body into a `DurabilityError` about `path`."""
    try:
        yield
    except ShardkeepError:
        raise
    except OSError as error:
        raise durability_error(action, path, error) from error


def write_all(fd: int, data: Any, offset_bytes: int) -> None:
    """Write all bytes of a buffer at an offset; one call of the system may write fewer."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(fd, view[done:], offset_bytes + done)


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
