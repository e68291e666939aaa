"""Identity of a process: which one made a file, and whether it has ended.

A process id alone is not unique: ids are reused, and two containers that share a folder both have a process
1. An `Owner` adds the host name, the boot of the kernel, the process-id namespace and the start time of the
process (``/proc/PID/task/PID/stat``, field 22, in clock ticks since boot). Without ``/proc`` (macOS) these
fields are "0", and the process id alone decides.
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
    """Unique identity of a process.

    Parameters
    ----------
    host : str
        First 8 hex digits of the SHA-256 of the host name.
    boot : str
        First 8 hex digits of the SHA-256 of the kernel's boot id; "0" without one.
    namespace : str
        Inode of the process-id namespace; "0" without one.
    pid : int
    start_ticks : int
        Start time of the process in clock ticks since boot; 0 if unknown.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    start_ticks: int

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Owner:
        """Return the owner of a dict from ``dataclasses.asdict``; raise KeyError, TypeError or ValueError."""
        host, boot, namespace = (str(values[name])[:64] for name in ("host", "boot", "namespace"))
        return cls(host, boot, namespace, int(values["pid"]), int(values["start_ticks"]))

    def same_kernel_view(self, other: Owner) -> bool:
        """Return True if a process id names the same process for both."""
        return (self.host, self.boot, self.namespace) == (other.host, other.boot, other.namespace)

    def is_gone(self) -> bool:
        """Return True if the process has certainly ended.

        False if this is unknown: on another host, after another boot, in another container.
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
    def is_forked(self) -> bool:
        """True in a forked child."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise in a forked child.

        Raises
        ------
        LockError
            This is not the process that opened the writer.
        """
        if self.is_forked:
            raise LockError(
                f"{self._path}: a writer cannot be used after fork; open another file in the child",
                path=self._path,
            )


def this_process() -> Owner:
    """Return the calling process; cached, and different in a forked child."""
    return _this_process(os.getpid())


def boot_time_s() -> float:
    """Return when this kernel booted, in seconds since the epoch; 0.0 if unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if clock is None else time.time() - time.clock_gettime(clock)


def command_line() -> str:
    """Return the command of the calling process, for messages; at most 200 characters."""
    return command_of("self") or " ".join(sys.argv or [sys.executable])[:200]


def command_of(pid: int | str) -> str:
    """Return the command of a process of this host, at most 200 characters; empty if it is not readable."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read(4096).split(b"\0") if word]
    except OSError:
        return ""
    return " ".join(words)[:200]


def started_s(pid: int) -> float:
    """Return when a process of this host started, in seconds since the epoch; 0.0 if unknown."""
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
    """Return the start time of a running process; 0 if it is hidden, None if the process does not run."""
    try:
        # Not /proc/PID/stat, in which QEMU shows its processes the start of the thread that reads it.
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            # The command in parentheses may itself have blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        pass
    # Without /proc, or with one mounted with hidepid, only the result of kill(2) counts.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError):
        pass
    return 0
