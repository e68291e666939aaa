"""Check of HDF5 files in child processes, because a malformed file can crash HDF5."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardkeep.files.child_python import child_python, read_line
from shardkeep.jobs.verification.finding import Finding, with_next
from shardkeep.jobs.verification.report import VerifiedFile

__all__ = ["Children", "check_hdf5"]

# A child reports progress every few megabytes; without a report for so long, HDF5 is in an endless loop.
_SILENT_S = 300.0


class Children:
    """Child processes that read HDF5 files, started when needed; each serves one thread at a time.

    A copy in another process has its own children, which end with it.

    Parameters
    ----------
    module : str
        The module of the child; it answers as `hdf5_child`.
    silent_s : float, optional
        A child that writes nothing for so long is killed; five minutes by default.
    environment : mapping, optional
        Further variables of the child.
    """

    def __init__(
        self,
        module: str = "shardkeep.jobs.verification.hdf5_child",
        *,
        silent_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._silent_s = silent_s
        self._environment = environment
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._end = weakref.finalize(self, _end_all, self._idle)

    def ask(self, question: Any, tick: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
        """Return the answer of a child, typically about the path of a file, or its exit code if it died."""
        child = self._take()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            while True:
                line = read_line(child, self._silent_s or _SILENT_S)
                if not line:
                    code = child.wait()
                    _end(child)
                    return {"died": code}
                answer: dict[str, Any] = json.loads(line)
                if "bytes" not in answer:
                    self._idle.put(child)
                    return answer
                tick(answer["bytes"])
        except BaseException:
            _end(child)
            raise

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Children, silent_s=self._silent_s, environment=self._environment), (self._module,)

    def _take(self) -> subprocess.Popen[str]:
        with contextlib.suppress(queue.Empty):
            while True:
                child = self._idle.get_nowait()
                if child.poll() is None:
                    return child
                _end(child)  # killed while it was idle
        return subprocess.Popen(
            child_python(self._module, "main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(self._environment or {})},
        )


def _end_all(children: queue.SimpleQueue[subprocess.Popen[str]]) -> None:
    while not children.empty():
        _end(children.get())


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def check_hdf5(
    path: str, size_bytes: int, children: Children, tick: Callable[[int], None]
) -> tuple[VerifiedFile, str | None]:
    """Check one file; return the result and, of a segment, the record of its commit."""
    left = size_bytes

    def count(done: int) -> None:
        nonlocal left
        done = min(done, left)
        left -= done
        tick(done)

    answer = children.ask(os.path.abspath(path), count)
    tick(left)
    if "died" in answer:
        return VerifiedFile(path, "hdf5", size_bytes, 0, (_died(path, answer["died"]),)), None
    if "error" in answer:
        kind, message = answer["error"]
        return VerifiedFile(path, "hdf5", size_bytes, 0, (with_next(Finding(kind, message, path)),)), None
    verdict = answer["verdict"]
    findings = [with_next(Finding("damage", text, path)) for text in verdict["findings"]]
    findings += [Finding("unsupported", text, path) for text in verdict["unreadable"]]
    notes = tuple(verdict["notes"])
    found = VerifiedFile(path, verdict["kind"], size_bytes, verdict["rows"], tuple(findings), notes)
    return found, verdict["record"]


def _died(path: str, code: int) -> Finding:
    if code >= 0:
        text = f"the process that read it ended with exit code {code}, a bug of Shardkeep; please report it"
        return Finding("unreadable", f"{path}: {text}", path)
    text = f"it crashes HDF5 ({signal.Signals(-code).name})"
    if code == -signal.SIGKILL:
        text = "HDF5 did not finish reading it, or was killed for its memory use"
    text += ": the file is malformed; do not open it, restore it from a copy"
    return with_next(Finding("damage", f"{path}: {text}", path))
