from __future__ import annotations

import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardkeep.errors import PlanError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World


def values(batch: dict[str, Any]) -> list[int]:
    return list(batch["x"].tolist())


def make(shards: Any, **options: Any) -> Loader:
    return Loader(shards([20, 3, 18]), {"x": FixedLen()}, 4, World(1, 2), shuffle="global", **options)


@pytest.mark.parametrize("epoch", [None, 0, 2])
def test_batches_in_any_order_are_those_of_the_iteration(shards: Any, epoch: int | None) -> None:
    loader, bare = make(shards), make(shards)
    bare.set_epoch(epoch or 0)
    expected = [values(batch) for batch in bare]
    for seed in range(4):
        numbers = list(range(len(expected)))
        random.Random(seed).shuffle(numbers)
        assert [values(loader.batch(i, epoch)) for i in numbers] == [expected[i] for i in numbers]
    assert [values(loader.batch(i, epoch)) for i in range(len(expected))] == expected
    assert loader.position == 0


def test_threads_get_the_batches_that_they_ask_for(shards: Any) -> None:
    loader, expected = make(shards), [values(batch) for batch in make(shards)]
    with ThreadPoolExecutor(4) as threads:
        numbers = [*range(len(expected))] * 20
        assert list(threads.map(lambda i: values(loader.batch(i)), numbers)) == expected * 20


def test_steps_count_from_the_place_of_a_loaded_state(shards: Any) -> None:
    first, later = make(shards), make(shards)
    next(iter(first))
    later.load_state_dict(first.state_dict())
    expected = [values(batch) for batch in make(shards)]
    assert values(later.batch(0)) == expected[1]
    assert values(later.batch(0, epoch=1)) != expected[0]
    with pytest.raises(PlanError, match="step"):
        later.batch(len(expected) - 1)


def test_a_moved_loader_keeps_the_numbers_of_its_epoch(shards: Any) -> None:
    loader, expected = make(shards), [values(batch) for batch in make(shards)]
    batches = iter(loader)
    for step in range(3):
        next(batches)
        assert values(loader.batch(step)) == expected[step]


@pytest.mark.parametrize("step", [-1, 6, 1.5])
def test_a_step_that_the_epoch_does_not_have_is_refused(shards: Any, step: Any) -> None:
    with pytest.raises(PlanError, match="step"):
        make(shards).batch(step)


def test_a_forked_child_reads_batches_by_number(shards: Any) -> None:
    loader = make(shards)
    expected = [values(batch) for batch in make(shards)]
    loader.batch(0)
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: queue.put(values(loader.batch(1))))
    child.start()
    assert queue.get() == expected[1]
    child.join()
    assert values(loader.batch(1)) == expected[1]


@pytest.mark.parametrize("shard_by", ["records", "files"])
def test_the_place_of_a_batch_by_number_moves_the_loader(shards: Any, shard_by: Any) -> None:
    loader = Loader(shards([20, 3, 18]), {"x": FixedLen()}, 4, World(1, 2), shard_by=shard_by)
    later = Loader(shards([20, 3, 18]), {"x": FixedLen()}, 4, World(1, 2), shard_by=shard_by)
    for _ in zip(range(2), loader, strict=False):
        pass
    later.load_state_dict(loader.state_dict())
    assert (loader.step, later.step) == (2, 0)
    steps = later.steps_left
    for left in range(steps, 0, -1):
        assert later.steps_left == left
        batch, place = later._read_step(later.step, None)
        assert values(batch) == values(next(iter(loader)))
        later.consume(place)
        assert later.state_dict() == loader.state_dict()
    assert (later.epoch, later.step, later.steps_left) == (1, 0, later.steps_per_epoch)
