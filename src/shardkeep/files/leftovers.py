"""Temporary names, and the removal of those whose process is surely dead."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time

from shardkeep.files.owner import Owner, boot_time_s, this_process
from shardkeep.files.sidecar import ANYBODY, open_sidecar

__all__ = [
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
# A process that starts or stops using its file must not look dead in between.
_QUIET_S = 60.0
# At most 1/20 of a process's time goes into listing a folder of very many files.
_SWEEP_SHARE = 20
_next_sweep: dict[str, float] = {}


def temporary_name(name: str) -> str:
    """Return a new hidden name in the folder of `name` that says which process made it."""
    me = this_process()
    stem = os.fsencode(name)[:_NAME_BYTES].decode("utf-8", "ignore")
    identity = f"{me.host}-{me.boot}-{me.namespace}-{me.pid}-{me.start_ticks}"
    return f".{stem}.sk-{identity}-{secrets.token_hex(4)}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether `name` is one that `temporary_name` makes."""
    return _PATTERN.search(name) is not None


def mark_alive(fd: int) -> None:
    """Hold a lock on the temporary file, so that other containers see that it is in use."""
    with contextlib.suppress(OSError):  # best effort: the name alone says enough on one host
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def let_read(fd: int) -> None:
    """Let readers that lock open a temporary file by its name; it still counts as in use."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def open_temporary(name: str, flags: int, *, folder_fd: int | None = None) -> int:
    """Open a temporary file by its name; a link in its place is not followed, and a pipe not waited for.

    The owner does not matter: who may put a file in its place may replace the finished one too, and the files
    of root belong to another user on NFS.

    Raises
    ------
    UntrustedFileError
        Something else than a regular file with one name is there.
    OSError
        The kernel refuses.
    """
    return open_sidecar(name, "temporary file", flags, folder_fd=folder_fd, owners=ANYBODY)


def sweep(folder: str) -> list[str]:
    """Remove the temporary files of `folder` whose process is surely dead.

    Dead is: made under this kernel and process-id namespace, and that process is gone; or made on
    this host in another namespace or before the last boot, untouched for a minute (and since the
    boot), and its lock can be had. Files of other hosts are left alone.

    Returns
    -------
    list of str
        The names that were removed.
    """
    start = time.monotonic()
    if start < _next_sweep.get(folder, 0.0):
        return []
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX) and _is_dead(folder, name):
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
    """Remove every temporary file of `folder`: for a caller who holds the lock on the folder."""
    removed = []
    for name in os.listdir(folder):
        if is_temporary(name):
            path = os.path.join(folder, name)
            try:
                os.unlink(path)
            except IsADirectoryError:
                continue  # not made here
            removed.append(name)
    return removed


def _is_dead(folder: str, name: str) -> bool:
    match = _PATTERN.search(name)
    if match is None:
        return False
    host, boot, namespace, pid, start_ticks = match.groups()
    maker = Owner(host, boot, namespace, int(pid), int(start_ticks))
    me = this_process()
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
        return False  # another machine of the same name, alive
    return _lock_is_free(path)


def _lock_is_free(path: str) -> bool:
    try:
        fd = open_sidecar(path, "temporary file", os.O_RDWR, owners=ANYBODY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
