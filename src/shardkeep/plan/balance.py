"""Dividing files of different sizes evenly."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["balanced"]

# Where one step of the division places fewer files than this, so many are placed one by one.
_FEW, _ONE_BY_ONE = 64, 4096

I64 = NDArray[np.int64]


def balanced(sizes: ArrayLike, world_size: int) -> I64:
    """Return the rank of each file: each goes to the rank with the least so far, the largest first.

    The largest rank has at most a third more than in the best division there is (Graham, "Bounds on
    Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17, 1969).

    Parameters
    ----------
    sizes : array of int
        What is to be balanced, such as bytes. Files of size 0 go to no rank.
    world_size : int

    Returns
    -------
    ndarray of int64
        Rank of each file, -1 for no rank. Of equal files the first, of equal ranks the lowest comes first.

    Examples
    --------
    >>> balanced([5, 9, 0, 4], 2).tolist()
    [1, 0, -1, 1]
    """
    given = np.asarray(sizes, dtype=np.int64)
    rank_of = np.full(given.size, -1, np.int64)
    order = np.argsort(-given, kind="stable")[: int(np.count_nonzero(given))]
    loads = np.zeros(world_size, np.int64)
    at = 0
    while at < order.size:
        files = order[at : at + world_size]
        ranks = np.argsort(loads, kind="stable")[: files.size]
        after = loads[ranks] + given[files]
        # One file each, in this order, for as long as no rank that has got one comes before the next.
        ahead = np.minimum.accumulate(after)[:-1] <= loads[ranks][1:]
        fitting = int(np.argmax(ahead)) + 1 if ahead.any() else files.size
        rank_of[files[:fitting]] = ranks[:fitting]
        loads[ranks[:fitting]] = after[:fitting]
        at += fitting
        if fitting < min(_FEW, files.size):
            one_by_one = order[at : at + _ONE_BY_ONE]
            rank_of[one_by_one] = _one_by_one(given[one_by_one], loads)
            at += one_by_one.size
    return rank_of


def _one_by_one(sizes: I64, loads: I64) -> list[int]:
    """Return the rank of each size, and add it to the loads."""
    # Load and rank in one number, which is compared faster than a pair.
    bits = loads.size.bit_length()
    heap = [load << bits | rank for rank, load in enumerate(loads.tolist())]
    heapify(heap)
    least = []
    for size in sizes.tolist():
        least.append(heap[0])
        heapreplace(heap, heap[0] + (size << bits))
    mask = (1 << bits) - 1
    for one in heap:
        loads[one & mask] = one >> bits
    return [one & mask for one in least]
