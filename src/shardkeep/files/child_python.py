"""New interpreters that run the same Shardkeep as this process, and children that answer questions."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

__all__ = ["Children", "SentBytes", "child_python", "send", "serve"]

# A child reports progress every few megabytes; without a report for so long, it is in an endless loop.
_SILENT_S = 300.0
_REPORT_S = 0.1


def child_python(module: str, call: str) -> list[str]:
    """Return the command line of a new interpreter that exits with the result of a function.

    Parameters
    ----------
    module, call : str
        The module, and a call of a function in it.

    Notes
    -----
    Modules are imported from the same folders as in this process. ``python -c`` and ``python -m`` would
    search the current folder first, and import a user's ``queue.py`` there instead of Python's.

    Examples
    --------
    >>> import subprocess
    >>> subprocess.run(child_python("operator", "add(1, 2)"), check=False).returncode
    3
    """
    folders = [os.path.abspath(one) for one in sys.path]
    # `sys` is built in: no file on the path can replace it.
    program = f"import sys; sys.path[:] = {folders!r}; import {module}; sys.exit({module}.{call})"
    return [sys.executable, "-c", program]


class Children:
    """Child processes that read files which may crash them, started when needed; each serves one thread.

    A copy in another process has its own children, which end with it.

    Parameters
    ----------
    module : str
        The module of the child, whose function ``main`` calls `serve`.
    silent_s : float, optional
        A child that writes nothing for so long is killed; five minutes by default.
    environment : mapping, optional
        Further variables of the child.
    """

    def __init__(
        self, module: str, *, silent_s: float | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._module = module
        self._silent_s = silent_s
        self._environment = environment
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._end = weakref.finalize(self, _end_all, self._idle)

    def ask(
        self, question: Any, progress: Callable[[dict[str, Any]], object] = lambda _: None
    ) -> dict[str, Any]:
        """Return the answer of a child, or ``{"died": exit code}``.

        `progress` is called with each message before the answer; such a message has ``bytes``.
        """
        child = self._take()
        assert child.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(question) + "\n")
                child.stdin.flush()
            while True:
                line = self._read_line(child)
                if not line.endswith("\n"):  # it died, perhaps while it wrote
                    code = child.wait()
                    _end(child)
                    return {"died": code}
                message: dict[str, Any] = json.loads(line)
                if "bytes" not in message:
                    self._idle.put(child)
                    return message
                progress(message)
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

    def _read_line(self, child: subprocess.Popen[str]) -> str:
        assert child.stdout is not None
        alarm = threading.Timer(self._silent_s or _SILENT_S, child.kill)
        alarm.daemon = True
        alarm.start()
        line = child.stdout.readline()
        alarm.cancel()
        return line


def _end_all(children: queue.SimpleQueue[subprocess.Popen[str]]) -> None:
    while not children.empty():
        _end(children.get())


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


# -- in a child ----------------------------------------------------------------------------------------


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answer the questions of `Children.ask` until standard input ends."""
    for line in sys.stdin:
        send(answer(json.loads(line)))


def send(message: dict[str, Any]) -> None:
    """Send a message to the parent process; one with ``bytes`` is progress, any other the answer."""
    print(json.dumps(message), flush=True)  # noqa: T201


class SentBytes:
    """Bytes that a child has read, which it sends as progress from time to time."""

    def __init__(self) -> None:
        self._count, self._sent_s = 0, time.monotonic()

    def add(self, count: int) -> None:
        """Count bytes."""
        self._count += count
        now = time.monotonic()
        if now - self._sent_s >= _REPORT_S:
            send({"bytes": self._count})
            self._count, self._sent_s = 0, now
