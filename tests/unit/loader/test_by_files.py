"""``shard_by="files"``: ranks read whole shards, several at a time.

Covers `shardkeep.loader.sources`.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from shardkeep import plan
from shardkeep.errors import PlanError
from shardkeep.loader import Loader
from shardkeep.plan import Receipt
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}


def by_files(paths: list[str], rank: int, size: int, batch_size: int = 4, **options: Any) -> Loader:
    return Loader(paths, X, batch_size, World(rank, size), shard_by="files", **options)


def test_each_shard_goes_to_one_rank_and_is_read_in_order(shards: Any) -> None:
    paths = shards([50, 7, 0, 33, 21, 21])
    readers: dict[int, int] = {}
    for rank in range(3):
        last: dict[int, int] = {}
        for batch in by_files(paths, rank, 3, with_ids=True, cycle_length=2):
            for shard, index in zip(batch["shard"].tolist(), batch["index"].tolist(), strict=True):
                if shard >= 0:
                    assert readers.setdefault(shard, rank) == rank
                    assert index == last.get(shard, -1) + 1
                    last[shard] = index
    # The largest to one rank, the next largest to the next one, the smallest to the rank with the least
    # bytes.
    assert readers == {0: 0, 3: 1, 4: 2, 5: 2, 1: 1}


def test_cycle_length_shards_are_interleaved(shards: Any) -> None:
    paths = shards([3, 2, 4])
    (batch,) = by_files(paths, 0, 1, 9, cycle_length=2, with_ids=True)
    assert batch["shard"].tolist() == [0, 1, 0, 1, 0, 2, 2, 2, 2]
    assert batch["index"].tolist() == [0, 0, 1, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize("counts", [[30], [0, 0, 5], [1, 1], [0]])
def test_fewer_shards_than_ranks(counts: list[int], shards: Any) -> None:
    paths = shards(counts)
    loaders = [by_files(paths, rank, 4) for rank in range(4)]
    batches = [list(loader) for loader in loaders]
    assert len({len(some) for some in batches}) == 1
    assert {batch["x"].shape for some in batches for batch in some} <= {(4,)}
    rows = sorted(x for some in batches for batch in some for x in batch["x"][batch["valid"]].tolist())
    assert rows == list(range(sum(counts)))


def test_state_grows_by_one_entry_for_each_assignment(shards: Any) -> None:
    paths = shards([40, 30, 20, 50, 60])
    state: dict[str, Any] = {}
    lengths = []
    for size, batch_size in [(2, 4), (2, 4), (3, 4), (1, 2), (1, 2), (4, 3)]:
        states = []
        for rank in range(size):
            loader = by_files(paths, rank, size, batch_size)
            if state:
                loader.load_state_dict(state)
            batches = iter(loader)
            next(batches), next(batches)
            states.append(loader.state_dict())
            del batches
        assert all(one == states[0] for one in states)
        state = json.loads(json.dumps(states[0]))
        lengths.append(len(json.dumps(state)))
    assert state["history"] == [[2, 4, 16, 4], [3, 4, 16, 2], [1, 2, 16, 4], [4, 3, 16, 2]]
    assert lengths[-1] < 400


def test_next_epoch_has_no_history(shards: Any) -> None:
    paths = shards([9, 8])
    first = by_files(paths, 0, 1)
    next(iter(first))
    later = by_files(paths, 0, 1, 5, epochs=2)
    later.load_state_dict(first.state_dict())
    list(later)
    assert "history" not in later.state_dict()
    fresh = by_files(paths, 0, 1, 5)
    again = by_files(paths, 0, 1, 5)
    again.load_state_dict({**fresh.state_dict(), "epoch": later.epoch})
    assert [b["x"].tolist() for b in again] == [b["x"].tolist() for b in fresh]


def test_pickled_loader_continues_in_mid_epoch(shards: Any) -> None:
    loader = by_files(shards([30, 20]), 0, 1)
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    for mine, theirs in zip(batches, copy, strict=True):
        assert mine["x"].tolist() == theirs["x"].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": 5}, "history ends at 8"),
        ({"history": [[1, 4, 16, 1000]]}, "1000 steps"),
        ({"history": [[1, 4, 16]]}, "four numbers"),
        ({"history": [[1, 4, 16, True]]}, "bool"),
        ({"history": {}}, "list"),
        ({"history": []}, "ends at 0"),
    ],
)
def test_an_edited_state_is_refused(change: dict[str, Any], message: str, shards: Any) -> None:
    loader = by_files(shards([30, 20]), 0, 1)
    batches = iter(loader)
    next(batches), next(batches)
    state = {**loader.state_dict(), **change}
    with pytest.raises(PlanError, match=message):
        by_files(shards([30, 20]), 0, 1).load_state_dict(state)


def test_invalid_combinations_of_arguments_are_refused(shards: Any) -> None:
    paths = shards([3])
    for options, message in [
        ({"shuffle": "global"}, 'shard_by="records"'),
        ({"cycle_length": 0}, "cycle_length"),
    ]:
        with pytest.raises(PlanError, match=message):
            by_files(paths, 0, 1, **options)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match='only with shard_by="files"'):
        Loader(paths, X, 4, World(), cycle_length=3)


def run(paths: list[str], size: int, steps: int, state: dict[str, Any] | None, **options: Any) -> Any:
    receipts, states = [], []
    for rank in range(size):
        loader = by_files(paths, rank, size, **options)
        if state is not None:
            loader.load_state_dict(state)
        for _, _ in zip(range(steps), loader, strict=False):
            pass
        receipts.append(Receipt.from_dict(json.loads(json.dumps(loader.receipt()))))
        states.append(loader.state_dict())
    return receipts, states[0]


def test_audit_names_lost_and_repeated_records(shards: Any) -> None:
    paths = shards([40, 30, 20, 50, 60])
    first, state = run(paths, 3, 5, None)
    second, _ = run(paths, 2, 1000, state)
    assert plan.audit([*first, *second], epochs=[0]).ok
    report = plan.audit(first, epochs=[0])
    assert not report.ok
    assert report.epochs[0].under_way

    lost = plan.audit([*first[1:], *second], epochs=[0]).epochs[0]
    # Rank 0 reads the largest shard alone: its first 20 records.
    assert (lost.lost.records, lost.repeated.records) == (20, 0)
    assert str(lost.lost_names[0]) == "004.tfrecord record 0"

    behind = replace(first[1], segments=(replace(first[1].segments[0], steps=4),))
    short = plan.audit([first[0], behind, first[2], *second], epochs=[0]).epochs[0]
    assert short.lost.records == 4
    assert any("rank 1 made fewer than the 5 steps" in problem for problem in short.problems)

    longer, _ = run(paths, 3, 7, None)
    twice = plan.audit([*longer, *second], epochs=[0]).epochs[0]
    assert (twice.lost.records, twice.repeated.records) == (0, 2 * 3 * 4)
    assert any("both delivered positions 60 to 83" in problem for problem in twice.problems)


def test_audit_counts_dropped_records(shards: Any) -> None:
    receipts, _ = run(shards([40, 30]), 2, 1000, None, remainder="drop")
    (epoch,) = plan.audit(receipts, epochs=[0]).epochs
    assert epoch.ok
    assert (epoch.delivered, epoch.dropped.records) == (2 * 7 * 4, 14)
    assert epoch.dropped.first == ((28, 40), (68, 70))


def test_audit_notices_an_edited_history(shards: Any) -> None:
    paths = shards([40, 30])
    first, state = run(paths, 2, 3, None)
    second, _ = run(paths, 1, 1000, state)
    (segment,) = (s for s in second[0].segments if s.history)
    edited = replace(segment, history=(replace(segment.history[0], steps=4),))
    report = plan.audit([*first, replace(second[0], segments=(edited,))], epochs=[0])
    assert any("receipt was edited" in problem for problem in report.epochs[0].problems)


def test_receipts_with_different_shard_by_do_not_prove_an_epoch(shards: Any) -> None:
    paths = shards([40, 30])
    files, _ = run(paths, 2, 1000, None)
    records = Loader(paths, X, 4, World(0, 2))
    list(records)
    report = plan.audit([*files, records.receipt()], epochs=[0])
    assert any("shard_by" in problem for problem in report.problems)


def test_a_rank_that_resumed_alone_is_proved(shards: Any) -> None:
    paths = shards([40, 30, 20, 50, 60])
    rank_0 = by_files(paths, 0, 2)
    list(rank_0)
    receipts, state = [rank_0.receipt()], None
    for steps in (3, 5, 1000):
        loader = by_files(paths, 1, 2)
        if state:
            loader.load_state_dict(state)
        for _, _ in zip(range(steps), loader, strict=False):
            pass
        receipts.append(loader.receipt())
        state = loader.state_dict()
    assert plan.audit(receipts, epochs=[0]).ok
    assert not plan.audit([*receipts[:2], receipts[3]], epochs=[0]).ok
