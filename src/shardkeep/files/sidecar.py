"""Files next to the data (sidecars), opened only if no other user can have prepared them.

Lock files, the address file and the redo log of a collector, spill files and indexes have names that are easy
to guess. In a folder that other users can write, one of them can create such a name first: a symbolic or hard
link to a file of this user, a named pipe on which the open would block, or a file with content of their
choice. Each sidecar is therefore opened here, and is checked on its descriptor, which no rename can change:

- It is a regular file with one name (CVE-2016-1247 and similar attacks write through a planted link).
- Its owner is trusted: this user, root, or the owner of the data that it belongs to.
- Other users can write it only if they can write the data as well.

`open_sidecar` never creates or truncates a file, and `make_sidecar` only creates one. ``O_CREAT`` without
``O_EXCL`` would fail on the file of another user in ``/tmp`` (``fs.protected_regular``), even for root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container

from shardkeep.errors import UntrustedFileError
from shardkeep.files.kinds.special import describe_special

__all__ = ["ANY_USER", "make_sidecar", "open_sidecar", "trusted_users", "user_name"]

ANY_USER: Container[int] = range(1 << 32)
"""Every user, for a file whose content is not trusted anyway."""

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Each try needs another file that replaces the one just opened; some FUSE file systems always say 0 links.
_TRIES = 100


def trusted_users() -> frozenset[int]:
    """Return the users whose files are trusted: this user and root."""
    return frozenset({os.geteuid(), 0})


def open_sidecar(
    path: str,
    what: str,
    flags: int = os.O_RDONLY,
    *,
    owners: Container[int] | None = None,
    data: os.stat_result | None = None,
    folder_fd: int | None = None,
) -> int:
    """Open an existing sidecar, and check the opened file.

    Parameters
    ----------
    path : str
    what : str
        Kind of the sidecar for error messages, such as "lock file".
    flags : int
        ``os.O_RDONLY``, ``os.O_RDWR`` and ``os.O_APPEND``, without flags that create or truncate.
    owners : container of int, optional
        Users that may own the file; `trusted_users` by default.
    data : os.stat_result, optional
        Status of the data file. Users that can write the data may be able to write the sidecar too.
    folder_fd : int, optional
        Descriptor of the folder that `path` is relative to.

    Returns
    -------
    int
        The descriptor.

    Raises
    ------
    UntrustedFileError
        The file does not pass the checks.
    OSError
        The open fails. A file that loses its name to another one during the open is opened again.
    """
    owners = trusted_users() if owners is None else owners
    for _ in range(_TRIES):
        try:
            fd = os.open(path, flags | _SAFE, dir_fd=folder_fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            # ELOOP of a link, ENXIO of a pipe or a socket, EISDIR, EACCES: the status of the name is only
            # for the message.
            try:
                found = os.lstat(path, dir_fd=folder_fd)
            except OSError:
                raise error from None
            _check(path, what, found, owners=owners, data=data)
            raise
        try:
            found = os.fstat(fd)
            if found.st_nlink:
                _check(path, what, found, owners=owners, data=data)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise FileNotFoundError(2, os.strerror(2), path)


def make_sidecar(path: str, flags: int = os.O_RDWR, *, mode: int = 0o600) -> int:
    """Create a sidecar and return its descriptor.

    Raises
    ------
    FileExistsError
        The name exists, even as a broken link.
    OSError
        The file cannot be created.
    """
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFE, mode)


def _check(
    path: str,
    what: str,
    found: os.stat_result,
    *,
    owners: Container[int],
    data: os.stat_result | None = None,
) -> None:
    """Raise `UntrustedFileError` unless a file with this status passes the checks."""
    fault, advice = _fault(found, owners), "find out which user made it, and move it away"
    if fault is None and _is_loose(found, owners, data):
        fault = f"can be written by others than its owner (mode {stat.S_IMODE(found.st_mode):o})"
        advice = "if they did not, run chmod go-w on it"
    if fault is not None:
        message = f"the {what} {path!r} {fault}, so another user may have prepared it and it is not used"
        raise UntrustedFileError(f"{message}: {advice}", path=path)


def user_name(user: int) -> str:
    """Return the name and number of a user, for messages."""
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        return f"{pwd.getpwuid(user).pw_name!r} (user id {user})"
    return f"user id {user}"


def _fault(found: os.stat_result, owners: Container[int]) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return f"is {describe_special(found.st_mode) or 'a symbolic link'} of {user_name(found.st_uid)}"
    if found.st_nlink > 1:
        return f"of {user_name(found.st_uid)} has {found.st_nlink} names (hard links)"
    if found.st_uid not in owners:
        return f"belongs to {user_name(found.st_uid)}"
    return None


def _is_loose(found: os.stat_result, owners: Container[int], data: os.stat_result | None) -> bool:
    """Return True if users can write the file who neither own it nor can write the data."""
    if owners is ANY_USER:
        return False
    allowed = 0
    if data is not None:
        allowed = data.st_mode & (_OTHERS_WRITE if data.st_gid == found.st_gid else stat.S_IWOTH)
    return bool(found.st_mode & _OTHERS_WRITE & ~allowed)
