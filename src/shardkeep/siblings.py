"""Other worker processes of the parent of a `multiprocessing` child.

Processes of a launcher get their ranks from it. Those of `multiprocessing` have none, and each of them would
be rank 0 of 1. Siblings are found by the kernel's list of the parent's children, which costs well under a
millisecond. A sibling is a worker if it looks like this process:

- the same command line (fork and forkserver), or both have the option of a spawned child;
- SIGINT ignored in both or in neither: the process of a `Manager` ignores it.

The resource tracker and the fork server have other command lines.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

__all__ = ["count_workers"]

_SPAWNED = b"--multiprocessing-fork"


def count_workers() -> int:
    """Return the number of live children like this one of a `multiprocessing` parent; 0 elsewhere."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return 0
    try:
        mine = _appearance(os.getpid())
        return sum(_appearance(pid) == mine for pid in _children(os.getppid()))
    except OSError:  # No such list outside Linux: then earlier children, perhaps ended, count.
        identity = process.current_process()._identity
        return int(identity[-1]) if identity else 0


def _children(pid: int) -> list[int]:
    tasks = f"/proc/{pid}/task"
    children: list[int] = []
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/children", encoding="ascii") as file:
            children += map(int, file.read().split())
    return children


def _appearance(pid: int) -> tuple[bytes, bool] | None:
    """Return what workers of one parent have in common; None for a process that has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        with open(f"/proc/{pid}/status", "rb") as file:
            ignored = next(line for line in file if line.startswith(b"SigIgn:"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not command:
        return None
    ignores_ctrl_c = bool(int(ignored.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return _SPAWNED if _SPAWNED in command.split(b"\0") else command, ignores_ctrl_c
