"""Entries of the holders of a lock in its sidecar, one JSON line each."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any

from shardkeep.files.owner import command_line, this_process
from shardkeep.files.sidecar import ANY_USER, open_sidecar

__all__ = [
    "LOCK_FILE",
    "describe_holder",
    "holder_is_me",
    "is_gone",
    "read_holder",
    "read_holders",
    "write_holder",
]

LOCK_FILE = "lock file"
_SHOWN = 200
# The year 9999, the latest that `time.localtime` supports.
_LATEST_S = 253_370_764_800


def write_holder(fd: int, *, shared: bool) -> None:
    """Write the entry of this process; holders of a shared lock keep those of the others."""
    line = {
        "host": socket.gethostname(),
        "pid": this_process().pid,
        "command": command_line(),
        "since": round(time.time(), 3),
    }
    # Best effort: a full disk must not prevent the use of an acquired lock.
    with contextlib.suppress(OSError):
        if not shared:
            os.ftruncate(fd, 0)
        os.write(fd, json.dumps(line).encode() + b"\n")


def read_holder(lock_path: str) -> dict[str, Any] | None:
    """Return the newest entry whose process is not known to have ended."""
    return next((one for one in read_holders(lock_path) if not is_gone(one)), None)


def read_holders(lock_path: str) -> list[dict[str, Any]]:
    """Return all entries, the newest first; none of a file that is not a lock file of Shardkeep."""
    try:
        fd = open_sidecar(lock_path, LOCK_FILE, owners=ANY_USER)
    except OSError:
        return []
    try:
        lines = os.read(fd, 1 << 16).splitlines()
    except OSError:
        return []
    finally:
        os.close(fd)
    found = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
            holder: dict[str, Any] = {
                "host": str(entry["host"])[:_SHOWN],
                "pid": int(entry["pid"]),
                "command": str(entry["command"])[:_SHOWN],
                "since": float(entry["since"]),
            }
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if 0 <= holder["since"] <= _LATEST_S:
            found.append(holder)
    return found


def describe_holder(holder: dict[str, Any] | None) -> str:
    """Return a clause that names a holder, for messages."""
    if holder is None:
        return "by an unknown process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
    mine = " (this process)" if holder_is_me(holder) else ""
    return f"by {holder['command']!r}, pid {holder['pid']}{mine} on host {holder['host']}, since {since}"


def holder_is_me(holder: dict[str, Any]) -> bool:
    """Return True for an entry of this process."""
    return bool(holder["host"] == socket.gethostname() and holder["pid"] == os.getpid())


def is_gone(holder: dict[str, Any]) -> bool:
    """Return True if the process of an entry has certainly ended: one of this host, without a process."""
    if holder["host"] != socket.gethostname():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False
