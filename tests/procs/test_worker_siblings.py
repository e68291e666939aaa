"""Workers of `multiprocessing` without a launcher: each is rank 0 of 1, and the messages say so.

Covers `shardkeep.siblings`.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import LockTimeoutError
from shardkeep.hdf5 import WorkerFile
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Writer
from shardkeep.world import World
from tests.waiting import PATIENCE_S

METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    with Writer(tmp_path / "a.tfrecord") as w:
        for i in range(8):
            w.write_example({"x": i})
    return w.path


def warned(action: Callable[[], object]) -> list[tuple[str, str]]:
    """Return file and text of the warnings of two calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
        action()
    return [(os.path.basename(one.filename), str(one.message)) for one in caught]


def detect(barrier: Any, out: Any, world: World | None) -> None:
    barrier.wait(PATIENCE_S)
    out.put(warned(lambda: world or World.detect()))
    barrier.wait(PATIENCE_S)


def iterate(barrier: Any, out: Any, loader: Loader) -> None:
    barrier.wait(PATIENCE_S)
    out.put(warned(lambda: list(loader)))
    barrier.wait(PATIENCE_S)


def together(method: str, count: int, target: Any, argument: object) -> list[list[tuple[str, str]]]:
    """Return what `count` processes, all alive at the same time, warn about."""
    context: Any = multiprocessing.get_context(method)
    barrier, out = context.Barrier(count), context.Queue()
    workers = [context.Process(target=target, args=(barrier, out, argument)) for _ in range(count)]
    for worker in workers:
        worker.start()
    got = [out.get(timeout=PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
    return got


@pytest.mark.parametrize("method", METHODS)
def test_workers_with_the_default_world_are_warned_once_at_their_own_line(method: str) -> None:
    for warning in together(method, 2, detect, None):
        ((file, message),) = warning
        assert file == os.path.basename(__file__)
        assert "rank 0 of 1" in message
        assert "pass world=" in message


@pytest.mark.parametrize("method", METHODS)
def test_a_loader_made_in_the_parent_is_warned_about_where_it_is_iterated(method: str, path: str) -> None:
    loader = Loader(path, {"x": FixedLen()}, 4)
    assert loader.world.source == "default"
    for warning in together(method, 2, iterate, loader):
        assert len(warning) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_single_worker_beside_a_manager_is_not_warned(method: str) -> None:
    with multiprocessing.get_context(method).Manager() as manager:
        manager.list()
        assert together(method, 1, detect, None) == [[]]


def test_workers_with_an_explicit_world_are_not_warned(path: str) -> None:
    loader = Loader(path, {"x": FixedLen()}, 4, World(0, 1))
    assert together("fork", 2, iterate, loader) == [[], []]
    assert together("fork", 2, detect, World(0, 1)) == [[], []]


def test_workers_one_after_another_are_not_warned() -> None:
    assert [together("fork", 1, detect, None) for _ in range(3)] == [[[]]] * 3


_barrier: Any = None


def _keep(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _detect_in_pool(_: int) -> int:
    _barrier.wait(PATIENCE_S)
    return len(warned(World.detect))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 2])
def test_processes_of_an_executor_are_warned_if_there_are_several(method: str, count: int) -> None:
    context: Any = multiprocessing.get_context(method)
    with ProcessPoolExecutor(count, context, _keep, (context.Barrier(count),)) as pool:
        assert list(pool.map(_detect_in_pool, range(count))) == [int(count > 1)] * count


def write(run: str, out: Any, world: World | None) -> None:
    try:
        WorkerFile(run, world).close()
    except LockTimeoutError as error:
        out.put((str(error), error.holder and error.holder["pid"]))


@pytest.mark.parametrize("world", [None, World(0, 1)])
def test_a_second_writer_of_the_default_rank_is_told_that_both_are_rank_0(
    world: World | None, tmp_path: Path
) -> None:
    out: Any = multiprocessing.Queue()
    with WorkerFile(tmp_path, world):
        worker = multiprocessing.Process(target=write, args=(str(tmp_path), out, world))
        worker.start()
        message, pid = out.get(timeout=PATIENCE_S)
        worker.join(PATIENCE_S)
        assert pid == os.getpid()
        assert ("both processes are rank 0 of 1: pass World(" in message) is (world is None)
        with pytest.raises(LockTimeoutError) as caught:
            WorkerFile(tmp_path, world)
        assert "rank 0 of 1" not in str(caught.value)
