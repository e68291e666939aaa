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
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from shardkeep.errors import PlanError

__all__ = ["Outcome", "Tasks"]

_Result = TypeVar("_Result")

_WATCH_S = 0.1


@dataclass(frozen=True)
class Outcome(Generic[_Result]):
    """Outcome of a call, by its number: the result, or an error."""

    number: int
    result: _Result | None
    error: BaseException | None


class Tasks(Generic[_Result]):
    """Calls that run in threads, or in the workers of an executor.

    At the end of the ``with`` statement, calls that have not begun are cancelled, and the others have ended.
    Only after Ctrl-C calls that an executor has begun may continue for a while.

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
        if executor is not None and not isinstance(executor, Executor):
            raise PlanError(
                f"executor= must be a concurrent.futures.Executor, not {type(executor).__name__};"
                " of a Dask client pass client.get_executor(pure=False)"
            )
        self._threads, self._name, self._executor = threads, name, executor
        self._waits = True
        self._calls: SimpleQueue[tuple[_Call[_Result], Callable[..., _Result], list[Any]] | None]
        self._calls, self._ended = SimpleQueue(), SimpleQueue[None]()

    def run(
        self, calls: Iterable[tuple[Any, ...]], *, under_way: int | None = None
    ) -> Generator[_Result, None, None]:
        """Run calls and yield their results in order, so that of several errors the first is raised.

        Parameters
        ----------
        calls : iterable of tuple
            The function of each call and its arguments.
        under_way : int, optional
            Most calls whose results were not yet yielded; by default all calls are submitted at once.
        """
        pending: deque[SimpleQueue[Outcome[_Result]]] = deque()
        for number, (function, *arguments) in enumerate(calls):
            pending.append(SimpleQueue())
            self._calls.put((_Call(number, pending[-1]), function, arguments))
            if len(pending) == under_way:
                yield _result(pending.popleft().get())
        while pending:
            yield _result(pending.popleft().get())

    def run_as_done(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        under_way: int,
        watch: Callable[[], object],
    ) -> Generator[Outcome[_Result], None, None]:
        """Run calls and yield the outcome of each when it is done, an error too.

        Parameters
        ----------
        calls : iterable of tuple
            As for `run`.
        under_way : int
            Most calls that are not done.
        watch : callable
            Called about every tenth of a second while an outcome is awaited.
        """
        done: SimpleQueue[Outcome[_Result]] = SimpleQueue()
        pending = 0
        for number, (function, *arguments) in enumerate(calls):
            self._calls.put((_Call(number, done), function, arguments))
            pending += 1
            if pending == under_way:
                yield _next(done, watch)
                pending -= 1
        for _ in range(pending):
            yield _next(done, watch)

    def __enter__(self) -> Tasks[_Result]:
        # A daemon, since the exception of a signal in `start` may stop the new thread for ever.
        self._thread = threading.Thread(target=self._handle, name=f"{self._name}-futures", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_interrupt = kind is not None and not issubclass(kind, Exception)
        self._waits = self._executor is None or not is_interrupt
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
                outcome.fail(error)
                continue
            running.add(future)
            future.add_done_callback(running.discard)
            future.add_done_callback(outcome.finish)
        begun = [one for one in list(running) if not one.cancel()]
        if self._waits:
            wait(begun)


class _Call(Generic[_Result]):
    """Call whose outcome is put into a queue."""

    def __init__(self, number: int, queue: SimpleQueue[Outcome[_Result]]) -> None:
        self._number, self._queue = number, queue

    def fail(self, error: BaseException) -> None:
        self._queue.put(Outcome(self._number, None, error))

    def finish(self, future: Future[_Result]) -> None:
        if future.cancelled():
            self.fail(CancelledError())
        elif (error := future.exception()) is not None:
            self.fail(error)
        else:
            self._queue.put(Outcome(self._number, future.result(), None))


def _next(queue: SimpleQueue[Outcome[_Result]], watch: Callable[[], object]) -> Outcome[_Result]:
    while True:
        try:
            return queue.get(timeout=_WATCH_S)
        except Empty:
            watch()


def _result(outcome: Outcome[_Result]) -> _Result:
    if outcome.error is None:
        return cast("_Result", outcome.result)
    try:
        raise outcome.error
    finally:
        del outcome  # the error refers to this frame
