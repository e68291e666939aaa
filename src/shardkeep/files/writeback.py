"""Early sync of a large file, during its writing and its verification."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from functools import partial
from queue import SimpleQueue
from typing import BinaryIO

from shardkeep.files.durable import durability_error
from shardkeep.files.temporary_file import TemporaryFile

__all__ = ["Writeback"]

_STEP_BYTES = 16 * 1024 * 1024
_SYNC_FILE_RANGE_WRITE = 2


class Writeback:
    """A thread that starts the kernel's writeback of a file before the final `fsync`.

    Parameters
    ----------
    file : TemporaryFile or binary file
        The file to sync; another process may write it.
    path : str
        Its final name, for messages.

    Notes
    -----
    The kernel reports an error of the disk only once for each descriptor: an error of the sync in the thread
    is stored and raised by `wait`, since the final sync would not receive it again.
    """

    def __init__(self, file: TemporaryFile | BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._asked_bytes = 0
        # Not a condition, whose lock a signal may leave taken: see `shardkeep.files.threads.tasks`.
        self._todo: SimpleQueue[str] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._has_ended = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def wrote(self) -> None:
        """Start the writeback of the data so far, if it is much."""
        size = os.fstat(self._file.fileno()).st_size
        if size - self._asked_bytes >= _STEP_BYTES and _sync_file_range() is not None:
            self._asked_bytes = size
            self._ask("start")

    def sync(self) -> None:
        """Start a sync of everything, without waiting."""
        if not (isinstance(self._file, TemporaryFile) and self._file.failure):
            self._ask("sync")

    def wait(self) -> None:
        """Wait for the started syncs.

        Raises
        ------
        DurabilityError
            The sync failed.
        """
        self._stop()
        if self._error is not None:
            raise durability_error("sync", self._path, self._error) from self._error

    def __enter__(self) -> Writeback:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _ask(self, what: str) -> None:
        if self._thread is None:
            target = partial(self._run, self._file.fileno())
            thread = threading.Thread(target=target, name="shardkeep-writeback", daemon=True)
            thread.start()
            self._thread, self._has_ended = thread, False
        self._todo.put(what)

    def _stop(self) -> None:
        if self._thread is not None:
            self._todo.put("stop")
            if not self._has_ended:
                self._ended.get()
            self._thread.join()
            self._thread = None

    def _run(self, fd: int) -> None:
        while (what := self._todo.get()) != "stop":
            if what == "sync":
                try:
                    os.fsync(fd)
                except OSError as error:
                    self._error = self._error or error
            else:
                start = _sync_file_range()
                if start is not None:
                    start(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)
        self._has_ended = True
        self._ended.put(None)


@functools.lru_cache(maxsize=1)
def _sync_file_range() -> ctypes._NamedFuncPointer | None:
    # Linux only. Without it, the final sync writes everything.
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function
