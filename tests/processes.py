"""Child processes of a test: their output in the report, their end when a test left them running."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

# `multiprocessing` keeps these until the process ends.
_KEPT = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
_SHOWN = 6000

kept: set[int] = set()
"""Servers that outlive the test that needed them first, and end with the session."""


def children() -> dict[int, str]:
    """Return pid and command of every child of this process, ended and not waited for or still running."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):  # not every kernel has this file
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                pids = Path(f"/proc/self/task/{thread}/children").read_text().split()
                found.update((int(pid), _command(pid)) for pid in pids)
    return {pid: command for pid, command in found.items() if command != "" and pid not in kept}


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if any(kept in words for kept in _KEPT):
            return ""
        return words.replace(b"\0", b" ").decode("utf-8", "replace")[:300] or "a zombie"
    except OSError:
        return ""


def end(pids: Iterator[int] | list[int]) -> None:
    """Kill children and wait for them, through their `Popen` objects where there are any.

    A `Popen` without a `wait` warns when it is collected, which would be an error of a later test.
    """
    owners = {one.pid: one for one in gc.get_objects() if type(one) is subprocess.Popen}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if pid in owners:
            owners[pid].wait()
            for pipe in (owners[pid].stdin, owners[pid].stdout, owners[pid].stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what is still buffered has no reader
                        pipe.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def said(error: BaseException, traceback: TracebackType | None) -> list[tuple[str, str]]:
    """Return titles and output of each child that is a local variable in the traceback."""
    found: dict[int, Any] = {id(error): error}
    while traceback is not None:
        values = list(traceback.tb_frame.f_locals.values())
        for value in [*values, *(one for some in values if isinstance(some, list) for one in some)]:
            found[id(value)] = value
        traceback = traceback.tb_next
    return [section for value in found.values() for section in _sections(value)]


def _sections(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, subprocess.Popen):
        errors = value.stderr
        if errors is None or errors.closed:
            return
        value.kill()  # the test has failed, and a child that waits for it would not end
        value.wait()
        os.set_blocking(errors.fileno(), False)
        with contextlib.suppress(OSError, ValueError):
            yield from _titled(value.pid, value.returncode, "stderr", os.read(errors.fileno(), 1 << 20))
    elif isinstance(value, (subprocess.CompletedProcess, subprocess.CalledProcessError)):
        yield from _titled("child", value.returncode, "stdout", value.stdout)
        yield from _titled("child", value.returncode, "stderr", value.stderr)
    elif isinstance(value, subprocess.TimeoutExpired):
        yield from _titled("child", None, "stdout", value.stdout)
        yield from _titled("child", None, "stderr", value.stderr)


def _titled(who: object, code: int | None, name: str, text: str | bytes | None) -> Iterator[tuple[str, str]]:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if text:
        yield f"{name} of {who} ({'not ended' if code is None else f'exit code {code}'})", text[-_SHOWN:]
