"""`FilePlan`, compared with a slow program that reads the files record by record.

Covers `shardkeep.plan.file_assignment` and `shardkeep.plan.interleave`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan.file_assignment import FileSet, HistoryEntry, balance, merge_history
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.interleave import Interleave
from shardkeep.plan.shards import ShardTable

counts = st.lists(st.integers(0, 12), min_size=1, max_size=9)
histories = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 4)), max_size=4
)


def slow_interleave(counts: list[int], width: int) -> list[tuple[int, int]]:
    """Open `width` files, read one record of each in turn, and replace an ended file by the next one."""
    waiting = list(range(len(counts)))
    slots: list[tuple[int, int] | None] = []
    while waiting and len(slots) < width:
        slots.append((waiting.pop(0), 0))
    sequence = []
    while any(slot is not None for slot in slots):
        for i, slot in enumerate(slots):
            if slot is None:
                continue
            sequence.append(slot)
            file, index = slot
            if index + 1 < counts[file]:
                slots[i] = (file, index + 1)
            else:
                slots[i] = (waiting.pop(0), 0) if waiting else None
    return sequence


@given(st.lists(st.integers(1, 7), max_size=12), st.integers(1, 5), st.data())
def test_interleave_equals_reading_files_in_turn(counts: list[int], width: int, data: st.DataObject) -> None:
    sequence = slow_interleave(counts, width)
    interleave = Interleave.of(np.array(counts, np.int64), width)
    start = data.draw(st.integers(0, len(sequence)))
    stop = data.draw(st.integers(start, len(sequence)))
    file, index = interleave.between(start, stop)
    assert list(zip(file.tolist(), index.tolist(), strict=True)) == sequence[start:stop]


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 6))
def test_balance_is_within_the_bound_of_graham(sizes: list[int], world: int) -> None:
    rank_of = balance(sizes, world)
    loads = [sum(s for s, r in zip(sizes, rank_of, strict=True) if r == rank) for rank in range(world)]
    assert all((rank < 0) == (size == 0) for rank, size in zip(rank_of, sizes, strict=True))
    # Graham's bound for largest first: 4/3 of the optimum, which is at least the mean and the largest file.
    assert max(loads) <= 4 / 3 * max(sum(sizes) / world, max(sizes, default=0), _pair(sizes, world)) + 1e-9


def _pair(sizes: list[int], world: int) -> int:
    """Return a lower bound of the optimum: two of the world + 1 largest files share a rank."""
    largest = sorted(sizes, reverse=True)[: world + 1]
    return largest[-1] + largest[-2] if len(largest) == world + 1 > 1 else 0


def slow_balance(sizes: list[int], world: int) -> list[int]:
    loads, rank_of = [0] * world, [-1] * len(sizes)
    for file in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if sizes[file]:
            rank_of[file] = loads.index(min(loads))
            loads[rank_of[file]] += sizes[file]
    return rank_of


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 6))
def test_each_file_goes_to_the_first_rank_with_the_least_bytes(sizes: list[int], world: int) -> None:
    assert balance(sizes, world).tolist() == slow_balance(sizes, world)


@pytest.mark.parametrize("skew", [1, 3, 9])
def test_balance_of_many_files_of_very_different_sizes(skew: int) -> None:
    sizes = (np.random.default_rng(skew).random(3000) ** skew * 10**9).astype(int).tolist()
    assert balance(sizes, 100).tolist() == slow_balance(sizes, 100)


def test_files_are_not_assigned_by_number_modulo_ranks() -> None:
    assert balance([90, 10, 80, 10, 70, 10], 2).tolist() == [0, 0, 1, 0, 1, 0]


@given(counts, histories, st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_after_any_history_each_record_is_delivered_once_and_each_file_in_order(
    counts: list[int],
    histories: list[tuple[int, int, int, int]],
    world: int,
    batch: int,
    cycle: int,
    shuffled: bool,
) -> None:
    table = ShardTable(counts)
    files = FileSet(table, [c * 10 + 3 for c in counts], shuffled=shuffled, seed=5)
    history: tuple[HistoryEntry, ...] = ()
    delivered: list[int] = []
    last_of_file = [-1] * len(counts)
    for w, b, c, wanted in [*histories, (world, batch, cycle, 10**6)]:
        plan = FilePlan(files, w, b, c, "mask", epoch=2, history=history)
        assert plan.start == len(delivered)
        steps = min(wanted, plan.steps)
        reader: dict[int, int] = {}
        ranks = np.full(table.total, -1)
        for step in range(steps):
            for rank in range(w):
                records, (rows,) = plan.reads_between(step, step + 1, rank)
                assert len(records) == rows <= b
                for shard, index in zip(*(one.tolist() for one in table.locate(records)), strict=True):
                    assert reader.setdefault(shard, rank) == rank
                    assert index == last_of_file[shard] + 1
                    last_of_file[shard] = index
                delivered += records.tolist()
                ranks[records] = rank
            assert plan.position_after(step + 1) == len(delivered)
        assert plan.ranks_of(np.arange(table.total), np.full(w, steps)).tolist() == ranks.tolist()
        assert plan.read_after(steps).tolist() == [i + 1 for i in last_of_file]
        history = merge_history([*history, HistoryEntry(w, b, c, steps)])
    assert sorted(delivered) == list(range(table.total))


def rows(plan: FilePlan, step: int, rank: int) -> int:
    return int(plan.reads_between(step, step + 1, rank)[1][0])


@given(counts, st.integers(1, 5), st.integers(1, 4))
def test_drop_keeps_the_steps_that_every_rank_can_fill(counts: list[int], world: int, batch: int) -> None:
    plan = FilePlan(FileSet(ShardTable(counts), counts), world, batch, 2, "drop")
    for step in range(plan.steps):
        assert all(rows(plan, step, rank) == batch for rank in range(world))
    assert any(rows(plan, plan.steps, rank) < batch for rank in range(world))
    assert plan.position_after(plan.steps) == plan.steps * world * batch


def test_run_with_the_same_assignment_continues_the_earlier_run() -> None:
    files = FileSet(ShardTable([9, 4, 7, 7]), [90, 40, 70, 70])
    whole = FilePlan(files, 2, 3, 2, "mask")
    later = FilePlan(files, 2, 3, 2, "mask", history=(HistoryEntry(2, 3, 2, 1), HistoryEntry(2, 3, 2, 1)))
    assert later.steps == whole.steps - 2
    for rank in range(2):
        assert (
            later.reads_between(0, later.steps, rank)[0].tolist()
            == whole.reads_between(2, whole.steps, rank)[0].tolist()
        )


def test_shuffled_files_keep_their_rank_and_change_their_order_with_the_epoch() -> None:
    files = FileSet(ShardTable([5] * 40), [50] * 40, shuffled=True, seed=1)
    plans = [FilePlan(files, 2, 5, 1, "mask", epoch=epoch) for epoch in range(2)]
    first, second = (plan.reads_between(0, plan.steps, 0)[0].tolist() for plan in plans)
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(
    "history",
    [
        (HistoryEntry(2, 3, 2, 6),),
        (HistoryEntry(3, 3, 2, 100),),
        (HistoryEntry(3, 3, 2, 10**17), HistoryEntry(2, 3, 2, 1)),
        (HistoryEntry(0, 3, 2, 1),),
        (HistoryEntry(2, 3, 2**40, 1),),
        (HistoryEntry(2, 3, 1, -1),),
        (HistoryEntry(2, 3, 2, -1),),
    ],
)
def test_impossible_history_is_refused(history: tuple[HistoryEntry, ...]) -> None:
    with pytest.raises(PlanError):
        FilePlan(FileSet(ShardTable([9, 4, 7, 7]), [90, 40, 70, 70]), 2, 3, 2, "mask", history=history)
