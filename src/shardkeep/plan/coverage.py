"""Coverage of an epoch's positions: which were delivered, lost or repeated.

A rank's part of an epoch is a strided range: one interval every `stride` positions. `StridedRanges` is a
table of such ranges. `measure_coverage` counts positions that they miss or cover twice. It expands the
intervals piece by piece, so memory stays bounded for any number of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardkeep._summary import summary

__all__ = ["MOST_RANGES", "Coverage", "RangeSet", "StridedRanges", "measure_coverage", "true_ranges"]

# Number of intervals expanded at a time; they take about 200 MB of temporary arrays.
_PIECE = 2**21
# Kinds of positions: by number of deliveries, and dropped on purpose.
_LOST, _ONCE, _REPEATED, _DROPPED = range(4)

I64 = NDArray[np.int64]

MOST_RANGES = 64
"""Number of ranges that a `RangeSet` has, unless more are requested."""


@dataclass(frozen=True, slots=True)
class StridedRanges:
    """Strided ranges: range i is the intervals ``[start + k*stride, start + k*stride + length)``, k < count.

    All columns are int64 arrays of equal length; strides are positive.
    """

    start: I64
    stride: I64
    count: I64
    length: I64

    @classmethod
    def concatenate(cls, parts: Sequence[StridedRanges]) -> StridedRanges:
        """Return one table with the ranges of several tables."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(*(np.concatenate([empty, *(getattr(p, name) for p in parts)]) for name in cls.__slots__))

    @classmethod
    def intervals(cls, starts: I64, stops: I64) -> StridedRanges:
        """Return one interval for each pair (start, stop)."""
        ones = np.broadcast_to(np.int64(1), starts.shape)
        return cls(starts, ones, ones, stops - starts)

    @classmethod
    def joined(cls, parts: Iterable[StridedRanges]) -> StridedRanges:
        """Return one table with the ranges of several, without empty ones.

        Intervals that meet become one: neighbours in the table, and those with the same index in two
        consecutive parts, as the records of a file that two runs have read.
        """
        found, last = [], cls.concatenate([])
        for part in parts:
            if part.start.size == last.start.size:
                meets = last._ends_at(part)
                found.append(last._chosen(~meets & (last.length > 0)))
                start = np.where(meets, last.start, part.start)
                part = cls(start, part.stride, part.count, part.length + meets * last.length)
            else:
                found.append(last)
            last = part
        whole = cls.concatenate([*found, last])
        whole = whole._chosen(whole.length > 0)
        begins = np.append(True, ~whole._chosen(slice(-1))._ends_at(whole._chosen(slice(1, None))))
        first = np.flatnonzero(begins[: whole.start.size])
        return replace(whole._chosen(first), length=np.add.reduceat(whole.length, first))

    def _ends_at(self, other: StridedRanges) -> NDArray[np.bool_]:
        """Return which ranges are an interval that ends where that of the other table begins."""
        single = (self.count == 1) & (other.count == 1)
        meets: NDArray[np.bool_] = single & (self.start + self.length == other.start)
        return meets

    def _chosen(self, which: Any) -> StridedRanges:
        return type(self)(*(getattr(self, name)[which] for name in self.__slots__))

    def inside(self, low: int, high: int) -> tuple[I64, I64]:
        """Return, for each range, the half-open range of k whose intervals overlap ``[low, high)``."""
        first = (low - self.length - self.start) // self.stride + 1
        last = (high - 1 - self.start) // self.stride + 1
        first = np.clip(first, 0, self.count)
        last = np.where(self.length > 0, np.clip(last, first, self.count), first)
        return first, last

    def expanded(self, low: int, high: int) -> tuple[I64, I64]:
        """Return starts and stops of all intervals that overlap ``[low, high)``, cut to it."""
        first, last = self.inside(low, high)
        number = last - first
        before = np.cumsum(number) - number
        k = np.arange(int(number.sum()), dtype=np.int64) + np.repeat(first - before, number)
        starts = np.repeat(self.start, number) + k * np.repeat(self.stride, number)
        stops = starts + np.repeat(self.length, number)
        return np.maximum(starts, low), np.minimum(stops, high)


@dataclass(frozen=True, slots=True)
class RangeSet:
    """Disjoint half-open ranges: the number of positions and of ranges, and the first ranges.

    Attributes
    ----------
    records : int
        Number of positions in all ranges together.
    ranges : int
        Number of ranges.
    first : tuple of (int, int)
        The first ranges; at most 64, unless `measure_coverage` was called for more.
    """

    records: int = 0
    ranges: int = 0
    first: tuple[tuple[int, int], ...] = ()

    __repr__ = summary

    @classmethod
    def of(cls, start: int, stop: int) -> RangeSet:
        """Return a set of one range, or the empty set if ``stop <= start``.

        Parameters
        ----------
        start, stop : int
            The range, half open.

        Returns
        -------
        RangeSet
        """
        return cls(stop - start, 1, ((start, stop),)) if stop > start else cls()

    def leading(self, number: int) -> list[int]:
        """Return the first positions of the set.

        Parameters
        ----------
        number : int
            Largest number of positions to return.

        Returns
        -------
        list of int
        """
        found: list[int] = []
        for start, stop in self.first:
            found.extend(range(start, min(stop, start + number - len(found))))
        return found


@dataclass(frozen=True, slots=True)
class Coverage:
    """Positions of ``[0, records)`` by kind: delivered at least once, lost, repeated, dropped on purpose."""

    delivered: int
    lost: RangeSet
    repeated: RangeSet
    dropped: RangeSet


class _RangeCollector:
    """A collector of ranges in ascending order, which joins adjacent ones."""

    def __init__(self, most_ranges: int) -> None:
        self.records = self.ranges = 0
        self.first: list[tuple[int, int]] = []
        self._most = most_ranges
        self._stop = -1

    def add(self, starts: I64, stops: I64) -> None:
        if starts.size == 0:
            return
        joins = int(starts[0]) == self._stop
        self.records += int((stops - starts).sum())
        self.ranges += starts.size - joins
        most = self._most + 1
        shown = list(zip(starts[:most].tolist(), stops[:most].tolist(), strict=True))
        if joins:
            if self.first[-1][1] == self._stop:
                self.first[-1] = (self.first[-1][0], shown[0][1])
            shown = shown[1:]
        self.first.extend(shown[: self._most - len(self.first)])
        self._stop = int(stops[-1])

    def result(self) -> RangeSet:
        return RangeSet(self.records, self.ranges, tuple(self.first))


def measure_coverage(
    delivered: StridedRanges,
    records: int,
    *,
    dropped: StridedRanges | None = None,
    most_ranges: int = MOST_RANGES,
    piece: int = _PIECE,
) -> Coverage:
    """Return how the delivered ranges cover ``[0, records)``.

    Parameters
    ----------
    delivered : StridedRanges
        Delivered positions; positions outside ``[0, records)`` are ignored.
    records : int
        Number of positions of the epoch.
    dropped : StridedRanges, optional
        Positions that count as dropped, not as lost, if they are not delivered.
    most_ranges : int
        Number of ranges of each kind that are returned.
    piece : int
        Number of intervals to expand at a time.

    Examples
    --------
    >>> one = np.array([1])
    >>> found = measure_coverage(StridedRanges(0 * one, 10 * one, 2 * one, 4 * one), 16)
    >>> found.delivered, found.repeated.records
    (8, 0)
    >>> found.lost
    <RangeSet records=8, ranges=2, first=((4, 10), (14, 16))>
    """
    excused = StridedRanges.concatenate([]) if dropped is None else dropped
    collected = [_RangeCollector(most_ranges) for _ in range(4)]
    stack = [(0, records)]
    while stack:
        low, high = stack.pop()
        if low == high:
            continue
        number = sum(int(np.subtract(*one.inside(low, high)[::-1]).sum()) for one in (delivered, excused))
        if number > piece and high - low > 1:
            middle = (low + high) // 2
            stack += [(middle, high), (low, middle)]
            continue
        edges, kinds = _kinds(delivered.expanded(low, high), excused.expanded(low, high), low, high)
        for kind in (_LOST, _REPEATED, _DROPPED):
            chosen = np.flatnonzero(kinds == kind)
            collected[kind].add(edges[chosen], edges[chosen + 1])
    lost, repeated, left_out = (collected[kind].result() for kind in (_LOST, _REPEATED, _DROPPED))
    return Coverage(records - lost.records - left_out.records, lost, repeated, left_out)


def _kinds(covered: tuple[I64, I64], excused: tuple[I64, I64], low: int, high: int) -> tuple[I64, I64]:
    """Split ``[low, high)`` where the kind changes; return the edges and the kind after each edge."""
    points = np.concatenate([[low], *covered, *excused])
    change = np.zeros(points.size, np.int64)
    next_ = 1
    # Both depths in one number, since a piece has fewer than 2**32 intervals.
    for (starts, stops), unit in ((covered, 1), (excused, 1 << 32)):
        change[next_ : next_ + starts.size] = unit
        change[next_ + starts.size : next_ + starts.size + stops.size] = -unit
        next_ += starts.size + stops.size
    order = np.argsort(points, kind="stable")
    points, depth = points[order], np.cumsum(change[order])
    kind = np.minimum(depth & 0xFFFF_FFFF, _REPEATED)
    kind[(kind == _LOST) & (depth > 0)] = _DROPPED
    final = np.append(points[1:] != points[:-1], True) & (points < high)
    points, kind = points[final], kind[final]
    new = np.append(True, kind[1:] != kind[:-1])
    return np.append(points[new], high), kind[new]


def true_ranges(mask: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Return start and stop of each half-open range of indices in which `mask` is True."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
