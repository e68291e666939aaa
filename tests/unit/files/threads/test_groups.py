"""Tasks in the workers of an executor: `shardkeep.files.threads.groups` and `Work` with an executor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import CorruptRecordError, EngineError, NotFoundError, PlanError
from shardkeep.files.durable import durably
from shardkeep.files.threads.groups import divide
from shardkeep.files.threads.work import Tick, Work, WorkFile
from tests.waiting import PATIENCE_S


class Strange(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("strange")


def task(item: WorkFile, tick: Tick) -> str:
    name = os.path.basename(item.path)
    if name.startswith("damaged"):
        raise CorruptRecordError(f"{item.path}: damage", path=item.path, record=3, offset_bytes=70)
    if name.startswith("strange"):
        raise Strange(1, threading.Lock())
    if name.startswith("bug"):
        raise ZeroDivisionError("a bug")
    if name.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("output"):
        with durably("open", f"{item.path}.new"):
            os.open(f"{item.path}.temporary", os.O_RDWR)
    if name.startswith("slow"):
        time.sleep(0.3)
    tick(item.size_bytes)
    return name


def files(folder: Path, *names: str, size_bytes: int = 64 << 20) -> list[WorkFile]:
    """Make files that count as so large that each is a group."""
    for name in names:
        (folder / name).touch()
    return [WorkFile(str(folder / name), size_bytes) for name in names]


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.2, 0.2]))  # both begin before a test counts its children
        yield pool


def run(
    items: list[WorkFile], executor: Executor, progress: Callable[[int, int], object] | None = None
) -> list[str]:
    return Work(progress, sum(one.size_bytes for one in items), executor).run(task, items, 1)


def test_results_are_in_order_and_progress_grows_in_the_calling_thread(
    tmp_path: Path, processes: Executor
) -> None:
    told: list[tuple[int, int]] = []
    tellers = set()

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        tellers.add(threading.get_ident())

    names = ["slow", *(f"quick{number}" for number in range(8))]
    items = files(tmp_path, *names)
    assert run(items, processes, progress) == names
    assert tellers == {threading.get_ident()}
    assert told == sorted(set(told))
    assert len(told) >= 3
    assert told[-1] == (9 * (64 << 20),) * 2


def test_small_files_are_processed_together(tmp_path: Path) -> None:
    items = files(tmp_path, *(f"small{number}" for number in range(200)), size_bytes=1000)
    assert [len(group) for group in divide(items)] == [64, 64, 64, 8]
    large = [WorkFile("large", 40 << 20), WorkFile("small", 1), WorkFile("large", 40 << 20)]
    assert [len(group) for group in divide(large)] == [1, 1, 1]
    with ThreadPoolExecutor(2) as threads:
        assert run(items, threads) == [os.path.basename(one.path) for one in items]


def test_the_error_of_the_first_file_keeps_type_path_offset_and_record(
    tmp_path: Path, processes: Executor
) -> None:
    items = files(tmp_path, "slow", "damaged1", "damaged2", *(f"quick{number}" for number in range(100)))
    with pytest.raises(CorruptRecordError) as raised:
        run(items, processes)
    error = raised.value
    assert (error.path, error.record, error.offset_bytes) == (items[1].path, 3, 70)


def test_an_error_in_a_group_of_small_files_is_that_of_its_file(tmp_path: Path, processes: Executor) -> None:
    items = files(tmp_path, "a", "damaged", "b", size_bytes=1)
    with pytest.raises(CorruptRecordError, match="damaged: damage"):
        run(items, processes)


def test_a_bug_in_a_worker_has_its_traceback(tmp_path: Path, processes: Executor) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run(files(tmp_path, "bug"), processes)
    assert "in task" in "".join(raised.value.__notes__)
    with pytest.raises(RuntimeError, match="Strange: strange"):  # it cannot be pickled
        run(files(tmp_path, "strange"), processes)


def test_a_killed_worker_of_a_pool_is_an_error_that_names_a_file(tmp_path: Path) -> None:
    items = files(tmp_path, "kill", "slow", "quick")
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(EngineError, match=r"kill: no worker finished .*run the same call again$") as raised,
    ):
        run(items, pool)
    assert raised.value.path == items[0].path
    assert "\n" not in str(raised.value)


class Elsewhere(ThreadPoolExecutor):
    """Workers for which some things are different: a call is made before and after each task."""

    def __init__(self, before: Callable[[], object], after: Callable[[], object]) -> None:
        super().__init__(1)
        self._before, self._after = before, after

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        def call() -> Any:
            self._before()
            try:
                return function(*arguments)
            finally:
                self._after()

        return super().submit(call)


def test_a_file_that_a_worker_does_not_have_is_an_error_with_its_host(tmp_path: Path) -> None:
    (item,) = files(tmp_path, "here")
    away = Path(f"{item.path}.away")
    with (
        Elsewhere(partial(os.rename, item.path, away), partial(os.rename, away, item.path)) as other,
        pytest.raises(NotFoundError, match=rf"here: not found on the worker {os.uname().nodename}") as raised,
    ):
        run([item], other)
    assert raised.value.path == item.path


def test_an_output_that_a_worker_does_not_have_is_an_error_with_its_host(tmp_path: Path) -> None:
    (item,) = files(tmp_path, "output")
    expected = rf"output\.new: not found on the worker {os.uname().nodename}, which has to write it"
    with ThreadPoolExecutor(1) as pool, pytest.raises(NotFoundError, match=expected) as raised:
        run([item], pool)
    assert raised.value.path == f"{item.path}.new"


def test_a_file_that_was_removed_has_the_outcome_of_a_run_without_executor(tmp_path: Path) -> None:
    items = files(tmp_path, "a", "removed", "damaged", size_bytes=1)
    os.unlink(items[1].path)
    with ThreadPoolExecutor(1) as pool:
        assert run(items[:2], pool) == ["a", "removed"]
        with pytest.raises(CorruptRecordError):
            run(items, pool)


def test_a_relative_path_is_refused_where_it_would_be_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, "here")
    (tmp_path / "other").mkdir()
    files(tmp_path / "other", "here")
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        assert run([WorkFile("here", 1)], pool) == ["here"]
    with (
        Elsewhere(partial(os.chdir, tmp_path / "other"), partial(os.chdir, tmp_path)) as other,
        pytest.raises(PlanError, match="pass absolute paths"),
    ):
        run([WorkFile("here", 1)], other)


def test_an_interrupted_run_does_not_wait_for_a_worker(tmp_path: Path) -> None:
    end, begun = threading.Event(), threading.Event()

    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    def before() -> None:
        if begun.is_set():
            end.wait(PATIENCE_S)
        begun.set()

    items = files(tmp_path, *(f"quick{number}" for number in range(50)))
    with Elsewhere(before, lambda: None) as pool:
        try:
            with pytest.raises(KeyboardInterrupt):
                run(items, pool, progress)
        finally:
            end.set()
    assert not [one for one in threading.enumerate() if one.name.startswith("shardkeep-engine")]


def test_what_is_no_executor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"get_executor\(pure=False\)"):
        run(files(tmp_path, "a"), object())  # type: ignore[arg-type]
