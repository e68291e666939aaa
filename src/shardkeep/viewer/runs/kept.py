"""What requests keep for later ones: values of the locations asked for last, read in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from shardkeep.viewer.locations import Location

__all__ = ["Background", "Recent"]

_MOST_LOCATIONS = 8

T = TypeVar("T")


class Recent(Generic[T]):
    """The values of the eight locations that were asked for last; `make` returns that of a new one."""

    def __init__(self, make: Callable[[Location], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: dict[str, T] = {}

    def of(self, location: Location) -> T:
        """Return the value of a location, which is that of an earlier request if there was one."""
        with self._lock:
            found = self._known.pop(location.path, None) or self._make(location)
            self._known[location.path] = found
            if len(self._known) > _MOST_LOCATIONS:
                del self._known[next(iter(self._known))]
            return found


class Background:
    """A thread that reads, one at a time, for which a request waits a short time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, begin: Callable[[], Callable[[], object]], wait_s: float) -> bool:
        """Let a thread do what `begin` returns, unless one is at work; return whether it has ended."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=begin(), daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait_s)
        return not thread.is_alive()
