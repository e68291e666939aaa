"""Refusal of files that a live process writes: their damage may be a write that has not ended."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from shardkeep.errors import LockHeldError
from shardkeep.files.locks.holder import LOCK_FILE, describe_holder, read_holder
from shardkeep.files.locks.probe import HELD, lock_fault_of
from shardkeep.files.sidecar import ANY_USER, open_sidecar
from shardkeep.hdf5.journal.paths import real_name
from shardkeep.hdf5.locking.holders import openers_of_files

__all__ = ["Locked", "refuse_live_writers"]


class Locked(NamedTuple):
    """A file or folder that a process may be writing, and its lock file if that has not the usual name."""

    path: str
    lock_path: str | None = None


def refuse_live_writers(paths: Iterable[Locked]) -> None:
    """Raise if a process has one of some files open for writing, or holds its lock alone.

    Processes of this machine are found by their open files, those of other hosts by the lock next to the
    file. Readers do not matter. Nothing is written, and no lock is waited for.

    Raises
    ------
    LockHeldError
        There is such a process; the message and `holder` name it.
    """
    paths = list(paths)
    openers = openers_of_files(one.path for one in paths)
    for path, lock_path in paths:
        # "unknown" is the mode of a process that has closed the file or ended in the meantime.
        found = (one for one in openers.get(path, []) if one.writes and one.lock != "unknown")
        writer = next(found, None)
        if writer is not None:
            fields = asdict(writer)
            known = {name: fields[name] for name in ("host", "pid", "command", "since")}
            raise _held(path, f"by {writer}", known)
        lock_path = f"{real_name(path)}.lock" if lock_path is None else lock_path
        if _is_locked(lock_path):
            holder = read_holder(lock_path)
            is_remote = holder is not None and holder["host"] != socket.gethostname()
            gone = "; if it has ended, remove that file" if is_remote else ""
            raise _held(path, f"{describe_holder(holder)}, which holds {lock_path!r}{gone}", holder)


def _held(path: str, who: str, holder: dict[str, Any] | None) -> LockHeldError:
    message = f"{path!r} is being written {who}: wait for that process or end it, then repair the file"
    error = LockHeldError(message, path=path)
    error.holder = holder
    return error


def _is_locked(lock_path: str) -> bool:
    """Return True if a process holds the lock exclusively."""
    try:
        fd = open_sidecar(lock_path, LOCK_FILE, owners=ANY_USER)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fault = lock_fault_of(os.path.dirname(os.path.abspath(lock_path)))
    except OSError as error:
        if error.errno in HELD:
            return True
        fault = error.strerror
    finally:
        os.close(fd)
    # Where locks do not reach other hosts, the entry in the file decides.
    holder = read_holder(lock_path) if fault else None
    return holder is not None and holder["host"] != socket.gethostname()
