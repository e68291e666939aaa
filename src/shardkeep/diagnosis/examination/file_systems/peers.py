"""Second processes of an operation that tries out a file system."""

from __future__ import annotations

import abc
import errno
import json
import os
from collections.abc import Callable
from typing import Any

__all__ = ["Fork", "Peer", "outcome"]


class Peer(abc.ABC):
    """Another process, which runs a function in the same folder. Arguments and results are values of JSON."""

    @abc.abstractmethod
    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Let the process begin a function."""

    @abc.abstractmethod
    def read(self) -> Any:
        """Return the outcome of the function that was started: ``{"result": …}`` or ``{"error": number}``."""

    def result(self) -> Any:
        """Return the result of the function that was started, or raise its OSError."""
        found = self.read()
        if "error" in found:
            raise OSError(found["error"], os.strerror(found["error"]))
        return found["result"]

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function and return its result."""
        self.start(function, *args)
        return self.result()

    def failure(self, function: Callable[..., Any], *args: Any) -> int:
        """Run a function and return the number of its error, 0 without one."""
        self.start(function, *args)
        return int(self.read().get("error", 0))


class Fork(Peer):
    """A child of this process for each function."""

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Let a new child begin a function."""
        self._read_end, write_end = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.write(write_end, json.dumps(outcome(function, *args)).encode())
            finally:
                os._exit(0)
        os.close(write_end)

    def read(self) -> Any:
        """Return the outcome when the child has ended."""
        with open(self._read_end, "rb") as file:
            text = file.read()
        os.waitpid(self._child, 0)
        return json.loads(text) if text else {"error": errno.ECHILD}


def outcome(function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Return what a function returned, or the number of its OSError."""
    try:
        return {"result": function(*args)}
    except OSError as error:
        return {"error": error.errno or errno.EIO}
