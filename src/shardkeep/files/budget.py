"""Descriptor budget of the readers of this process."""

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
        Largest number of descriptors that all readers of this process together hold at once.
    reserve : int
        Part of the soft ``RLIMIT_NOFILE`` (at the first open) that is left to the rest of the process.
    open : int
        Number of descriptors that the readers hold now.
    peak : int
        Largest number that they have held so far.
    """

    limit: int
    reserve: int
    open: int
    peak: int


def budget() -> Budget:
    """Return the descriptor budget of this process.

    All readers and loaders of a process share one pool of descriptors. Files beyond its limit stay
    readable: their descriptors are closed and opened again as needed.

    If the hard ``RLIMIT_NOFILE`` is above the soft one, the pool extends to it, up to 65,536: it takes
    numbers below the soft limit until a quarter of them is used, and then numbers beyond it, for which the
    soft limit is raised for the microsecond of an ``open``. The rest of the process, and every program that
    it starts, sees the original limit, and `select` gets no number that it does not support. If the limits
    are equal, or with the environment variable ``SHARDKEEP_DESCRIPTORS=soft``, the pool takes three quarters
    of the soft limit.

    Returns
    -------
    Budget
        Limit, reserve and use of the descriptors at this moment.

    Notes
    -----
    The budget is per process: a forked child continues with copies of its parent's descriptors and counts
    them separately. The limits are read once, when the first file is opened or this function is called.

    Examples
    --------
    >>> now = budget()
    >>> 0 <= now.open <= now.peak <= now.limit
    True
    """
    usage = _core.descriptor_usage()
    return Budget(**{name: usage[name] for name in ("limit", "reserve", "open", "peak")})
