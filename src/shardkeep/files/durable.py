"""Durable writes: whole buffers, synced folders; and errors of the operating system, with path and advice."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from shardkeep.errors import DurabilityError, ShardkeepError

__all__ = [
    "FAILED_READS",
    "durability_error",
    "durably",
    "read_all",
    "read_error",
    "reading_from",
    "sync_folder",
    "write_all",
]

# Errors of a read that say nothing of the content of the file: the disk, the network or its server failed.
FAILED_READS = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENODEV,
        errno.ENXIO,
        errno.EREMOTEIO,
        errno.ESHUTDOWN,
    }
)

_ADVICE = {
    errno.ENOSPC: "free space on that file system and run it again",
    errno.EDQUOT: "raise the quota or remove files of this user",
    errno.EFBIG: "raise the limit of the file size (ulimit -f)",
    errno.EROFS: "choose a folder on a file system that is mounted writable",
    errno.EACCES: "get write permission there, or choose another folder",
    errno.EPERM: "get write permission there, or choose another folder",
    errno.EIO: "the disk or its network failed: check the kernel's log before you use it again",
    errno.ESTALE: "the file server no longer has this file: run it again, or mount the file system again",
    errno.ETIMEDOUT: "the file server does not answer: run it again when it does",
    errno.ENOTCONN: "the file system has lost its server: mount it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "a part of that path is a file: choose another folder",
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
    result = DurabilityError(f"cannot {action} {path!r}: {_reason(error)}", path=path)
    result.errno = error.errno
    return result


def read_error(path: str, error: OSError) -> OSError:
    """Return the built-in error for a read that failed, with path and advice; `errno` is kept."""
    return OSError(error.errno, f"cannot be read: {_reason(error)}", path)


@contextlib.contextmanager
def reading_from(path: str) -> Iterator[None]:
    """Name the file in an `OSError` of the body that names none, as those of ``os.pread`` do."""
    try:
        yield
    except ShardkeepError:
        raise
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise read_error(path, error) from error


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


def read_all(fd: int, buffer: Any, offset_bytes: int) -> int:
    """Fill a buffer with the bytes at an offset; return how many there are before the end of the file.

    One call of the system may read fewer, and none reads more than 2 GiB.
    """
    with memoryview(buffer) as view:
        done = 0
        while done < len(view) and (count := os.preadv(fd, [view[done:]], offset_bytes + done)):
            done += count
    return done


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _reason(error: OSError) -> str:
    number = error.errno or 0
    code = errno.errorcode.get(number, f"errno {number}")
    reason = os.strerror(number) if number else str(error)
    return f"{reason} ({code}); {_ADVICE.get(number, 'look up that error for this file system')}"
