from __future__ import annotations

import threading
import time

import pytest

from shardkeep.files.threads.work import Tick, Work
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("threads", [1, 3])
def test_results_in_order_and_progress_in_the_calling_thread(threads: int) -> None:
    told: list[tuple[int, int]] = []
    tellers = set()

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        tellers.add(threading.get_ident())

    work = Work(progress, 60)

    def task(item: int, tick: Tick) -> int:
        time.sleep(0.02 * (3 - item % 3))
        tick(10)
        return -item

    assert work.run(task, range(6), threads) == [0, -1, -2, -3, -4, -5]
    assert tellers == {threading.get_ident()}
    assert told == sorted(set(told))
    assert told[-1] == (60, 60)


@pytest.mark.parametrize("threads", [1, 4])
def test_first_error_is_raised_and_the_other_tasks_end(threads: int) -> None:
    begun = []
    work = Work(None, 0)

    def task(item: int, tick: Tick) -> None:
        begun.append(item)
        if item == 1:
            time.sleep(0.05)
            raise ValueError("one")
        if item == 2:
            raise ValueError("two")
        while item > 2:  # until the result is not needed any more
            tick(1)
            time.sleep(0.01)

    with pytest.raises(ValueError, match="one"):
        work.run(task, range(1000), threads)
    assert len(begun) <= 3 + threads


def test_an_error_of_progress_ends_running_tasks() -> None:
    def progress(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    work = Work(progress, 1000)

    def task(item: int, tick: Tick) -> None:
        while True:
            time.sleep(0.01)
            tick(1)

    with pytest.raises(KeyboardInterrupt):
        work.run(task, range(2), 2)


def test_quick_tasks_stay_in_the_calling_thread_and_slow_ones_do_not() -> None:
    together = threading.Barrier(8, timeout=PATIENCE_S)
    here = threading.get_ident()

    def where(item: float, _tick: Tick) -> int:
        time.sleep(item)
        if threading.get_ident() != here:
            together.wait()  # eight of them are under way at the same time
        return threading.get_ident()

    assert set(Work(None, 0).run(where, [0.0] * 100, 16, quick_s=PATIENCE_S)) == {here}
    found = Work(None, 0).run(where, [0.01] * 36, 16, quick_s=0.005)
    assert (found[:4], here in found[4:]) == ([here] * 4, False)
    assert len(set(found)) > 8
    assert set(Work(None, 0).run(where, [0.01] * 8, 1, quick_s=0.005)) == {here}


def test_progress_of_a_grown_file_stays_at_100_percent() -> None:
    told = []
    work = Work(lambda done, total: told.append((done, total)), 10)
    work.run(lambda _, tick: tick(25), [0], 1)
    assert told == [(10, 10)]
    work = Work(lambda done, total: told.append((done, total)), 10)
    work.run(lambda _, tick: tick(5), [0], 1)
    assert told[1:] == [(5, 10), (10, 10)]
