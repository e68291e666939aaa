from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardkeep.files.threads.tasks import Tasks


def test_results_come_in_order_and_few_calls_are_under_way() -> None:
    asked: list[int] = []

    def calls() -> Iterator[tuple[Any, ...]]:
        for number in range(20):
            asked.append(number)
            yield pow, number, 2

    with Tasks[int](3, "squares") as tasks:
        for number, square in enumerate(tasks.run(calls(), under_way=4)):
            assert square == number**2
            assert len(asked) <= number + 4
    assert not [one.name for one in threading.enumerate() if one.name.startswith("squares")]


def test_the_first_error_is_raised_and_calls_that_have_not_begun_are_cancelled() -> None:
    begun = []

    def call(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"^0$"), Tasks[None](2, "errors") as tasks:
        list(tasks.run((call, number) for number in range(100)))
    assert len(begun) < 10


def test_an_executor_stays_open_and_its_refusal_is_raised() -> None:
    with ThreadPoolExecutor(1) as executor:
        for _ in range(2):
            with Tasks[int](1, "x", executor) as tasks:
                assert list(tasks.run([(pow, 2, 3)])) == [8]
    with pytest.raises(RuntimeError, match=r"after shutdown"), Tasks[int](1, "x", executor) as tasks:
        list(tasks.run([(pow, 2, 3)]))


def test_watch_is_called_while_a_result_is_awaited() -> None:
    end = threading.Event()
    with Tasks[bool](1, "watched") as tasks:
        assert [one.result for one in tasks.run_as_done([(end.wait,)], under_way=2, watch=end.set)] == [True]
