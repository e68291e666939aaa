"""Budget of the HDF5 files that this process has open for reading.

Two resources are limited for the whole process. A file over budget is closed, the least recently used one
first, and opened again when it is used next.

- **Descriptors**: one eighth of the soft ``RLIMIT_NOFILE``, 4 to 512. The readers of records take up to
  three quarters (`shardkeep.files.budget`), so an eighth is left for everything else.
- **Chunk caches**: 256 MiB, or `SHARDKEEP_HDF5_CACHE_BYTES`. An open dataset counts with the smaller of its
  size and its file's ``rdcc_nbytes``.

All calls are made under h5py's own lock, as all of HDF5, so no second lock and no lock order are needed.
"""

from __future__ import annotations

import os
import resource
import weakref
from typing import Protocol

from shardkeep.errors import PlanError
from shardkeep.hdf5.h5py_private import phil

__all__ = ["CACHE_VARIABLE", "OpenFileBudget", "max_cache_bytes", "max_open_files", "open_file_budget"]

CACHE_VARIABLE = "SHARDKEEP_HDF5_CACHE_BYTES"
_CACHE_BYTES = 256 * 1024 * 1024
_FEWEST, _MOST = 4, 512


def max_open_files() -> int:
    """Return how many HDF5 files this process may have open for reading.

    Examples
    --------
    >>> 4 <= max_open_files() <= 512
    True
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(_FEWEST, min(_MOST, soft // 8))


def max_cache_bytes() -> int:
    """Return how many bytes the chunk caches of all open datasets may take together.

    Raises
    ------
    PlanError
        The variable is not a number of bytes.
    """
    text = os.environ.get(CACHE_VARIABLE)
    if not text:
        return _CACHE_BYTES
    try:
        return max(0, int(text))
    except ValueError:
        raise PlanError(f"{CACHE_VARIABLE}={text!r} is not a whole number of bytes: set one") from None


class OpenFile(Protocol):
    """An open file in the budget.

    Attributes
    ----------
    pins : int
        Number of calls that need the file open; it is not closed while there is one.
    used : bool
        Whether it was used since the budget last considered it.
    cache_bytes : int
        Bytes that the chunk caches of its datasets may take.
    """

    pins: int
    used: bool
    cache_bytes: int

    def suspend(self) -> None:
        """Close the file until it is used again."""


class OpenFileBudget:
    """Open files of a process, roughly in the order of their last use.

    Attributes
    ----------
    cache_bytes : int
        Sum over all files.
    """

    def __init__(self) -> None:
        self._files: dict[int, weakref.ref[OpenFile]] = {}
        self.cache_bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def make_room(self) -> None:
        """Close files until one more fits."""
        while len(self._files) >= max_open_files() and self._close_one():
            pass

    def close_all(self) -> bool:
        """Close every file that may be closed; return whether there was one."""
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
        """Count the cache of a dataset that was opened, and close other files if the sum is too large."""
        file.cache_bytes += size_bytes
        self.cache_bytes += size_bytes
        if self.cache_bytes > max_cache_bytes():
            file.pins += 1
            try:
                while self.cache_bytes > max_cache_bytes() and self._close_one():
                    pass
            finally:
                file.pins -= 1

    def forget_all(self) -> None:
        """Forget the files of the parent, in a forked child."""
        self._files.clear()
        self.cache_bytes = 0

    def _close_one(self) -> bool:
        """Close the first file that was not used since it was last considered (second chance)."""
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


open_file_budget = OpenFileBudget()
