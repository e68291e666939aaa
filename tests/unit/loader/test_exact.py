"""Exact delivery: each record once over all ranks, equal steps on every rank, after a resume at any point.

Covers `shardkeep.loader.steps`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkeep import plan
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}
elastic = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
counts = st.lists(st.integers(0, 9), min_size=1, max_size=5)
# How records are divided and ordered: options of a Loader.
by_records = st.builds(lambda shuffle: {"shuffle": shuffle}, st.sampled_from([False, "global", "blocks"]))
by_files = st.builds(
    lambda shuffle, cycle: {"shuffle": shuffle, "shard_by": "files", "cycle_length": cycle},
    st.sampled_from([False, "blocks"]),
    st.integers(1, 4),
)
divisions = st.one_of(by_records, by_files)


def real_rows(batch: dict[str, Any]) -> list[int]:
    rows: list[int] = (batch["x"][batch["valid"]] if "valid" in batch else batch["x"]).tolist()
    return rows


@elastic
@given(
    counts=counts,
    world=st.integers(1, 6),
    batch_size=st.integers(1, 7),
    division=divisions,
    remainder=st.sampled_from(["mask", "short", "drop"]),
    threads=st.integers(1, 3),
)
def test_every_record_once_and_equal_steps(
    shards: Any,
    counts: list[int],
    world: int,
    batch_size: int,
    division: dict[str, Any],
    remainder: str,
    threads: int,
) -> None:
    paths = shards(counts)
    delivered: list[int] = []
    steps, receipts = set(), []
    for rank in range(world):
        loader = Loader(
            paths, X, batch_size, World(rank, world), seed=7, remainder=remainder, threads=threads, **division
        )
        planned = len(loader)
        batches = list(loader)
        assert len(batches) == planned
        steps.add(planned)
        for batch in batches:
            if remainder == "mask":
                assert len(batch["x"]) == batch_size
                assert not batch["x"][~batch["valid"]].any()
            delivered += real_rows(batch)
        receipts.append(plan.Receipt.from_dict(loader.receipt()))
    assert len(steps) == 1
    total = sum(counts)
    full = steps.pop() if "shard_by" in division else total // (world * batch_size)
    kept = full * (world * batch_size) if remainder == "drop" else total
    assert len(set(delivered)) == len(delivered) == kept
    if remainder != "drop":
        assert sorted(delivered) == list(range(total))
    assert plan.audit(receipts, epochs=[0]).ok


@elastic
@given(
    counts=counts,
    division=divisions,
    runs=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=4),
    last=st.tuples(st.integers(1, 5), st.integers(1, 6)),
)
def test_resume_at_any_point_with_any_world(
    shards: Any,
    counts: list[int],
    division: dict[str, Any],
    runs: list[tuple[int, int, int]],
    last: tuple[int, int],
) -> None:
    paths = shards(counts)
    delivered: list[int] = []
    receipts = []
    state: dict[str, Any] | None = None
    for world, batch_size, stop in [*runs, (*last, None)]:
        states = []
        for rank in range(world):
            loader = Loader(paths, X, batch_size, World(rank, world), threads=1, **division)
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            for step, batch in enumerate(loader):
                delivered += real_rows(batch)
                if stop is not None and step + 1 >= stop:
                    break
            states.append(loader.state_dict())
            receipts.append(plan.Receipt.from_dict(loader.receipt()))
        assert all(one == states[0] for one in states)
        state = states[0]
        if state["epoch"] == 1:
            break
    if state is not None and state["epoch"] == 1:
        assert sorted(delivered) == list(range(sum(counts)))
        assert plan.audit(receipts, epochs=[0]).ok


def test_each_epoch_has_a_different_order_and_iteration_continues(shards: Any) -> None:
    paths = shards([40, 60])
    loader = Loader(paths, X, 10, World(), "global", epochs=2)
    two = [row for batch in loader for row in real_rows(batch)]
    assert loader.epoch == 2
    first, second = two[:100], two[100:]
    assert first != second
    assert sorted(first) == sorted(second) == list(range(100))
    one = Loader(paths, X, 10, World(), "global")
    assert [row for batch in one for row in real_rows(batch)] == first
    assert [row for batch in one for row in real_rows(batch)] == second


@pytest.mark.parametrize(
    "division", [(False, "records"), ("global", "records"), ("blocks", "records"), ("blocks", "files")]
)
def test_threads_and_prefetch_do_not_change_the_order(division: tuple[Any, str], shards: Any) -> None:
    paths = shards([50, 0, 75, 3])
    seen = []
    for threads, prefetch in [(1, 1), (8, 2), (3, 9)]:
        shuffle, shard_by = division
        loader = Loader(paths, X, 16, World(1, 2), shuffle, 3, shard_by, threads=threads, prefetch=prefetch)
        seen.append([batch["x"].tolist() for batch in loader])
    assert seen[0] == seen[1] == seen[2]


def test_without_shuffle_records_are_in_stored_order(shards: Any) -> None:
    loader = Loader(shards([3, 4]), X, 2, World(), remainder="short")
    assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6]]


def test_more_ranks_than_records(shards: Any) -> None:
    paths = shards([2, 0])
    batches = [next(iter(Loader(paths, X, 4, World(rank, 5)))) for rank in range(5)]
    assert sum(int(batch["valid"].sum()) for batch in batches) == 2
    assert {batch["x"].shape for batch in batches} == {(4,)}
    assert sorted(np.concatenate([b["x"][b["valid"]] for b in batches]).tolist()) == [0, 1]


def test_data_set_without_records_has_no_steps(shards: Any) -> None:
    loader = Loader(shards([0, 0]), X, 4, World())
    assert len(loader) == 0
    assert list(loader) == []
    assert list(Loader(shards([0]), None, 4, World())) == []
