"""Mixtures: deliveries of each record, weights, and single positions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan.mixture import MAX_PERIOD, Mixture, Part, whole_weights

PARTS = st.lists(
    st.builds(
        Part,
        st.integers(1, 40),
        st.integers(1, 7),
        st.sampled_from([False, "global", "blocks"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


def drawn(mixture: Mixture, epoch: int) -> list[tuple[int, int]]:
    """Return (data set, record in it) of an epoch, position by position."""
    bounds = np.cumsum([0, *(part.records for part in mixture.parts)])
    records = mixture.order(epoch).records_at(np.arange(mixture.records))
    source = np.searchsorted(bounds, records, side="right") - 1
    return list(zip(source.tolist(), (records - bounds[source]).tolist(), strict=True))


@given(PARTS, st.integers(0, 3))
def test_stop_all_delivers_every_record_once(parts: list[Part], epoch: int) -> None:
    mixture = Mixture(tuple(parts), "all")
    assert sorted(drawn(mixture, epoch)) == [(i, r) for i, p in enumerate(parts) for r in range(p.records)]


@given(PARTS, st.sampled_from(["first", "repeat"]))
def test_each_data_set_is_repeated_in_full_over_epochs(parts: list[Part], stop: Any) -> None:
    mixture = Mixture(tuple(parts), stop)
    rows: list[list[int]] = [[] for _ in parts]
    ends = []
    for epoch in range(3):
        for source, record in drawn(mixture, epoch):
            rows[source].append(record)
        ends.append([len(one) for one in rows])
    first = [delivered >= part.records for delivered, part in zip(ends[0], parts, strict=True)]
    assert any(first) if stop == "first" else all(first)
    if stop == "first":
        assert all(n <= part.records for n, part in zip(ends[0], parts, strict=True))
    for one, part in zip(rows, parts, strict=True):
        for start in range(0, len(one) - part.records + 1, part.records):
            assert sorted(one[start : start + part.records]) == list(range(part.records))


@given(PARTS, st.data())
def test_weights_hold_in_any_range_of_positions(parts: list[Part], data: st.DataObject) -> None:
    mixture = Mixture(tuple(parts), "first")
    sources = [source for source, _ in drawn(mixture, 0)]
    start = data.draw(st.integers(0, len(sources)))
    stop = data.draw(st.integers(start, len(sources)))
    counted = Counter(sources[start:stop])
    total = sum(part.weight for part in parts)
    for i, part in enumerate(parts):
        assert abs(counted[i] - (stop - start) * part.weight / total) <= max(len(parts), 1)


@given(PARTS, st.sampled_from(["all", "first", "repeat"]), st.data())
def test_single_positions_equal_the_sequence(parts: list[Part], stop: Any, data: st.DataObject) -> None:
    mixture = Mixture(tuple(parts), stop)
    order = mixture.order(1)
    row = order.records_at(np.arange(mixture.records))
    if mixture.records:
        some = data.draw(st.lists(st.integers(0, mixture.records - 1), max_size=9))
        assert order.records_at(np.array(some, np.int64)).tolist() == row[some].tolist()


def test_exhausted_data_sets_are_left_out_and_the_others_keep_their_proportions() -> None:
    mixture = Mixture((Part(2, 2, False, 0), Part(8, 2, False, 0), Part(4, 1, False, 0)), "all")
    sources = [source for source, _ in drawn(mixture, 0)]
    assert Counter(sources[:5]) == {0: 2, 1: 2, 2: 1}
    assert Counter(sources[5:11]) == {1: 4, 2: 2}


def test_numbers_stay_small_for_large_data_sets() -> None:
    mixture = Mixture((Part(10**10, 7, "global", 0), Part(10**9, 3, "blocks", 1)), "repeat")
    records = mixture.order(10).records_at([0, mixture.records - 1])
    assert ((records >= 0) & (records < 11 * 10**9)).all()


@pytest.mark.parametrize(
    ("weights", "places"),
    [
        ([0.7, 0.3], [7, 3]),
        ([1, 1, 1], [1, 1, 1]),
        ([2, 4.0], [1, 2]),
        ([1e-3, 1], [1, 1000]),
        ([np.float32(0.5), np.int64(1)], [1, 2]),
    ],
)
def test_ratios_of_integers_are_exact(weights: list[float], places: list[int]) -> None:
    assert whole_weights(weights) == places


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_other_weights_are_approximated(weights: list[float]) -> None:
    places = whole_weights(weights)
    assert sum(places) <= MAX_PERIOD
    for weight, place in zip(weights, places, strict=True):
        assert abs(weight / sum(weights) - place / sum(places)) <= 1 / MAX_PERIOD


@pytest.mark.parametrize("weights", [[0], [-1.0], [float("nan")], [float("inf")], ["1"], [True], [1e-9, 1]])
def test_invalid_weights_are_refused(weights: list[Any]) -> None:
    with pytest.raises(PlanError, match="weight"):
        whole_weights(weights)


def test_invalid_mixtures_are_refused() -> None:
    one = Part(3, 1, False, 0)
    for parts, stop, said in [
        ((), "all", "at least one data set"),
        ((one,), "last", "stop"),
        ((one, Part(0, 1, False, 0)), "first", "1 of the mixture is empty"),
        ((one, Part(3, 70_000, False, 0)), "all", "weight"),
    ]:
        with pytest.raises(PlanError, match=said):
            Mixture(parts, stop)  # type: ignore[arg-type]
    assert Mixture((Part(0, 1, False, 0),), "all").records == 0
