"""Processes that have a file open or locked, as far as this process can see them.

There are three sources. Shardkeep's sidecar (``path.lock``) has host, process, command and time, also of
other hosts. ``/proc/PID/fd`` and ``fdinfo`` have every process of this user that has the file open, its mode,
and its lock. ``/proc/locks`` has the holder of a lock also where it is another user's. A process of another
host or container that wrote no sidecar cannot be seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from shardkeep.errors import LockTimeoutError
from shardkeep.files.locks.holder import read_holder
from shardkeep.files.owner import command_of, started_s
from shardkeep.hdf5.journal.paths import real_name

__all__ = [
    "Holder",
    "add_opener",
    "conflict",
    "descriptors",
    "holders_of",
    "is_locked",
    "kernel_locks",
    "openers_of",
    "openers_of_files",
]

Lock = Literal["exclusive", "shared", "none", "unknown"]
_LOCK_LINE = re.compile(rb"^lock:\s+\d+:\s+(?:FLOCK|POSIX|OFDLCK)\s+\S+\s+(READ|WRITE)", re.MULTILINE)
_FLAGS_LINE = re.compile(rb"^flags:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Holder:
    """A process that has a file open.

    Attributes
    ----------
    host : str
        Name of its host.
    pid : int
        Its process id there.
    command : str
        Command line of at most 200 characters; "?" where it may not be read.
    since : float
        Seconds since the epoch: when the lock was taken if the sidecar has that, else when the process
        started.
    lock : {"exclusive", "shared", "none", "unknown"}
        Its lock on the file.
    writes : bool
        Whether it opened the file for writing.
    """

    host: str
    pid: int
    command: str
    since: float
    lock: Lock
    writes: bool

    def __str__(self) -> str:
        mine = " (this process)" if self.pid == os.getpid() and self.host == socket.gethostname() else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since)) if self.since else "?"
        return f"{self.command!r}, pid {self.pid}{mine} on host {self.host}, since {since}"


def openers_of(path: str | os.PathLike[str]) -> list[Holder]:
    """Return the visible processes of this host that have `path` open, including this one.

    Notes
    -----
    Those of another user are seen by root only. A few milliseconds per hundred processes.
    """
    name = os.fspath(path)
    return openers_of_files([name]).get(name, [])


def openers_of_files(paths: Iterable[str]) -> dict[str, list[Holder]]:
    """Return the visible processes that have files open, by path; without paths that no process has open.

    The time hardly depends on the number of files.
    """
    wanted: dict[tuple[int, int], str] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            wanted.setdefault((status.st_dev, status.st_ino), path)
    found: dict[str, dict[int, Holder]] = {}
    for pid, link in descriptors() if wanted else ():
        with contextlib.suppress(OSError):
            status = os.stat(link)
            opened = wanted.get((status.st_dev, status.st_ino))
            if opened is not None:
                add_opener(found.setdefault(opened, {}), pid, link)
    return {path: list(by_pid.values()) for path, by_pid in found.items()}


def descriptors() -> Iterator[tuple[int, str]]:
    """Yield the process and the link ``/proc/PID/fd/N`` of each visible open descriptor."""
    for name in filter(str.isdigit, _names_in("/proc")):
        for fd in _names_in(f"/proc/{name}/fd"):
            yield int(name), f"/proc/{name}/fd/{fd}"


def add_opener(found: dict[int, Holder], pid: int, link: str) -> None:
    """Add the process of a descriptor of one file, unless another of its descriptors excludes more."""
    lock, writes = _lock_and_mode(link)
    before = found.get(pid)
    if before is None or (writes, lock != "none") > (before.writes, before.lock != "none"):
        found[pid] = _describe(pid, lock, writes)


def holders_of(path: str | os.PathLike[str]) -> list[Holder]:
    """Return the processes that hold a lock on `path`: exclusive ones first, this process last."""
    found = {one.pid: one for one in openers_of(path) if one.lock != "none"}
    for pid, lock in _kernel_locks(path):
        found.setdefault(pid, _describe(pid, lock, lock == "exclusive"))
    noted = read_holder(real_name(os.fspath(path)) + ".lock")
    if noted is not None:
        known = found.get(noted["pid"])
        if noted["host"] != socket.gethostname() or known is None:
            # -1, since its pid belongs to another host.
            found[-1] = Holder(**noted, lock="unknown", writes=True)
        else:
            found[known.pid] = Holder(**noted, lock=known.lock, writes=known.writes)
    me = os.getpid()
    return sorted(found.values(), key=lambda one: (one.pid == me, one.lock != "exclusive", one.pid))


def kernel_locks() -> dict[tuple[int, int], list[tuple[int, Lock]]]:
    """Return the processes of ``/proc/locks`` by device and inode; one may have left its lock to a child."""
    try:
        with open("/proc/locks", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    found: dict[tuple[int, int], list[tuple[int, Lock]]] = {}
    for line in lines:
        fields = line.split()
        # A second field "->" marks a waiter, not a holder; pid 0 is a process outside this container.
        if len(fields) < 6 or fields[1] == b"->" or int(fields[4]) <= 0 or fields[5].count(b":") != 2:
            continue
        major, minor, inode = fields[5].split(b":")
        identity = os.makedev(int(major, 16), int(minor, 16)), int(inode)
        lock: Lock = "exclusive" if fields[3] == b"WRITE" else "shared"
        found.setdefault(identity, []).append((int(fields[4]), lock))
    return found


def is_locked(path: str) -> bool:
    """Return True if a process of this host holds a file exclusively; no lock is taken to find out."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return any(lock == "exclusive" for _, lock in kernel_locks().get((status.st_dev, status.st_ino), ()))


def conflict(path: str, *, writing: bool, waited_s: float | None = None) -> LockTimeoutError:
    """Return the error for a lock that another process holds.

    Parameters
    ----------
    path : str
    writing : bool
        Whether this process wanted to write, or else to read.
    waited_s : float, optional
        How long a call that has a `timeout_s` waited.
    """
    found = holders_of(path)
    if found:
        if found[0].pid != os.getpid():  # its own sidecar is not the cause
            found = [one for one in found if one.pid != os.getpid()]
        who = f"by {found[0]}"
        if len(found) > 1:
            who += f" and {len(found) - 1} more"
    else:
        who = "by a process that cannot be seen from here (another host, container or user)"
    wanted = "written" if writing else "read"
    message = f"{path!r} is locked {who}, so it cannot be {wanted} now"
    wait = "wait for it and try again"
    if waited_s is not None:
        message, wait = f"{message}; waited {waited_s:.1f} s", "wait for it (timeout_s=)"
    advice = f"{wait}, end it, or write a file per process (hdf5.WorkerFile)"
    error = LockTimeoutError(f"{message}: {advice}", path=path)
    if found:
        fields = asdict(found[0])
        error.holder = {name: fields[name] for name in ("host", "pid", "command", "since")}
    return error


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _lock_and_mode(link: str) -> tuple[Lock, bool]:
    try:
        with open(link.replace("/fd/", "/fdinfo/"), "rb") as file:
            text = file.read()
    except OSError:
        return "unknown", True
    kinds = _LOCK_LINE.findall(text)
    lock: Lock = "exclusive" if b"WRITE" in kinds else "shared" if kinds else "none"
    flags = _FLAGS_LINE.search(text)
    return lock, flags is None or int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _kernel_locks(path: str | os.PathLike[str]) -> list[tuple[int, Lock]]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    found = kernel_locks().get((status.st_dev, status.st_ino), [])
    return [one for one in found if os.path.exists(f"/proc/{one[0]}")]


def _describe(pid: int, lock: Lock, writes: bool) -> Holder:
    return Holder(socket.gethostname(), pid, command_of(pid) or "?", started_s(pid), lock, writes)
