"""How often each position of an epoch was delivered, by arithmetic on regular runs of intervals.

A rank's part of an epoch is a comb: one interval every `stride` positions. `Combs` holds many of them in
columns, `measure` counts what they leave out and what they cover twice. Combs are expanded piece by piece,
so memory stays bounded however many intervals there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Combs", "Coverage", "RangeSet", "measure"]

# Intervals expanded at a time: about 200 MB of temporary arrays.
_PIECE = 2**21
_SHOWN = 64

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Combs:
    """Comb i is the intervals ``[start + k*stride, start + k*stride + length)`` for k in ``range(count)``.

    All columns are int64 arrays of one length; strides are positive.
    """

    start: I64
    stride: I64
    count: I64
    length: I64

    @classmethod
    def joined(cls, parts: Sequence[Combs]) -> Combs:
        """Return all combs of several tables in one."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(*(np.concatenate([empty, *(getattr(p, name) for p in parts)]) for name in cls.__slots__))

    def inside(self, low: int, high: int) -> tuple[I64, I64]:
        """Return, for each comb, the first and the last (exclusive) k that meets ``[low, high)``."""
        first = (low - self.length - self.start) // self.stride + 1
        last = (high - 1 - self.start) // self.stride + 1
        first = np.clip(first, 0, self.count)
        last = np.where(self.length > 0, np.clip(last, first, self.count), first)
        return first, last

    def expanded(self, low: int, high: int) -> tuple[I64, I64]:
        """Return starts and stops of all intervals that meet ``[low, high)``, cut to it."""
        first, last = self.inside(low, high)
        number = last - first
        before = np.cumsum(number) - number
        k = np.arange(int(number.sum()), dtype=np.int64) + np.repeat(first - before, number)
        starts = np.repeat(self.start, number) + k * np.repeat(self.stride, number)
        stops = starts + np.repeat(self.length, number)
        return np.maximum(starts, low), np.minimum(stops, high)


@dataclass(frozen=True, slots=True)
class RangeSet:
    """Disjoint half-open ranges: how many positions in how many ranges, and the first of them.

    Attributes
    ----------
    records : int
        Positions in all ranges together.
    ranges : int
        How many ranges there are.
    first : tuple of (int, int)
        The first 64 at most.
    """

    records: int = 0
    ranges: int = 0
    first: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, start: int, stop: int) -> RangeSet:
        """Return the set of one range, or the empty set."""
        return cls(stop - start, 1, ((start, stop),)) if stop > start else cls()

    def leading(self, number: int) -> list[int]:
        """Return the first positions of the set, `number` at most."""
        found: list[int] = []
        for start, stop in self.first:
            found.extend(range(start, min(stop, start + number - len(found))))
        return found


@dataclass(frozen=True, slots=True)
class Coverage:
    """Positions of ``[0, records)`` delivered at least once, never, more than once, and left out rightly."""

    delivered: int
    lost: RangeSet
    repeated: RangeSet
    dropped: RangeSet


class _Collected:
    """Takes ranges in ascending order and joins those that touch."""

    def __init__(self) -> None:
        self.records = self.ranges = 0
        self.first: list[tuple[int, int]] = []
        self._stop = -1

    def add(self, starts: I64, stops: I64) -> None:
        if starts.size == 0:
            return
        joins = int(starts[0]) == self._stop
        self.records += int((stops - starts).sum())
        self.ranges += starts.size - joins
        shown = list(zip(starts[: _SHOWN + 1].tolist(), stops[: _SHOWN + 1].tolist(), strict=True))
        if joins:
            if self.first[-1][1] == self._stop:
                self.first[-1] = (self.first[-1][0], shown[0][1])
            shown = shown[1:]
        self.first.extend(shown[: _SHOWN - len(self.first)])
        self._stop = int(stops[-1])

    def result(self) -> RangeSet:
        return RangeSet(self.records, self.ranges, tuple(self.first))


def measure(combs: Combs, records: int, *, dropped_from: int | None = None, piece: int = _PIECE) -> Coverage:
    """Count how the combs cover ``[0, records)``.

    Parameters
    ----------
    combs : Combs
        Positions outside the range are ignored.
    records : int
    dropped_from : int, optional
        Positions from here on that are not covered count as dropped, not as lost.
    piece : int
        Intervals to expand at a time.

    Examples
    --------
    >>> one = np.array([1])
    >>> found = measure(Combs(0 * one, 10 * one, 2 * one, 4 * one), 16)
    >>> found.delivered, found.repeated.records
    (8, 0)
    >>> found.lost
    RangeSet(records=8, ranges=2, first=((4, 10), (14, 16)))
    """
    border = records if dropped_from is None else dropped_from
    lost, repeated, dropped = _Collected(), _Collected(), _Collected()
    stack = [(border, records), (0, border)]
    while stack:
        low, high = stack.pop()
        if low == high:
            continue
        first, last = combs.inside(low, high)
        if int((last - first).sum()) > piece and high - low > 1:
            middle = (low + high) // 2
            stack += [(middle, high), (low, middle)]
            continue
        edges, kinds = _kinds(*combs.expanded(low, high), low, high)
        for kind, collected in ((0, dropped if low >= border else lost), (2, repeated)):
            chosen = np.flatnonzero(kinds == kind)
            collected.add(edges[chosen], edges[chosen + 1])
    delivered = records - lost.records - dropped.records
    return Coverage(delivered, lost.result(), repeated.result(), dropped.result())


def _kinds(starts: I64, stops: I64, low: int, high: int) -> tuple[I64, I64]:
    """Cut ``[low, high)`` where the depth changes between 0, 1 and more; return edges and depths."""
    points = np.concatenate([[low], starts, stops])
    change = np.concatenate([[0], np.ones(starts.size, np.int64), np.full(stops.size, -1, np.int64)])
    order = np.argsort(points, kind="stable")
    points, depth = points[order], np.minimum(np.cumsum(change[order]), 2)
    final = np.append(points[1:] != points[:-1], True) & (points < high)
    points, depth = points[final], depth[final]
    new = np.append(True, depth[1:] != depth[:-1])
    return np.append(points[new], high), depth[new]
