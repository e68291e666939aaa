"""Coverage by strided ranges equals counting position by position."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.plan.coverage import RangeSet, StridedRanges, measure_coverage

RANGE = st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 8), st.integers(0, 25))
RANGES = st.lists(RANGE, max_size=6)


def table(rows) -> StridedRanges:  # type: ignore[no-untyped-def]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return StridedRanges(*columns)


def ranges(chosen: np.ndarray) -> RangeSet:
    edges = np.diff(np.concatenate([[0], chosen.astype(int), [0]]))
    pairs = list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))
    return RangeSet(int(chosen.sum()), len(pairs), tuple(pairs))


@given(RANGES, st.integers(0, 80), st.integers(0, 80), st.sampled_from([1, 3, 2**21]))
def test_coverage_equals_a_count_of_each_position(rows, records: int, border: int, piece: int) -> None:  # type: ignore[no-untyped-def]
    border = min(border, records)
    depth = np.zeros(400, dtype=int)
    for start, stride, count, length in rows:
        for k in range(count):
            depth[start + k * stride : start + k * stride + length] += 1
    depth = depth[:records]
    before = np.arange(records) < border
    found = measure_coverage(table(rows), records, dropped=table([(border, 1, 1, 400)]), piece=piece)
    assert found.delivered == int((depth > 0).sum())
    assert found.lost == ranges((depth == 0) & before)
    assert found.dropped == ranges((depth == 0) & ~before)
    assert found.repeated == ranges(depth > 1)


@given(st.lists(st.lists(RANGE, min_size=3, max_size=3) | RANGES, max_size=5))
def test_joined_ranges_cover_the_same(parts) -> None:  # type: ignore[no-untyped-def]
    joined = StridedRanges.joined(table(rows) for rows in parts)
    apart = table([one for rows in parts for one in rows])
    assert measure_coverage(joined, 300) == measure_coverage(apart, 300)
    assert joined.start.size <= apart.start.size


def test_what_runs_read_of_each_file_in_turn_is_one_interval() -> None:
    read = np.array([[0, 0, 0, 0], [2, 0, 5, 1], [4, 0, 5, 6], [4, 7, 5, 9]])
    offsets = np.array([0, 4, 11, 16])
    parts = [StridedRanges.intervals(offsets + a, offsets + b) for a, b in pairwise(read)]
    joined = StridedRanges.joined(parts)
    assert (joined.start.tolist(), joined.length.tolist()) == ([0], [25])
    behind = StridedRanges.joined([parts[0], parts[2]])
    assert measure_coverage(behind, 25).lost == RangeSet(7, 2, ((2, 4), (17, 22)))


@given(RANGES, st.integers(1, 80), st.integers(2**28, 2**53))
def test_coverage_of_larger_ranges_is_larger_by_the_same_factor(rows, records: int, factor: int) -> None:  # type: ignore[no-untyped-def]
    small = measure_coverage(table(rows), records)
    wide = [
        (start * factor, stride * factor, count, length * factor) for start, stride, count, length in rows
    ]
    large = measure_coverage(table(wide), records * factor)
    assert large.delivered == small.delivered * factor
    for less, more in ((small.lost, large.lost), (small.repeated, large.repeated)):
        assert (more.records, more.ranges) == (less.records * factor, less.ranges)
        assert more.first == tuple((start * factor, stop * factor) for start, stop in less.first)


@pytest.mark.parametrize("piece", [50, 2**21])
def test_only_the_first_ranges_are_kept(piece: int) -> None:
    found = measure_coverage(table([(0, 10, 1000, 9)]), 10_000, piece=piece)
    assert (found.lost.records, found.lost.ranges) == (1000, 1000)
    assert found.lost.first == tuple((10 * k + 9, 10 * k + 10) for k in range(64))


def test_memory_stays_bounded_for_very_many_intervals() -> None:
    tracemalloc.start()
    try:
        found = measure_coverage(table([(0, 4, 1_000_000, 2)]), 4_000_000, piece=50_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.delivered, found.lost.ranges) == (2_000_000, 1_000_000)
    assert peak < 20_000_000


def test_range_sets_count_positions_and_ranges() -> None:
    assert RangeSet.of(3, 3) == RangeSet()
    assert RangeSet.of(3, 5) == RangeSet(2, 1, ((3, 5),))
    assert RangeSet(9, 2, ((0, 2), (5, 12))).leading(4) == [0, 1, 5, 6]
    assert RangeSet().leading(4) == []


def test_more_ranges_are_returned_on_request():
    found = measure_coverage(table([(0, 2, 100, 1)]), 200, most_ranges=80)
    assert found.lost.ranges == 100
    assert found.lost.first == tuple((at, at + 1) for at in range(1, 161, 2))
    assert len(measure_coverage(table([(0, 2, 100, 1)]), 200).lost.first) == 64
