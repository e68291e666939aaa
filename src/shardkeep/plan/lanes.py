"""Several files read at a time, one record of each in turn, in closed form.

A *lane* is one of the places that files are read in. A file takes the lane that is free first and keeps it
to its end, so a lane is busy from the first round to its last, without a gap. One round takes a record from
each busy lane. So the record at any place of the row, and how far each file is read there, follow from the
lanes' ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from shardkeep.errors import PlanError

__all__ = ["Lanes"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Files of one reader in the order in which they are opened.

    Attributes
    ----------
    counts : ndarray of int64, shape (files,)
        Records of each file, 1 at least.
    lane, begin : ndarray of int64, shape (files,)
        The lane of each file, and the round in which its first record comes.
    ends : ndarray of int64, shape (lanes,)
        The round after the last of each lane.
    order, keys : ndarray of int64, shape (files,)
        The files by lane and begin, and a number for each that ascends with them.

    Examples
    --------
    >>> lanes = Lanes.of(np.array([3, 1, 2]), 2)
    >>> file, index = lanes.between(0, 6)
    >>> list(zip(file.tolist(), index.tolist()))
    [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (2, 1)]
    >>> lanes.read_after(3).tolist()
    [2, 1, 0]
    """

    counts: I64
    lane: I64
    begin: I64
    ends: I64
    order: I64
    keys: I64

    @classmethod
    def of(cls, counts: I64, width: int) -> Lanes:
        """Lay the files into at most `width` lanes."""
        first = min(width, counts.size)
        lane: I64 = np.arange(counts.size, dtype=np.int64)
        begin: I64 = np.zeros(counts.size, np.int64)
        free = [(end, number) for number, end in enumerate(counts[:first].tolist())]
        if counts.size > first:
            free.sort()
            later = []
            for count in counts[first:].tolist():
                place = free[0]
                later.append(place)
                heapreplace(free, (place[0] + count, place[1]))
            begin[first:], lane[first:] = np.array(later, np.int64).T
        ends = np.zeros(first, np.int64)
        for end, number in free:
            ends[number] = end
        order = np.lexsort((begin, lane))
        # 65,536 lanes of 2**47 rounds are more than any disk holds.
        stride = int(ends.max(initial=0)) + 1
        if first * stride >= 2**63:
            raise PlanError(
                f"one rank would read {stride} records at {first} places: give a lower cycle_length"
            )
        return cls(counts, lane, begin, ends, order, lane[order] * stride + begin[order])

    def between(self, start: int, stop: int) -> tuple[I64, I64]:
        """Return (file, record number in it) of the places ``[start, stop)`` of the row."""
        lanes, turns = [], []
        low = base = 0
        for high in np.unique(self.ends).tolist():
            busy = np.flatnonzero(self.ends >= high)
            after = base + (high - low) * busy.size
            if after > start and base < stop:
                place = np.arange(max(start, base), min(stop, after), dtype=np.int64) - base
                turn = place // busy.size
                lanes.append(busy[place - turn * busy.size])
                turns.append(low + turn)
            low, base = high, after
            if base >= stop:
                break
        if not lanes:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        lane, turn = np.concatenate(lanes), np.concatenate(turns)
        stride = int(self.ends.max()) + 1
        file = self.order[np.searchsorted(self.keys, lane * stride + turn, side="right") - 1]
        return file, turn - self.begin[file]

    def read_after(self, places: int) -> I64:
        """Return how many records of each file are among the first `places` of the row."""
        sorted_ends = np.sort(self.ends)
        # Rounds and places at which each lane ends: the lanes are fewer after each.
        rounds = np.concatenate([[0], sorted_ends])
        before = np.concatenate([[0], np.cumsum(np.diff(rounds) * np.arange(self.ends.size, 0, -1))])
        passed = int(np.searchsorted(before, places, side="right")) - 1
        if passed == self.ends.size:
            return self.counts.copy()
        busy = self.ends > rounds[passed]
        turn, more = divmod(places - int(before[passed]), self.ends.size - passed)
        reached = np.minimum(self.ends, rounds[passed] + turn)
        reached[np.flatnonzero(busy)[:more]] += 1
        read: I64 = np.clip(reached[self.lane] - self.begin, 0, self.counts)
        return read
