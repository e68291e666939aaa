"""What requests keep for later ones: values of the files and locations asked for last, read in threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Background", "Recent", "Version", "version_of"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Version(NamedTuple):
    """A file in one state."""

    path: str
    inode: int
    size_bytes: int
    mtime_ns: int


def version_of(path: str) -> Version:
    """Return the present version of a file."""
    status = os.stat(path)
    return Version(path, status.st_ino, status.st_size, status.st_mtime_ns)


class Recent(Generic[K, T]):
    """The values that were asked for last.

    Parameters
    ----------
    make : callable
        Returns the value of a key.
    most : int
        Limit of the sum of the sizes; the newest value is kept in any case.
    size : callable, optional
        Returns the size of a value at the time of a request; 1 by default.
    """

    def __init__(self, make: Callable[[K], T], most: int, size: Callable[[T], int] = lambda _: 1) -> None:
        self._make, self._most, self._size = make, most, size
        self._lock = threading.Lock()
        self._known: dict[K, T] = {}

    def of(self, key: K) -> T:
        """Return the value of a key, which is that of an earlier request if there was one."""
        with self._lock:
            found = self._known.pop(key, None) or self._make(key)
            self._known[key] = found  # the newest is the last
            while len(self._known) > 1 and sum(map(self._size, self._known.values())) > self._most:
                del self._known[next(iter(self._known))]
            return found


class Background:
    """A thread that reads, one at a time, for which a request waits a short time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], object], wait_s: float) -> bool:
        """Let a thread do some work, unless one does; return whether it has ended."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=work, daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait_s)
        return not thread.is_alive()
