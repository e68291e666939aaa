"""Calls in other threads or processes, for a main thread that a signal may interrupt.

A signal handler may raise an exception between any two instructions of the main thread. `concurrent.futures`
and `threading` take and release the locks of their futures, semaphores and events in Python code: a lock that
stays taken stops the worker that needs it next, for ever. So another thread uses them here. The main
thread exchanges calls and results with it through `queue.SimpleQueue`, whose methods are C code.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Tasks"]

_Result = TypeVar("_Result")

_WATCH_S = 0.1


class Tasks(Generic[_Result]):
    """Calls that run in threads, or in the workers of an executor.

    At the end of the ``with`` statement, calls that have not begun are cancelled, and the others have ended.

    Parameters
    ----------
    threads : int
        Most threads at the same time.
    name : str
        Prefix of the names of the threads.
    executor : Executor, optional
        Runs the calls instead of threads; stays open.

    Examples
    --------
    >>> with Tasks(2, "powers") as tasks:
    ...     list(tasks.run((pow, 2, exponent) for exponent in range(5)))
    [1, 2, 4, 8, 16]
    """

    def __init__(self, threads: int, name: str, executor: Executor | None = None) -> None:
        self._threads, self._name, self._executor = threads, name, executor
        self._calls: SimpleQueue[tuple[_Outcome[_Result], Callable[..., _Result], list[Any]] | None]
        self._calls, self._ended = SimpleQueue(), SimpleQueue[None]()

    def run(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        under_way: int | None = None,
        watch: Callable[[], object] | None = None,
    ) -> Generator[_Result, None, None]:
        """Run calls and yield their results in order, so that of several errors the first is raised.

        Parameters
        ----------
        calls : iterable of tuple
            The function of each call and its arguments.
        under_way : int, optional
            Most calls whose results were not yet yielded; by default all calls are submitted at once.
        watch : callable, optional
            Called about every tenth of a second while a result is awaited.
        """
        pending: deque[_Outcome[_Result]] = deque()
        for function, *arguments in calls:
            pending.append(_Outcome())
            self._calls.put((pending[-1], function, arguments))
            if len(pending) == under_way:
                yield pending.popleft().get(watch)
        while pending:
            yield pending.popleft().get(watch)

    def __enter__(self) -> Tasks[_Result]:
        # A daemon, since the exception of a signal in `start` may stop the new thread for ever.
        self._thread = threading.Thread(target=self._handle, name=f"{self._name}-futures", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._ended.get()
        self._thread.join()

    def _handle(self) -> None:
        if self._executor is not None:
            self._submit(self._executor)
        else:
            with ThreadPoolExecutor(self._threads, self._name) as executor:
                self._submit(executor)
        self._ended.put(None)

    def _submit(self, executor: Executor) -> None:
        running: set[Future[_Result]] = set()
        while (call := self._calls.get()) is not None:
            outcome, function, arguments = call
            try:
                future = executor.submit(function, *arguments)
            except Exception as error:
                outcome.put(error)
                continue
            running.add(future)
            future.add_done_callback(running.discard)
            future.add_done_callback(outcome.finish)
        wait([one for one in list(running) if not one.cancel()])


class _Outcome(Generic[_Result]):
    """Result or error of a call."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def put(self, error: BaseException) -> None:
        self._queue.put((None, error))

    def finish(self, future: Future[_Result]) -> None:
        if future.cancelled():
            self.put(CancelledError())
        elif (error := future.exception()) is not None:
            self.put(error)
        else:
            self._queue.put((future.result(), None))

    def get(self, watch: Callable[[], object] | None) -> _Result:
        while True:
            try:
                result: _Result
                result, error = self._queue.get(timeout=None if watch is None else _WATCH_S)
            except Empty:
                assert watch is not None
                watch()
                continue
            if error is None:
                return result
            try:
                raise error
            finally:
                del error  # it refers to this frame
