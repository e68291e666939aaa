"""Groups of files that a worker of an executor processes, perhaps on another host and more than once.

A worker catches the errors of its tasks and returns them as results. So an error that the executor raises is
one of the executor: a worker was killed, cannot be reached, or cannot load a task.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shardkeep.errors import DurabilityError, EngineError, NotFoundError, PlanError, ShardkeepError
from shardkeep.files.kinds.urls import is_url

__all__ = ["Located", "divide", "engine_error", "perform", "resume", "size_runs"]

_Result = TypeVar("_Result")
_Located = TypeVar("_Located", bound="Located")

# The cost of one task of Dask or Ray is a few milliseconds.
_GROUP_BYTES = 32 << 20
_GROUP_FILES = 64


class Located(Protocol):
    """Item of work on one file."""

    @property
    def path(self) -> str:
        """Path of the file."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes that the task counts."""


def divide(
    items: Iterable[_Located], *, most_bytes: int | None = None, most_files: int | None = None
) -> Iterator[list[_Located]]:
    """Divide items into groups: large files alone, small ones together, in their order."""
    most_bytes, most_files = most_bytes or _GROUP_BYTES, most_files or _GROUP_FILES
    group: list[_Located] = []
    group_bytes = 0
    for item in items:
        if group and (len(group) == most_files or group_bytes + item.size_bytes > most_bytes):
            yield group
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += item.size_bytes
    if group:
        yield group


def size_runs(sizes: npt.NDArray[Any], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide consecutive items into runs of at most so many bytes; yield the ranges of their numbers.

    A larger item is a run by itself.

    Examples
    --------
    >>> list(size_runs(np.array([30, 10, 90, 10]), 40))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield first, last
        first = last


def perform(
    task: Callable[[Any, Callable[[int], None]], _Result], items: Sequence[Located], folder: str
) -> tuple[list[_Result], BaseException | None]:
    """Run a task for each item, in a worker; return the results up to the first error, and this error.

    Parameters
    ----------
    task : callable
        Called as ``task(item, tick)``.
    items : sequence
    folder : str
        Current directory of the driver, from which relative paths begin.
    """
    results: list[_Result] = []
    for item in items:
        try:
            if not is_url(item.path):
                _refuse_other_folder(item.path, folder)
                if not os.path.lexists(item.path):
                    raise _NotHereError(item.path, socket.gethostname(), False)
            results.append(task(item, _ignore))
        except Exception as error:
            path = getattr(error, "path", None) or item.path
            is_output = isinstance(error, DurabilityError) and error.errno == errno.ENOENT
            if is_output or (isinstance(error, FileNotFoundError) and not os.path.lexists(path)):
                error = _NotHereError(path, socket.gethostname(), is_output)
            return results, _portable(error)
    return results, None


def resume(
    task: Callable[[Any, Callable[[int], None]], _Result],
    items: Sequence[Located],
    results: list[_Result],
    error: BaseException,
) -> BaseException | None:
    """Return the error of a worker for the user.

    A file that does not exist on the driver either was removed; then the rest of the group is processed here,
    with the outcome that it has without an executor, its results are added, and None is returned.
    """
    if not isinstance(error, _NotHereError):
        return error
    path, host, is_output = error.args
    if is_output:
        return NotFoundError(
            f"{path}: not found on the worker {host}, which has to write it; choose an output on a file"
            " system that all workers have under this path, or run without an executor",
            path=path,
        )
    if os.path.lexists(path):
        return NotFoundError(
            f"{path}: not found on the worker {host}, although it exists on {socket.gethostname()}; put it on"
            " a file system that all workers have under this path, or run without an executor",
            path=path,
        )
    try:
        results += [task(item, _ignore) for item in items[len(results) :]]
    except Exception as found:
        return found
    return None


def engine_error(items: Sequence[Located], error: BaseException) -> BaseException:
    """Return the error for a group that an executor could not process; names its first file."""
    if not isinstance(error, Exception):
        return error
    more = f" and {len(items) - 1} files after it" if len(items) > 1 else ""
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, CancelledError):
        advice = (
            "the executor was closed, or lost its scheduler; start it again, then run the same call again"
        )
    else:
        advice = (
            "a worker was killed, for example for its memory, or has no Shardkeep of this version; read its"
        )
        advice += " log, then run the same call again"
    what = f"{items[0].path}{more}: no worker finished this task ({' '.join(reason.split()):.300})"
    made = EngineError(f"{what}; {advice}", path=items[0].path)
    made.__cause__ = error
    return made


def _ignore(_done_bytes: int) -> None:
    """Report no progress: bytes are counted when the result arrives."""


def _refuse_other_folder(path: str, folder: str) -> None:
    if not os.path.isabs(path) and os.getcwd() != folder:
        raise PlanError(
            f"{path} is relative to {folder}, but the worker on {socket.gethostname()} runs in {os.getcwd()};"
            " pass absolute paths",
            path=path,
        )


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent to the driver; that of a bug has its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, (ShardkeepError, OSError, _NotHereError)):
        error.__notes__ = [f"In a worker on {socket.gethostname()}: {text}"]
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error


class _NotHereError(Exception):
    """Absence of a file on a worker."""
