"""Names of temporary files and of others without data, and the removal of files of dead processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time

from shardkeep.files.owner import Owner, boot_time_s, this_process
from shardkeep.files.sidecar import ANY_USER, open_sidecar

__all__ = [
    "find_companion",
    "is_leftover",
    "is_of_ended_process",
    "is_temporary",
    "let_read",
    "mark_alive",
    "open_temporary",
    "remove_all",
    "sweep",
    "temporary_name",
]

# .NAME.sk-HOST-BOOT-NAMESPACE-PID-START-RANDOM.sktmp ; NAME is cut so that 255 bytes suffice.
_SUFFIX = ".sktmp"
_PATTERN = re.compile(r"\.sk-([0-9a-f]{8})-([0-9a-f]{1,8})-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}\.sktmp$")
_NAME_BYTES = 120
# A process that is opening or closing its file must not count as dead.
_QUIET_S = 60.0
# At most 1/20 of a process's time is spent on listing a very large folder.
_SWEEP_SHARE = 20
_next_sweep: dict[str, float] = {}


def temporary_name(name: str) -> str:
    """Return a new hidden name in the folder of `name` that identifies this process."""
    me = this_process()
    stem = os.fsencode(name)[:_NAME_BYTES].decode("utf-8", "ignore")
    identity = f"{me.host}-{me.boot}-{me.namespace}-{me.pid}-{me.start_ticks}"
    return f".{stem}.sk-{identity}-{secrets.token_hex(4)}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Return True if `name` has the form of `temporary_name`."""
    return _PATTERN.search(name) is not None


def mark_alive(fd: int) -> None:
    """Lock the temporary file, so that other containers recognise it as in use."""
    with contextlib.suppress(OSError):  # best effort: on one host the name is sufficient
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def let_read(fd: int) -> None:
    """Change to a shared lock, so that locking readers can open the file; it still counts as in use."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def open_temporary(name: str, flags: int, *, folder_fd: int | None = None) -> int:
    """Open a temporary file by its name, without following a link or blocking on a pipe.

    The owner is not checked: a user who can replace this file can replace the finished one too, and the files
    of root belong to another user on NFS.

    Raises
    ------
    UntrustedFileError
        The path is not a regular file with one name.
    OSError
        The system call fails.
    """
    return open_sidecar(name, "temporary file", flags, folder_fd=folder_fd, owners=ANY_USER)


def sweep(folder: str) -> list[str]:
    """Remove the temporary files of `folder` whose process is certainly dead.

    A file counts as dead if it was made under this kernel and process-id namespace and that process has
    ended; or if it was made on this host in another namespace or before the last boot, is unchanged for a
    minute (and since the boot), and its lock is free. Files of other hosts are not removed.

    Returns
    -------
    list of str
        Names of the removed files.
    """
    start = time.monotonic()
    if start < _next_sweep.get(folder, 0.0):
        return []
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX) and is_leftover(folder, name):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
                    removed.append(name)
    if len(_next_sweep) > 1024:
        _next_sweep.clear()
    end = time.monotonic()
    if end - start > 0.001:
        _next_sweep[folder] = end + _SWEEP_SHARE * (end - start)
    return removed


def remove_all(folder: str) -> list[str]:
    """Remove every temporary file of `folder`; the caller must hold the lock on the folder."""
    removed = []
    for name in os.listdir(folder):
        if is_temporary(name):
            path = os.path.join(folder, name)
            try:
                os.unlink(path)
            except IsADirectoryError:
                continue  # not a name of `temporary_name`
            removed.append(name)
    return removed


def is_leftover(folder: str, name: str) -> bool:
    """Return True for a temporary file whose process is certainly dead, as `sweep` decides it."""
    maker, me = _maker(name), this_process()
    if maker is None:
        return False
    if maker.same_kernel_view(me):
        return maker.is_gone()
    if maker.host != me.host:
        return False
    path = os.path.join(folder, name)
    try:
        changed_s = os.lstat(path).st_mtime
    except OSError:
        return False
    if changed_s > time.time() - _QUIET_S:
        return False
    if maker.boot != me.boot and changed_s > boot_time_s() - _QUIET_S:
        return False  # another running machine of the same name
    return _lock_is_free(path)


def is_of_ended_process(name: str) -> bool:
    """Return True for a temporary name of an ended process of this kernel; those of others may be in use."""
    maker = _maker(name)
    return maker is not None and maker.is_gone()


def _maker(name: str) -> Owner | None:
    match = _PATTERN.search(name)
    if match is None:
        return None
    host, boot, namespace, pid, start_ticks = match.groups()
    return Owner(host, boot, namespace, int(pid), int(start_ticks))


def _lock_is_free(path: str) -> bool:
    try:
        fd = open_sidecar(path, "temporary file", os.O_RDWR, owners=ANY_USER)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


# -- files that accompany data -----------------------------------------------------------------------------

# Files next to data files that hold no data; "train-*" would match them, too.
_COMPANIONS = {
    ".skidx": "an index of Shardkeep",
    ".lock": "a lock file",
    ".readers": "a lock file",
    ".redo": "the redo log of a collector",
    ".collector.json": "the address file of a collector",
    ".spill": "a spill file of a client",
    ".idx": "an index of another reader",
}


def find_companion(name: str) -> str | None:
    """Return what a file of this name holds, if it accompanies data files; None for any other name.

    Examples
    --------
    >>> find_companion("train.tfrecord.skidx"), find_companion("train.tfrecord")
    ('an index of Shardkeep', None)
    """
    if is_temporary(name):
        return "an unfinished file of a writer"
    return next((described for suffix, described in _COMPANIONS.items() if name.endswith(suffix)), None)
