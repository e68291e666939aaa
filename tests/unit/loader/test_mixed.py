"""`Loader.mix`: exact delivery and resume for several data sets.

Covers `shardkeep.loader.sources`.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkeep import plan
from shardkeep.errors import PlanError, SchemaError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}
WEIGHTS = (3, 1, 2)
STOPS = ["all", "first", "repeat"]
elastic = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


@pytest.fixture
def sets(shards: Any) -> list[list[str]]:
    return [shards([20, 0, 11]), shards([7]), shards([3, 10])]


def mixed(sets: list[list[str]], rank: int, size: int, batch_size: int = 4, **options: Any) -> Any:
    stop = options.pop("stop", "all")
    shuffles = [False, "global", "blocks"]
    return Loader.mix(
        [
            (Loader(one, X, batch_size, World(rank, size), shuffles[i], i, with_ids=True, **options), weight)
            for i, (one, weight) in enumerate(zip(sets, WEIGHTS, strict=True))
        ],
        stop=stop,
    )


def rows_of(batch: dict[str, Any]) -> list[tuple[int, int]]:
    keep = batch["valid"] if "valid" in batch else slice(None)
    return list(zip(batch["source"][keep].tolist(), batch["x"][keep].tolist(), strict=True))


EVERY = sorted((i, x) for i, total in enumerate((31, 7, 13)) for x in range(total))


@elastic
@given(
    stop=st.sampled_from(STOPS),
    runs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 4)), max_size=3),
    last=st.tuples(st.integers(1, 4), st.integers(1, 5)),
)
def test_resume_at_any_point_with_any_world(
    sets: Any, stop: str, runs: list[tuple[int, int, int]], last: tuple[int, int]
) -> None:
    whole = mixed(sets, 0, 1, 1, stop=stop)
    wanted = sorted(row for batch in whole for row in rows_of(batch))
    delivered: list[tuple[int, int]] = []
    receipts = []
    state: dict[str, Any] | None = None
    for size, batch_size, steps in [*runs, (*last, None)]:
        states = []
        for rank in range(size):
            loader = mixed(sets, rank, size, batch_size, stop=stop)
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            planned = len(loader)
            made = 0
            for made, batch in enumerate(loader, start=1):
                delivered += rows_of(batch)
                if steps is not None and made >= steps:
                    break
            else:
                assert made == planned
            states.append(loader.state_dict())
            receipts.append(json.loads(json.dumps(loader.receipt())))
        assert all(one == states[0] for one in states)
        state = states[0]
        if state["epoch"] == 1:
            break
    assert state is not None
    if state["epoch"] == 1:
        assert sorted(delivered) == wanted
        assert plan.audit(receipts, epochs=[0]).ok
        if stop == "all":
            assert wanted == EVERY


def test_ids_name_data_set_shard_and_record(sets: Any) -> None:
    seen = []
    for batch in mixed(sets, 0, 1):
        for x, source, shard, index, valid in zip(
            *(batch[name].tolist() for name in ("x", "source", "shard", "index", "valid")), strict=True
        ):
            if not valid:
                assert (source, shard, index) == (-1, -1, -1)
                continue
            begins = [[0, 20, 20], [0], [0, 3]][source]
            assert begins[shard] + index == x
            seen.append((source, x))
    assert sorted(seen) == EVERY


def test_a_mixture_is_in_the_order_of_its_data_sets(sets: Any) -> None:
    by_source: list[list[int]] = [[], [], []]
    for batch in mixed(sets, 0, 1):
        for source, x in rows_of(batch):
            by_source[source].append(x)
    for i, shuffle in enumerate([False, "global", "blocks"]):
        alone = Loader(sets[i], X, 4, World(), shuffle, i)
        assert by_source[i] == [x for b in alone for x in b["x"][b["valid"]].tolist()]


def test_second_iteration_continues(sets: Any) -> None:
    loader = mixed(sets, 0, 1, stop="first", remainder="short")
    rows = [row for _ in range(8) for batch in loader for row in rows_of(batch)]
    assert loader.epoch == 8
    for source, total in enumerate((31, 7, 13)):
        mine = [x for s, x in rows if s == source]
        for start in range(0, len(mine) - total + 1, total):
            assert sorted(mine[start : start + total]) == list(range(total))


def test_pickled_mixture_continues_in_mid_epoch(sets: Any) -> None:
    loader = mixed(sets, 0, 1)
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert "3 mixed data sets" in repr(copy)
    for mine, theirs in zip(batches, copy, strict=True):
        assert rows_of(mine) == rows_of(theirs)


def test_audit_names_the_data_set(sets: Any) -> None:
    receipts = []
    for rank in range(2):
        loader = mixed(sets, rank, 2)
        list(loader)
        receipts.append(loader.receipt())
    assert plan.audit(receipts, epochs=[0]).ok
    report = plan.audit(receipts[1:], epochs=[0])
    assert not report.ok
    assert str(report.epochs[0].lost_names[0]) == "0:000.tfrecord record 0"
    other = mixed(sets, 0, 2, stop="first")
    list(other)
    assert any("mixtures" in problem for problem in plan.audit([*receipts, other.receipt()]).problems)


def test_state_of_another_mixture_is_refused(sets: Any) -> None:
    state = mixed(sets, 0, 1).state_dict()
    assert len(json.dumps(state)) < 500
    for other, message in [
        (mixed(sets[::-1], 0, 1), "another data set"),
        (mixed(sets, 0, 1, stop="first"), "records|stop"),
        (Loader(sets[0], X, 4, World()), "another data set"),
    ]:
        with pytest.raises(PlanError, match=message):
            other.load_state_dict(state)
    pairs = [(Loader(one, X, 4, World()), 1) for one in sets]
    with pytest.raises(PlanError, match="mixture="):
        Loader.mix(pairs).load_state_dict({**state, "shuffle": False})
    with pytest.raises(PlanError, match="no 'mixture'"):
        Loader.mix(pairs).load_state_dict({k: v for k, v in state.items() if k != "mixture"})


def test_loaders_that_do_not_fit_together_are_refused(sets: Any) -> None:
    def loader(i: int = 0, **options: Any) -> Loader:
        return Loader(**{"paths": sets[i], "features": X, "batch_size": 4, "world": World(), **options})

    for pairs, message in [
        ([], "at least one pair"),
        ([loader()], "must be a pair"),
        ([(loader(), 0)], "weight"),
        ([(loader(), 1), (loader(1, batch_size=5), 1)], "batch_size"),
        ([(loader(), 1), (loader(1, features=None), 1)], "features"),
        ([(loader(), 1), (loader(1, world=World(0, 2)), 1)], "world"),
        ([(loader(shard_by="files"), 1)], "shard_by"),
        ([(Loader.mix([(loader(), 1)]), 1)], "source 0 is a mixture"),
    ]:
        with pytest.raises(PlanError, match=message) as caught:
            Loader.mix(pairs)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    with pytest.raises(SchemaError, match="source"):
        Loader.mix([(loader(features={"source": FixedLen()}, with_ids=True), 1)])
