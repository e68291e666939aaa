"""Whole files to ranks: beside the slow program that reads them record by record."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan.balance import balanced
from shardkeep.plan.by_files import FilePlan
from shardkeep.plan.division import FileSet, Leg, joined
from shardkeep.plan.lanes import Lanes
from shardkeep.plan.shards import ShardTable

counts = st.lists(st.integers(0, 12), min_size=1, max_size=9)
legs = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 4)), max_size=4
)


def slow_interleave(counts: list[int], width: int) -> list[tuple[int, int]]:
    """Open `width` files, take a record of each in turn, put the next file where one ended."""
    waiting = list(range(len(counts)))
    places: list[tuple[int, int] | None] = []
    while waiting and len(places) < width:
        places.append((waiting.pop(0), 0))
    row = []
    while any(place is not None for place in places):
        for i, place in enumerate(places):
            if place is None:
                continue
            row.append(place)
            file, index = place
            if index + 1 < counts[file]:
                places[i] = (file, index + 1)
            else:
                places[i] = (waiting.pop(0), 0) if waiting else None
    return row


@given(st.lists(st.integers(1, 7), max_size=12), st.integers(1, 5), st.data())
def test_lanes_are_what_a_program_reads_that_opens_files_in_turn(
    counts: list[int], width: int, data: st.DataObject
) -> None:
    row = slow_interleave(counts, width)
    lanes = Lanes.of(np.array(counts, np.int64), width)
    start = data.draw(st.integers(0, len(row)))
    stop = data.draw(st.integers(start, len(row)))
    file, index = lanes.between(start, stop)
    assert list(zip(file.tolist(), index.tolist(), strict=True)) == row[start:stop]
    read = [sum(1 for f, _ in row[:stop] if f == file) for file in range(len(counts))]
    assert lanes.read_after(stop).tolist() == read


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 6))
def test_ranks_are_balanced_as_well_as_the_largest_file_allows(sizes: list[int], world: int) -> None:
    rank_of = balanced(sizes, world)
    loads = [sum(s for s, r in zip(sizes, rank_of, strict=True) if r == rank) for rank in range(world)]
    assert all((rank < 0) == (size == 0) for rank, size in zip(rank_of, sizes, strict=True))
    # Graham's bound for the largest first: 4/3 of the best, which is no less than the mean and the largest.
    assert max(loads) <= 4 / 3 * max(sum(sizes) / world, max(sizes, default=0), _pair(sizes, world)) + 1e-9


def _pair(sizes: list[int], world: int) -> int:
    """Two of the world + 1 largest files share a rank, however they are divided."""
    largest = sorted(sizes, reverse=True)[: world + 1]
    return largest[-1] + largest[-2] if len(largest) == world + 1 > 1 else 0


def slowly_balanced(sizes: list[int], world: int) -> list[int]:
    loads, rank_of = [0] * world, [-1] * len(sizes)
    for file in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if sizes[file]:
            rank_of[file] = loads.index(min(loads))
            loads[rank_of[file]] += sizes[file]
    return rank_of


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 6))
def test_each_file_goes_to_the_first_rank_that_has_least(sizes: list[int], world: int) -> None:
    assert balanced(sizes, world).tolist() == slowly_balanced(sizes, world)


@pytest.mark.parametrize("skew", [1, 3, 9])
def test_many_files_of_very_different_sizes(skew: int) -> None:
    sizes = (np.random.default_rng(skew).random(3000) ** skew * 10**9).astype(int).tolist()
    assert balanced(sizes, 100).tolist() == slowly_balanced(sizes, 100)


def test_it_is_not_by_number_modulo_ranks() -> None:
    assert balanced([90, 10, 80, 10, 70, 10], 2).tolist() == [0, 0, 1, 0, 1, 0]


@given(counts, legs, st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_any_history_any_world_every_record_once_and_each_file_in_order(
    counts: list[int],
    legs: list[tuple[int, int, int, int]],
    world: int,
    batch: int,
    cycle: int,
    shuffled: bool,
) -> None:
    table = ShardTable(counts)
    files = FileSet(table, [c * 10 + 3 for c in counts], shuffled=shuffled, seed=5)
    history: tuple[Leg, ...] = ()
    delivered: list[int] = []
    last_of_file = [-1] * len(counts)
    for w, b, c, wanted in [*legs, (world, batch, cycle, 10**6)]:
        plan = FilePlan(files, w, b, c, "mask", epoch=2, history=history)
        assert plan.start == len(delivered)
        steps = min(wanted, plan.steps)
        reader: dict[int, int] = {}
        for step in range(steps):
            for rank in range(w):
                records = plan.records_between(step, step + 1, rank)
                assert len(records) == plan.rows(step, rank) <= b
                for shard, index in zip(*(one.tolist() for one in table.locate(records)), strict=True):
                    assert reader.setdefault(shard, rank) == rank
                    assert index == last_of_file[shard] + 1
                    last_of_file[shard] = index
                delivered += records.tolist()
            assert plan.position_after(step + 1) == len(delivered)
        assert plan.read_after(steps).tolist() == [i + 1 for i in last_of_file]
        history = joined([*history, Leg(w, b, c, steps)])
    assert sorted(delivered) == list(range(table.total))


@given(counts, st.integers(1, 5), st.integers(1, 4))
def test_drop_keeps_the_steps_that_every_rank_can_fill(counts: list[int], world: int, batch: int) -> None:
    plan = FilePlan(FileSet(ShardTable(counts), counts), world, batch, 2, "drop")
    for step in range(plan.steps):
        assert all(plan.rows(step, rank) == batch for rank in range(world))
    assert any(plan.rows(plan.steps, rank) < batch for rank in range(world))
    assert plan.dropped == (plan.steps * world * batch, sum(counts))


def test_the_same_division_goes_on_as_if_nothing_had_happened() -> None:
    files = FileSet(ShardTable([9, 4, 7, 7]), [90, 40, 70, 70])
    whole = FilePlan(files, 2, 3, 2, "mask")
    later = FilePlan(files, 2, 3, 2, "mask", history=(Leg(2, 3, 2, 1), Leg(2, 3, 2, 1)))
    assert later.steps == whole.steps - 2
    for rank in range(2):
        assert (
            later.records_between(0, later.steps, rank).tolist()
            == whole.records_between(2, whole.steps, rank).tolist()
        )


def test_files_are_in_another_order_in_each_epoch_and_with_the_same_ranks() -> None:
    files = FileSet(ShardTable([5] * 40), [50] * 40, shuffled=True, seed=1)
    plans = [FilePlan(files, 2, 5, 1, "mask", epoch=epoch) for epoch in range(2)]
    first, second = (plan.records_between(0, plan.steps, 0).tolist() for plan in plans)
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(
    "history",
    [
        (Leg(2, 3, 2, 6),),
        (Leg(3, 3, 2, 100),),
        (Leg(3, 3, 2, 10**17), Leg(2, 3, 2, 1)),
        (Leg(0, 3, 2, 1),),
        (Leg(2, 3, 2**40, 1),),
        (Leg(2, 3, 1, -1),),
        (Leg(2, 3, 2, -1),),
    ],
)
def test_a_history_that_cannot_be_is_refused(history: tuple[Leg, ...]) -> None:
    with pytest.raises(PlanError):
        FilePlan(FileSet(ShardTable([9, 4, 7, 7]), [90, 40, 70, 70]), 2, 3, 2, "mask", history=history)
