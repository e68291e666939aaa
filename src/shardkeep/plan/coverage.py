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
# Kinds of positions: by how often they were delivered, and those that need not be.
_LOST, _ONCE, _REPEATED, _DROPPED = range(4)

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

    @classmethod
    def ranges(cls, starts: I64, stops: I64) -> Combs:
        """Return one interval for each pair; empty ones are left out."""
        real = stops > starts
        ones = np.ones(int(real.sum()), np.int64)
        return cls(starts[real], ones, ones, stops[real] - starts[real])

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


def measure(combs: Combs, records: int, *, dropped: Combs | None = None, piece: int = _PIECE) -> Coverage:
    """Count how the combs cover ``[0, records)``.

    Parameters
    ----------
    combs : Combs
        Positions outside the range are ignored.
    records : int
    dropped : Combs, optional
        Positions that count as dropped, not as lost, where they are not covered.
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
    excused = Combs.joined([]) if dropped is None else dropped
    collected = _Collected(), _Collected(), _Collected(), _Collected()
    stack = [(0, records)]
    while stack:
        low, high = stack.pop()
        if low == high:
            continue
        number = sum(int(np.subtract(*one.inside(low, high)[::-1]).sum()) for one in (combs, excused))
        if number > piece and high - low > 1:
            middle = (low + high) // 2
            stack += [(middle, high), (low, middle)]
            continue
        edges, kinds = _kinds(combs.expanded(low, high), excused.expanded(low, high), low, high)
        for kind in (_LOST, _REPEATED, _DROPPED):
            chosen = np.flatnonzero(kinds == kind)
            collected[kind].add(edges[chosen], edges[chosen + 1])
    lost, repeated, left_out = (collected[kind].result() for kind in (_LOST, _REPEATED, _DROPPED))
    return Coverage(records - lost.records - left_out.records, lost, repeated, left_out)


def _kinds(covered: tuple[I64, I64], excused: tuple[I64, I64], low: int, high: int) -> tuple[I64, I64]:
    """Cut ``[low, high)`` where the kind changes; return the edges and the kind after each."""
    points = np.concatenate([[low], *covered, *excused])
    change = np.zeros(points.size, np.int64)
    at = 1
    # Depths of both in one number: there are fewer than 2**32 intervals in a piece.
    for (starts, stops), unit in ((covered, 1), (excused, 1 << 32)):
        change[at : at + starts.size] = unit
        change[at + starts.size : at + starts.size + stops.size] = -unit
        at += starts.size + stops.size
    order = np.argsort(points, kind="stable")
    points, depth = points[order], np.cumsum(change[order])
    kind = np.minimum(depth & 0xFFFF_FFFF, _REPEATED)
    kind[(kind == _LOST) & (depth > 0)] = _DROPPED
    final = np.append(points[1:] != points[:-1], True) & (points < high)
    points, kind = points[final], kind[final]
    new = np.append(True, kind[1:] != kind[:-1])
    return np.append(points[new], high), kind[new]
