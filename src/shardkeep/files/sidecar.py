"""Files beside the data: opened only where no other user can have prepared them.

Lock files, the note and the redo log of a collector, spill files and indexes have names that anybody can
guess. In a folder that others may write, another user can make such a name first: a symbolic or a hard link
to a file of this user, a named pipe that is waited for, or a file with content of his choice. So each of them
is opened here, and the checks are made on the descriptor, which no rename can change, and not on the path:

- a regular file that has one name (CVE-2016-1247 and its kind write through a planted link);
- of an owner who is trusted with it: this user or root, or the owner of the data that it belongs to;
- that others can write only if they can write the data as well.

Nothing is created, cut or written by the call that opens: `open_sidecar` opens what is there, and
`make_sidecar` makes what is not. To ask for both at once (``O_CREAT`` alone) fails on the file of another
user in ``/tmp`` (``fs.protected_regular``), even for root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container

from shardkeep.errors import UntrustedFileError

__all__ = ["ANYBODY", "make_sidecar", "open_sidecar", "ours", "user_name"]

ANYBODY: Container[int] = range(1 << 32)
"""Every user: for a file whose content is not believed."""

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def ours() -> frozenset[int]:
    """Return whose files are this user's own: this user, and root."""
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
    """Open a sidecar that exists, and check what was opened.

    Parameters
    ----------
    path : str
    what : str
        What it is, for the error: "lock file".
    flags : int
        ``os.O_RDONLY``, ``os.O_RDWR``, ``os.O_APPEND``; nothing that creates or cuts.
    owners : container of int, optional
        Users whose file it may be; `ours` by default.
    data : os.stat_result, optional
        Of the data file: who can write that one may be able to write this one.
    folder_fd : int, optional
        Of the folder that `path` is relative to.

    Returns
    -------
    int
        A descriptor.

    Raises
    ------
    UntrustedFileError
        It does not pass the checks.
    OSError
        The kernel refuses; FileNotFoundError also if the file has lost its name meanwhile.
    """
    owners = ours() if owners is None else owners
    try:
        fd = os.open(path, flags | _SAFE, dir_fd=folder_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        # ELOOP of a link, ENXIO of a pipe or a socket, EISDIR, EACCES: the status by name only explains it.
        try:
            found = os.lstat(path, dir_fd=folder_fd)
        except OSError:
            raise error from None
        _check(path, what, found, owners=owners, data=data)
        raise
    try:
        found = os.fstat(fd)
        if found.st_nlink == 0:
            raise FileNotFoundError(2, os.strerror(2), path)
        _check(path, what, found, owners=owners, data=data)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_sidecar(path: str, flags: int = os.O_RDWR, *, mode: int = 0o600) -> int:
    """Create a sidecar, and return a descriptor.

    Raises
    ------
    FileExistsError
        There is something of that name, be it a link that leads nowhere.
    OSError
        The kernel refuses.
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
    """Raise `UntrustedFileError` unless a file of this status is one that `open_sidecar` would return."""
    fault, advice = _fault(found, owners), "find out who made it, and move it away"
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
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        return f"is {_KINDS.get(kind, 'not a regular file')} of {user_name(found.st_uid)}"
    if found.st_nlink > 1:
        return f"of {user_name(found.st_uid)} has {found.st_nlink} names (hard links)"
    if found.st_uid not in owners:
        return f"belongs to {user_name(found.st_uid)}"
    return None


def _is_loose(found: os.stat_result, owners: Container[int], data: os.stat_result | None) -> bool:
    """Whether users write it who are not its owner, and cannot write the data either."""
    if owners is ANYBODY:
        return False
    allowed = 0
    if data is not None:
        allowed = data.st_mode & (_OTHERS_WRITE if data.st_gid == found.st_gid else stat.S_IWOTH)
    return bool(found.st_mode & _OTHERS_WRITE & ~allowed)
