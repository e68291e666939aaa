"""Descriptors: how many the readers of this process may hold, and how many they do."""

from __future__ import annotations

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
        What they leave of the soft ``RLIMIT_NOFILE``, as it was when the first of them came, to everything
        else in the process.
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

    All readers and loaders of a process share one pool of descriptors. Files beyond its limit stay
    readable: their descriptors are given up and opened again as needed.

    Where the hard ``RLIMIT_NOFILE`` leaves room above the soft one, the pool goes there, up to 65,536: it
    takes numbers below the soft limit until a quarter of them is used, and then numbers beyond it, for which
    the soft limit is raised for the microsecond of an opening. Everything else in the process, and every
    program that it starts, sees the limit as it was, and `select` meets no number that it cannot hold. Where
    there is no such room, or with the environment variable ``SHARDKEEP_DESCRIPTORS=soft``, the pool takes
    three quarters of the soft limit.

    Notes
    -----
    Per process: a forked child goes on with copies of its parent's descriptors and counts for itself. The
    limits are looked at once, when the first file is opened or this is called.

    Examples
    --------
    >>> now = budget()
    >>> 0 <= now.open <= now.peak <= now.limit
    True
    """
    usage = _core.descriptor_usage()
    return Budget(**{name: usage[name] for name in ("limit", "reserve", "open", "peak")})
