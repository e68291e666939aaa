from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.jobs.division.assignment import assign

SIZES = st.lists(st.integers(16, 400), max_size=60).map(lambda sizes: np.array(sizes, np.int64))


def loads(sizes: np.ndarray[Any, Any], places: np.ndarray[Any, Any], shards: int) -> list[int]:
    return [int(sizes[places == shard].sum()) for shard in range(shards)]


@given(sizes=SIZES, shards=st.integers(1, 9), mode=st.sampled_from(["contiguous", "round-robin", "balanced"]))
def test_every_record_has_one_shard(sizes: np.ndarray[Any, Any], shards: int, mode: Any) -> None:
    places, count = assign(sizes, shards=shards, mode=mode)
    assert (count, places.dtype, len(places)) == (shards, np.int32, len(sizes))
    assert set(places.tolist()) <= set(range(shards))
    counts = np.bincount(places, minlength=shards)
    if mode == "balanced":
        spread = loads(sizes, places, shards)
        assert max(spread) - min(spread) <= max(sizes, default=0)
    else:
        assert max(counts) - min(counts) <= 1


@given(sizes=st.lists(st.integers(16, 60), min_size=1, max_size=7), shards=st.integers(1, 3))
def test_balanced_is_as_good_as_promised(sizes: list[int], shards: int) -> None:
    """Graham's bound for largest first: at most 4/3 - 1/(3 shards) of the best there is."""
    given_sizes = np.array(sizes, np.int64)
    places, _ = assign(given_sizes, shards=shards, mode="balanced")
    best = min(
        max(loads(given_sizes, np.array(choice), shards))
        for choice in product(range(shards), repeat=len(sizes))
    )
    assert max(loads(given_sizes, places, shards)) * 3 * shards <= best * (4 * shards - 1)


def test_balanced_goes_by_bytes() -> None:
    places, _ = assign(np.array([30, 50, 40, 30, 30]), shards=2, mode="balanced")
    assert places.tolist() == [1, 0, 1, 0, 1]


@given(sizes=SIZES, limit=st.integers(1, 900), mode=st.sampled_from(["contiguous", "balanced"]))
def test_shards_below_a_limit(sizes: np.ndarray[Any, Any], limit: int, mode: Any) -> None:
    places, count = assign(sizes, shard_bytes=limit, mode=mode)
    counts = np.bincount(places, minlength=count)
    assert counts.sum() == len(sizes)
    for load, records in zip(loads(sizes, places, count), counts.tolist(), strict=True):
        assert load <= limit or records == 1
        assert records or not len(sizes)
    if mode == "contiguous":
        assert (np.diff(places) >= 0).all()


def test_a_shard_may_be_exactly_as_long_as_the_limit() -> None:
    places, count = assign(np.array([16, 16, 20, 16, 16, 16]), shard_bytes=52)
    assert (places.tolist(), count) == ([0, 0, 0, 1, 1, 1], 2)


@given(sizes=SIZES, limit=st.integers(1, 20), mode=st.sampled_from(["contiguous", "round-robin"]))
def test_shards_of_so_many_records(sizes: np.ndarray[Any, Any], limit: int, mode: Any) -> None:
    places, count = assign(sizes, shard_records=limit, mode=mode)
    assert count == max(1, -(-len(sizes) // limit))
    assert max(np.bincount(places, minlength=count)) <= limit


@pytest.mark.parametrize("mode", ["contiguous", "round-robin", "balanced"])
def test_a_million_records_are_quick(mode: Any) -> None:
    sizes = np.random.default_rng(0).integers(16, 5000, 1_000_000)
    places, _ = assign(sizes, shards=100, mode=mode)
    assert len(np.unique(places)) == 100


def test_contradictions() -> None:
    sizes = np.array([16], np.int64)
    for options in ({}, {"shards": 1, "shard_bytes": 1}, {"shards": 0}, {"shards": 1, "mode": "x"}):
        with pytest.raises(PlanError):
            assign(sizes, **options)  # type: ignore[arg-type]
