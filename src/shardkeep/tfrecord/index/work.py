"""Tasks on many files in threads, with progress reports and interruption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardkeep.files.threads.tasks import Tasks

__all__ = ["Work"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_PATIENCE = 4


class Work:
    """Tasks in threads, with progress reports.

    Parameters
    ----------
    progress : callable or None
        Called as ``progress(done_bytes, total_bytes)``, only ever in the thread that calls `run`.
    total_bytes : int
        Number of bytes that all tasks together will count.
    """

    def __init__(self, progress: Callable[[int, int], object] | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
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
            self._report()

    def run(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        threads: int,
        *,
        quick_s: float | None = None,
    ) -> list[_Result]:
        """Run the task for each item and return the results in the order of the items.

        The error of the first item that has one is raised; the other tasks end at their next tick.

        With `quick_s`, tasks run in the calling thread until a few of them have taken longer than that:
        threads are faster only where tasks wait.
        """
        results: list[_Result] = []
        slow = 0
        while len(results) < len(items) and (quick_s is not None or threads <= 1 or len(items) == 1):
            start_s = time.monotonic()
            results.append(task(items[len(results)]))
            slow += quick_s is not None and time.monotonic() - start_s > quick_s
            if slow >= _PATIENCE and threads > 1:
                break
        if len(results) < len(items):
            results += self._run_in_threads(task, items[len(results) :], threads)
        self._report(done=True)
        return results

    def _run_in_threads(
        self, task: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
    ) -> list[_Result]:
        def begin(item: _Item) -> _Result:
            self.tick(0)  # a thread that a stopped task has left may begin the next one
            return task(item)

        results = []
        with Tasks[_Result](min(threads, len(items)), "shardkeep-index") as tasks:
            try:
                for result in tasks.run(((begin, item) for item in items), watch=self._report):
                    results.append(result)
                    self._report()
            except BaseException:
                self._stopped = True
                raise
        return results

    def _report(self, *, done: bool = False) -> None:
        if self._progress is None:
            return
        # A file may grow or shrink during the scan; the last report is always 100 %.
        now = self._total_bytes if done else min(self._done_bytes, self._total_bytes)
        if now != self._reported:
            self._reported = now
            self._progress(now, self._total_bytes)


class _StoppedError(Exception):
    """Stop of a task whose result is not needed; never leaves this module."""
