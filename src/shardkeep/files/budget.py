"""Descriptors: how many the readers of this process may hold, and how many they do."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from shardkeep import _core

__all__ = ["Budget", "budget"]


@dataclass(frozen=True)
class Budget:
    """The descriptor budget of this process.

    Attributes
    ----------
    limit : int
        Most descriptors that all readers of this process together hold at once.
    reserve : int
        What is left of the soft ``RLIMIT_NOFILE`` for everything else in the process.
    open : int
        Descriptors that the readers hold now.
    peak : int
        Most that they ever held.
    """

    limit: int
    reserve: int
    open: int
    peak: int


def budget() -> Budget:
    """Return the descriptor budget of this process.

    All readers and loaders of a process share one pool of descriptors. It takes three quarters of the
    soft ``RLIMIT_NOFILE``, at most 65,536; files beyond that stay readable, their descriptors are
    given up and opened again as needed.

    Notes
    -----
    Per process: a forked child goes on with copies of its parent's descriptors and counts for itself.

    Examples
    --------
    >>> now = budget()
    >>> 0 <= now.open <= now.peak <= now.limit
    True
    """
    usage = _core.descriptor_usage()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = max(soft - usage["limit"], 0) if soft != resource.RLIM_INFINITY else 0
    return Budget(limit=usage["limit"], reserve=reserve, open=usage["open"], peak=usage["peak"])
