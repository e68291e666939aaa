"""Batches that are read ahead in parts, and consumed later.

Covers `shardkeep.loader.batch_reader`.
"""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkeep import plan
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}
elastic = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
divisions = st.one_of(
    st.builds(lambda shuffle: {"shuffle": shuffle}, st.sampled_from([False, "global", "blocks"])),
    st.builds(lambda cycle: {"shard_by": "files", "cycle_length": cycle}, st.integers(1, 4)),
)


def interleaved(loader: Loader, workers: int) -> list[tuple[dict[str, Any], Place]]:
    """Return the batches of several workers, one of each in turn, as a queue of processes does."""
    parts = [list(pickle.loads(pickle.dumps(loader)).read_ahead(k, workers)) for k in range(workers)]
    return [part[turn] for turn in range(max(map(len, parts))) for part in parts if turn < len(part)]


@elastic
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    size=st.integers(1, 3),
    batch_size=st.integers(1, 5),
    workers=st.integers(1, 4),
    remainder=st.sampled_from(["mask", "drop", "short"]),
    epochs=st.integers(1, 2),
    division=divisions,
    stop=st.integers(0, 30),
    later_size=st.integers(1, 3),
)
def test_workers_deliver_the_sequence_of_the_loader_and_an_audit_proves_it(
    shards: Any,
    counts: list[int],
    size: int,
    batch_size: int,
    workers: int,
    remainder: Any,
    epochs: int,
    division: dict[str, Any],
    stop: int,
    later_size: int,
) -> None:
    paths = shards(counts)
    receipts, states = [], []

    def loader(rank: int, size: int) -> Loader:
        return Loader(paths, X, batch_size, World(rank, size), remainder=remainder, epochs=epochs, **division)

    for rank in range(size):
        bare, queued = loader(rank, size), loader(rank, size)
        queue = interleaved(queued, workers)
        assert len(queue) == len(bare)
        assert queued.position == 0
        for (batch, place), expected in zip(queue[:stop], bare, strict=False):
            assert all(np.array_equal(batch[name], expected[name]) for name in expected)
            queued.consume(Place.from_array(place.to_array()))
            assert queued.state_dict() == bare.state_dict()
        receipts.append(queued.receipt())
        if stop:
            assert receipts[-1]["segments"] == bare.receipt()["segments"]
        states.append(json.dumps(queued.state_dict()))
    assert len(set(states)) == 1
    if remainder == "drop" or not sum(counts) or stop >= len(queue) > 0:
        return
    for rank in range(later_size):
        later = loader(rank, later_size)
        later.load_state_dict(json.loads(states[0]))
        for _, place in interleaved(later, workers):
            later.consume(place)
        receipts.append(later.receipt())
    assert plan.audit(receipts).ok


def test_a_place_out_of_order_is_refused(shards: Any) -> None:
    loader = Loader(shards([8]), X, 2, World(0, 1))
    (_, first), (_, second), *_ = loader.read_ahead()
    with pytest.raises(PlanError, match="position 2 is not the next one of this loader"):
        loader.consume(second)
    loader.consume(first)
    with pytest.raises(PlanError, match="position 0 is not the next one"):
        loader.consume(first)
    loader.consume(second)
    assert loader.position == 4


def test_an_iterator_ends_when_its_loader_consumes(shards: Any) -> None:
    loader = Loader(shards([8]), X, 2, World(0, 1))
    (_, first), *_ = loader.read_ahead()
    batches = iter(loader)
    loader.consume(first)
    with pytest.raises(PlanError, match="consume"):
        next(batches)


def test_damage_travels_with_the_place_into_the_receipt(shards: Any) -> None:
    paths = shards([6])
    path = Path(paths[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    bare, queued = (Loader(paths, X, 2, World(0, 1), on_corrupt="skip") for _ in range(2))
    list(bare)
    for _, place in interleaved(queued, 2):
        queued.consume(Place.from_array(place.to_array().tolist()))
    assert queued.receipt()["skipped"] == bare.receipt()["skipped"] != []


def test_an_interrupted_batch_is_read_again(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [batch["x"].tolist() for batch in Loader(shards([9]), X, 2, World(0, 1))]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    ahead = Loader(shards([9]), X, 2, World(0, 1)).read_ahead()
    seen = [next(ahead)]
    with monkeypatch.context() as patch:
        patch.setattr("shardkeep.loader.iterator.Place", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(ahead)
    seen += ahead
    assert [batch["x"].tolist() for batch, _ in seen] == expected


def test_reading_ahead_ends_its_threads_with_the_last_reference(shards: Any) -> None:
    before = threading.active_count()
    ahead = Loader(shards([8]), X, 2, World(0, 1)).read_ahead()
    next(ahead)
    del ahead
    assert threading.active_count() == before


@pytest.mark.parametrize(("worker", "workers"), [(2, 2), (-1, 2), (0, 0)])
def test_a_worker_outside_of_its_workers_is_refused(shards: Any, worker: int, workers: int) -> None:
    with pytest.raises(PlanError, match="worker"):
        Loader(shards([8]), X, 2, World(0, 1)).read_ahead(worker, workers)


def test_a_worker_begins_again_after_the_batches_that_it_made(shards: Any) -> None:
    loader = Loader(shards([7, 13]), X, 2, World(0, 1), shuffle="global", epochs=2)
    whole = [(batch["x"].tolist(), place) for batch, place in loader.read_ahead(1, 3)]
    for made in (0, 2, 4, len(whole), len(whole) + 1):
        rest = loader.read_ahead(1, 3, skip=made)
        assert [(batch["x"].tolist(), place) for batch, place in rest] == whole[made:]
    with pytest.raises(PlanError, match="skip"):
        loader.read_ahead(skip=-1)
