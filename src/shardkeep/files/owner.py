"""Which process made this, and is it surely gone?

A process id alone does not name a process: ids are used again, and two containers that share a
folder both have a process 1. An `Owner` adds what makes it unique: the host name, the boot of the
kernel, the process-id namespace and the start time of the process (``/proc/PID/stat``, field 22,
in clock ticks since boot). Where ``/proc`` does not exist (macOS) those fields are "0" and the
process id decides alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from shardkeep.errors import LockError

__all__ = ["OwnProcess", "Owner", "boot_time_s", "command_line", "command_of", "started_s", "this_process"]


@dataclass(frozen=True)
class Owner:
    """A process, named so that another one is never taken for it.

    Parameters
    ----------
    host : str
        First 8 hex digits of the SHA-256 of the host name.
    boot : str
        The same of the kernel's boot id; "0" where there is none.
    namespace : str
        Inode of the process-id namespace; "0" where there is none.
    pid : int
    start_ticks : int
        Start time of the process in clock ticks since boot; 0 where unknown.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    start_ticks: int

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Owner:
        """Return what ``dataclasses.asdict`` made a dict of; raises KeyError, TypeError or ValueError."""
        host, boot, namespace = (str(values[name])[:64] for name in ("host", "boot", "namespace"))
        return cls(host, boot, namespace, int(values["pid"]), int(values["start_ticks"]))

    def same_kernel_view(self, other: Owner) -> bool:
        """Whether the process ids of both mean the same processes."""
        return (self.host, self.boot, self.namespace) == (other.host, other.boot, other.namespace)

    def is_gone(self) -> bool:
        """Whether this process surely does not run any more, seen from the calling process.

        False wherever it cannot be known: another host, another boot, another container.
        """
        if not self.same_kernel_view(this_process()):
            return False
        start_ticks = _start_ticks(self.pid)
        if start_ticks is None:
            return True
        return self.start_ticks != 0 and start_ticks != 0 and start_ticks != self.start_ticks


class OwnProcess:
    """The process that created an object.

    Checked before a lock is acquired: in a forked child a missing thread may hold it forever.

    Parameters
    ----------
    path : str
        Path of the written file, for the message.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()

    @property
    def is_carried(self) -> bool:
        """True in a forked child."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise in a forked child.

        Raises
        ------
        LockError
            This is not the process that opened the writer.
        """
        if self.is_carried:
            raise LockError(
                f"{self._path}: a writer cannot be used after fork; open another file in the child",
                path=self._path,
            )


def this_process() -> Owner:
    """The calling process (cached; a forked child gets its own)."""
    return _this_process(os.getpid())


def boot_time_s() -> float:
    """When this kernel booted, in seconds since the epoch; 0.0 where unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if clock is None else time.time() - time.clock_gettime(clock)


def command_line() -> str:
    """The command of the calling process, for messages to people (at most 200 characters)."""
    return command_of("self") or " ".join(sys.argv or [sys.executable])[:200]


def command_of(pid: int | str) -> str:
    """The command of a process of this host (at most 200 characters); empty where it may not be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read(4096).split(b"\0") if word]
    except OSError:
        return ""
    return " ".join(words)[:200]


def started_s(pid: int) -> float:
    """When a process of this host started, in seconds since the epoch; 0.0 where that cannot be read."""
    start_ticks = _start_ticks(pid)
    return round(boot_time_s() + start_ticks / os.sysconf("SC_CLK_TCK"), 1) if start_ticks else 0.0


@functools.lru_cache(maxsize=4)
def _this_process(pid: int) -> Owner:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = _short_hash(file.read().strip())
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        boot = namespace = "0"
    return Owner(_short_hash(socket.gethostname()), boot, namespace, pid, _start_ticks(pid) or 0)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _start_ticks(pid: int) -> int | None:
    """Start time of a running process; 0 if it runs but hides it; None if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command in parentheses may itself hold blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        pass
    # No /proc, or one mounted with hidepid: only the kernel's own answer counts.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError):
        pass
    return 0
