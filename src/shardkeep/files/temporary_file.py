"""File object of an unfinished file, for writers with explicit offsets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from shardkeep.errors import LockError, ShardkeepError
from shardkeep.files.durable import durability_error, read_all, write_all
from shardkeep.files.positioned import PositionedFile

__all__ = ["TemporaryFile"]


class TemporaryFile(PositionedFile):
    """An unbuffered file under its temporary name, safe after ``fork``.

    Every read and write has an explicit offset, so a child cannot move the position of the parent; a write in
    a child raises `LockError` and changes no byte.

    Attributes
    ----------
    name : str
        The temporary path.
    deferred : bool
        If True, the error of a failed write is stored in `failure` instead of raised, and later writes are
        ignored. For callers that do not support an error during a write: HDF5 never closes a file whose flush
        failed.
    failure : ShardkeepError or None
        The first failed write. A file that has one is never published.
    size_bytes : int
        End of the last byte that was written.
    """

    def __init__(self, fd: int, name: str, final: str) -> None:
        self.name = name
        self.deferred = False
        self.failure: ShardkeepError | None = None
        self.size_bytes = 0
        self._final = final
        self._fd = fd
        self._pid = os.getpid()
        self._ignoring = False

    def fileno(self) -> int:
        """Return the descriptor."""
        self._check_open()
        return self._fd

    def _end_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def _read(self, target: memoryview) -> int:
        self._check_open()
        return read_all(self._fd, target, self._position)

    def write(self, data: Any) -> int:
        """Write all of `data` at the position.

        Raises
        ------
        DurabilityError
            The write failed (full disk, quota, I/O error).
        LockError
            In a forked child: the file belongs to the parent.
        """
        if self._is_placed(data):
            self._ready()
            return self._advance(memoryview(data).nbytes)
        with memoryview(data) as view, view.cast("B") as rest:
            size = len(rest)
            if self._ready():
                try:
                    write_all(self._fd, rest, self._position)
                except OSError as error:
                    self._fail(durability_error("write", self._final, error), error)
        return self._advance(size)

    def truncate(self, size: int | None = None) -> int:
        """Truncate or extend the file."""
        size = self._position if size is None else size
        if self._ready():
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                self._fail(durability_error("resize", self._final, error), error)
        return size

    def raise_failure(self) -> None:
        """Raise the error of a write that failed."""
        if self.failure is not None:
            raise self.failure

    @contextlib.contextmanager
    def failure_first(self) -> Iterator[None]:
        """Raise the error of a failed write instead of that which a library raises as a consequence."""
        try:
            yield
        except Exception:
            self.raise_failure()
            raise

    def fail(self, error: OSError) -> None:
        """Record an error of a write by other code."""
        self._fail(durability_error("write", self._final, error), error)

    def ignore(self) -> None:
        """Ignore all later writes, so that data in other buffers does not reach the file."""
        self._ignoring = True

    def release(self) -> None:
        """Close the descriptor; later writes are ignored.

        An error of close(2) is, too: before the file got its name, `seal` asked whether all bytes arrived.
        """
        self._ignoring = True
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def close(self) -> None:
        """Mark the file closed; the descriptor stays open until the file has been synced and renamed."""
        super().close()

    def _advance(self, size: int) -> int:
        self._position += size
        if self._position > self.size_bytes:
            self.size_bytes = self._position
        return size

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError(f"{self._final!r} is closed for writing")

    def _ready(self) -> bool:
        if self._ignoring:
            return False
        if self._pid != os.getpid():
            message = f"{self._final!r} is being written by process {self._pid}; a forked child cannot"
            self._fail(LockError(f"{message} write to it: open a separate file there", path=self._final))
            return False
        self._check_open()
        return True

    def _fail(self, failure: ShardkeepError, cause: OSError | None = None) -> None:
        self.failure = self.failure or failure
        if not self.deferred:
            raise failure from cause
        self._ignoring = True
