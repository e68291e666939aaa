"""`Steps`: some steps of a client that nobody may come between, neither a thread nor a signal handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from shardkeep.errors import LockError

__all__ = ["Steps"]

_T = TypeVar("_T")


class Steps:
    """A lock for what takes several steps that belong together; nothing waits with it held.

    Another thread waits for the end of the steps. A signal handler that comes between them runs in the very
    thread that has to go on, so it is refused.

    Parameters
    ----------
    rank : int
        For messages.

    Attributes
    ----------
    lock : RLock
    busy : bool
        Somebody is between two steps.
    """

    def __init__(self, rank: int) -> None:
        self.lock = threading.RLock()
        self.busy = False
        self._rank = rank

    def do(self, work: Callable[..., _T], *values: object) -> _T:
        """Do some steps."""
        # Nothing is called between the lock and `try`, and the lock is C: no handler runs there.
        with self.lock:
            if self.busy:
                raise self.interrupted()
            self.busy = True
            try:
                return work(*values)
            finally:
                self.busy = False

    def is_interrupted(self) -> bool:
        """Whether this is a signal handler that came between two steps of another call of its thread."""
        with self.lock:
            return self.busy

    def interrupted(self) -> LockError:
        """Return the error for a call out of a signal handler that came between two steps of another."""
        message = (
            f"the client of rank {self._rank} is in the middle of another call, this one came in between"
        )
        return LockError(
            f"{message}: a signal handler sets a flag, and the loop acts on it between two calls"
        )
