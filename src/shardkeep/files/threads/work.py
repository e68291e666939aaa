"""Tasks on many files in threads or in the workers of an executor, with progress reports and interruption."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, NamedTuple, TypeVar, cast

from shardkeep.files.threads.groups import Located, divide, engine_error, perform, resume
from shardkeep.files.threads.tasks import Tasks
from shardkeep.progress import Progress

__all__ = ["Tick", "Work", "WorkFile"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Tick = Callable[[int], None]

_PATIENCE = 4
_FEWEST_UNDER_WAY = 64


class WorkFile(NamedTuple):
    """File of a task, and the number of bytes that the task counts."""

    path: str
    size_bytes: int


class Work:
    """Tasks in threads or in the workers of an executor, with progress reports.

    Parameters
    ----------
    progress : callable or None
        Called as ``progress(done_bytes, total_bytes)``, only ever in the thread that calls `run`.
    total_bytes : int
        Number of bytes that all tasks together will count.
    executor : Executor, optional
        Runs the tasks instead of threads; stays open. It may be one of other processes or hosts, and may run
        a task again when its worker dies.
    """

    def __init__(
        self,
        progress: Progress | None,
        total_bytes: int,
        executor: Executor | None = None,
    ) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._executor = executor
        self._done_bytes = 0
        self._reported: int | None = None
        self._counting = threading.Lock()
        self._stopped = False
        self._caller = threading.get_ident()

    def tick(self, done_bytes: int) -> None:
        """Count bytes; called by the tasks. Raises in a task whose result is not needed any more."""
        with self._counting:
            self._done_bytes += done_bytes
        if self._stopped:
            raise _StoppedError
        if threading.get_ident() == self._caller:
            self.report()

    def run(
        self,
        task: Callable[[_Item, Tick], _Result],
        items: Iterable[_Item],
        threads: int,
        *,
        quick_s: float | None = None,
    ) -> list[_Result]:
        """Run the task for each item and return the results in the order of the items.

        The error of the first item that has one is raised; the other tasks end at their next tick.

        Parameters
        ----------
        task : callable
            Called as ``task(item, tick)``; ``tick(done_bytes)`` counts bytes, as the method of this class.
            For an executor, a function of a module with picklable arguments, which may run again.
        items : iterable
            For an executor, each has a ``path`` and a number of ``size_bytes``, as `WorkFile`. An iterator
            is consumed as the work proceeds.
        threads : int
        quick_s : float, optional
            Tasks run in the calling thread until a few of them have taken longer than that: threads are
            faster only where tasks wait.
        """
        if isinstance(items, Sequence):
            threads = min(threads, len(items))
        rest = iter(items)
        results: list[_Result] = []
        if self._executor is None and (quick_s is not None or threads <= 1):
            slow = 0
            for item in rest:
                start_s = time.monotonic()
                results.append(task(item, self.tick))
                slow += quick_s is not None and time.monotonic() - start_s > quick_s
                if slow >= _PATIENCE and threads > 1:
                    break
        results += self._in_threads(task, rest, threads) if self._executor is None else self._by(task, rest)
        self.report(done=True)
        return results

    def stream(
        self,
        task: Callable[[_Item, Tick], _Result],
        items: Iterable[_Item],
        threads: int,
        *,
        ahead: int,
    ) -> Generator[_Result, None, None]:
        """Run the task for each item and yield the results in the order of the items.

        Parameters
        ----------
        task, items, threads
            As for `run`. For an executor each item is one task.
        ahead : int
            Most results that are kept until they are yielded.
        """
        executor, folder = self._executor, os.getcwd()
        if executor is None:
            with Tasks[_Result](threads, "shardkeep-work") as tasks:
                yield from tasks.run(((task, item, self.tick) for item in items), under_way=ahead)
            return
        begun: deque[list[Located]] = deque()

        def calls() -> Iterator[tuple[Any, ...]]:
            for item in items:
                begun.append([cast("Located", item)])
                yield perform, task, begun[-1], folder

        with Tasks[tuple[list[_Result], BaseException | None]](0, "shardkeep-work", executor) as remote:
            found = remote.run(calls(), under_way=ahead)
            while True:
                try:
                    results, error = next(found)
                except StopIteration:
                    return
                except Exception as failure:
                    raise engine_error(begun[0], failure) from failure
                if error is not None:
                    error = resume(task, begun[0], results, error)
                if error is not None:
                    raise error
                begun.popleft()
                yield from results

    def _in_threads(
        self, task: Callable[[_Item, Tick], _Result], items: Iterator[_Item], threads: int
    ) -> list[_Result]:
        def begin(item: _Item) -> _Result:
            self.tick(0)  # a thread that a stopped task has left may begin the next one
            return task(item, self.tick)

        found = _InOrder[_Result]()
        calls = ((begin, item) for item in items if not found.failed)
        with Tasks[_Result](max(1, threads), "shardkeep-work") as tasks:
            try:
                for one in tasks.run_as_done(calls, under_way=2 * threads, watch=self.report):
                    found.add(one.number, () if one.error else (cast("_Result", one.result),), one.error)
                    self.report()
            except BaseException:
                self._stopped = True
                raise
        return found.results()

    def _by(self, task: Callable[[_Item, Tick], _Result], items: Iterator[_Item]) -> list[_Result]:
        """Run the task in the workers of the executor, for groups of items."""
        executor, folder = self._executor, os.getcwd()
        assert executor is not None
        found = _InOrder[_Result]()
        begun: dict[int, list[Located]] = {}

        def calls() -> Iterator[tuple[Any, ...]]:
            for number, group in enumerate(divide(cast("Iterator[Located]", items))):
                if found.failed:
                    return
                begun[number] = group
                yield perform, task, group, folder

        with Tasks[tuple[list[_Result], BaseException | None]](0, "shardkeep-work", executor) as tasks:
            for one in tasks.run_as_done(calls(), under_way=_under_way(executor), watch=self.report):
                group = begun.pop(one.number)
                if one.error is not None:
                    found.add(one.number, (), engine_error(group, one.error))
                    continue
                assert one.result is not None
                results, error = one.result
                if error is not None:
                    error = resume(task, group, results, error)
                found.add(one.number, results, error)
                self.tick(0 if error else sum(item.size_bytes for item in group))
        return found.results()

    def report(self, *, done: bool = False) -> None:
        """Report the bytes that were counted, or all; only in the thread that calls `run`."""
        if self._progress is None:
            return
        # A file may grow or shrink during the scan; the last report is always 100 %.
        now = self._total_bytes if done else min(self._done_bytes, self._total_bytes)
        if now != self._reported:
            self._reported = now
            self._progress(now, self._total_bytes)


class _InOrder(Generic[_Result]):
    """Results that arrive in any order; of several errors the first in order is raised.

    Calls begin in order. So with an error the results before it will arrive.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Sequence[_Result]] = {}
        self._results: list[_Result] = []
        self._next = 0
        self._errors: dict[int, BaseException] = {}

    @property
    def failed(self) -> bool:
        """True after an error, when no other call should begin."""
        return bool(self._errors)

    def add(self, number: int, results: Sequence[_Result], error: BaseException | None) -> None:
        if error is not None:
            self._errors[number] = error
        else:
            self._waiting[number] = results
        while self._next in self._waiting:
            self._results += self._waiting.pop(self._next)
            self._next += 1
        if self._next in self._errors:
            raise self._errors[self._next]

    def results(self) -> list[_Result]:
        return self._results


def _under_way(executor: Executor) -> int:
    """Return how many tasks of an executor are begun or waiting at the same time, so that no worker waits."""
    workers = getattr(executor, "num_workers", None) or getattr(executor, "_max_workers", None)
    return max(_FEWEST_UNDER_WAY, 4 * workers if isinstance(workers, int) else 0)


class _StoppedError(Exception):
    """Stop of a task whose result is not needed; never leaves this module."""
