"""The HDF5 files that this process has open for reading: which to close when there are too many.

Two things run out: descriptors, and the memory of HDF5's chunk caches, one per open dataset. Both have a
budget for the whole process. A file over budget is closed, the one least recently used first, and opened
again when it is used next; nobody notices but for the time.

- **Descriptors**: one eighth of the soft ``RLIMIT_NOFILE``, 4 to 512. The readers of records take up to
  three quarters (`shardkeep.files.budget`), so an eighth is left for everything else.
- **Chunk caches**: 256 MiB, or `SHARDKEEP_HDF5_CACHE_BYTES`. An open dataset counts with the smaller of its
  size and its file's ``rdcc_nbytes``.

Everything here happens under h5py's own lock, as all of HDF5 does: no second lock, no order of locks.
"""

from __future__ import annotations

import os
import resource
import weakref
from typing import Protocol

from h5py._objects import phil

from shardkeep.errors import PlanError

__all__ = ["CACHE_VARIABLE", "OpenFiles", "cache_budget_bytes", "file_budget", "open_files"]

CACHE_VARIABLE = "SHARDKEEP_HDF5_CACHE_BYTES"
_CACHE_BYTES = 256 * 1024 * 1024
_FEWEST, _MOST = 4, 512


def file_budget() -> int:
    """How many HDF5 files may be open for reading at once in this process.

    Examples
    --------
    >>> 4 <= file_budget() <= 512
    True
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(_FEWEST, min(_MOST, soft // 8))


def cache_budget_bytes() -> int:
    """How many bytes the chunk caches of all open datasets may take together.

    Raises
    ------
    PlanError
        The variable is not a number of bytes.
    """
    told = os.environ.get(CACHE_VARIABLE)
    if told is None:
        return _CACHE_BYTES
    try:
        return max(0, int(told))
    except ValueError:
        raise PlanError(f"{CACHE_VARIABLE}={told!r} is not a whole number of bytes: set one") from None


class OpenFile(Protocol):
    """An open file, as the budget uses it.

    Attributes
    ----------
    pins : int
        Calls that need the file open; above 0 it is not closed.
    used : bool
        Whether it was used since the budget last passed over it.
    cache_bytes : int
        Bytes that the chunk caches of its datasets may take.
    """

    pins: int
    used: bool
    cache_bytes: int

    def suspend(self) -> None:
        """Close the file until it is used again."""


class OpenFiles:
    """The open files of a process, in the order in which they were last used (roughly).

    Attributes
    ----------
    cache_bytes : int
        What the datasets of all of them count.
    """

    def __init__(self) -> None:
        self._files: dict[int, weakref.ref[OpenFile]] = {}
        self.cache_bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def make_room(self) -> None:
        """Close files until one more fits."""
        while len(self._files) >= file_budget() and self._close_one():
            pass

    def close_all(self) -> bool:
        """Close every file that may be closed; whether there was one."""
        before = len(self._files)
        while self._close_one():
            pass
        return len(self._files) < before

    def add(self, file: OpenFile) -> None:
        """Count a file that was opened."""
        self._files[id(file)] = weakref.ref(file)

    def remove(self, file: OpenFile) -> None:
        """Forget a file that was closed."""
        if self._files.pop(id(file), None) is not None:
            self.cache_bytes -= file.cache_bytes

    def add_cache(self, file: OpenFile, size_bytes: int) -> None:
        """Count the cache of a dataset that was opened; other files are closed if it is too much."""
        file.cache_bytes += size_bytes
        self.cache_bytes += size_bytes
        if self.cache_bytes > cache_budget_bytes():
            file.pins += 1
            try:
                while self.cache_bytes > cache_budget_bytes() and self._close_one():
                    pass
            finally:
                file.pins -= 1

    def forget_all(self) -> None:
        """Start anew, in a forked child."""
        self._files.clear()
        self.cache_bytes = 0

    def _close_one(self) -> bool:
        """Close the first file that was not used since it was last looked at (second chance)."""
        with phil:
            for _ in range(2 * len(self._files)):
                key = next(iter(self._files))
                file = self._files.pop(key)()
                if file is None:
                    continue
                self._files[key] = weakref.ref(file)
                if file.pins:
                    continue
                if file.used:
                    file.used = False
                    continue
                file.suspend()
                return True
            return False


open_files = OpenFiles()
