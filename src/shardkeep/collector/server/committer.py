"""`Committer`: decides when the collector commits, and calls back what waits for a commit.

A commit begins when a client waits for one, when an eighth of the memory is full of rows, or a second after
the first row. A client that only needs room requests one without waiting: it begins when no more rows are
there, after 20 ms at the latest, since a commit takes as long as 2 MB of rows.

Order: `Store.begin_commit` in the loop, ``live.write_commit`` in the thread that syncs (with fsync),
``live.end_commit`` and the callbacks in the loop. So a FLUSH is answered, and a GOODBYE sent, only after the
commit is durable; requests that come meanwhile share the next one. At most once a second, `Store.apply` then
shows the commits to readers.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from shardkeep._paths_in_messages import shown
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Counters, Events
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.errors import ShardkeepError
from shardkeep.files.locks.lock import FileLock

__all__ = ["Committer"]

_COMMIT_EVERY_S = 1.0
_REQUESTED_WITHIN_S = 0.02
_APPLY_EVERY_S = 1.0
_LONGEST_LOG_BYTES = 16 << 20
_RETRY_S = 1.0
_Error = TypeVar("_Error", bound=BaseException)


class Committer:
    """The store of a collector, and the thread that syncs it.

    Attributes
    ----------
    store : Store
    counters : Counters
    failure : ShardkeepError or None
        The reason why nothing can be stored now. The file is then opened again every second.
    wake_fd : int
        Readable when the thread is done; `drain_wake_fd` reads it.
    """

    _changed: dict[bytes, ClientEntry]
    _committing: dict[bytes, int]
    _durable: dict[bytes, int]
    _callbacks: list[Callable[[], None]]
    _committing_callbacks: list[Callable[[], None]]
    _is_awaited: bool
    _uncommitted_bytes: int
    _requested_at: float | None
    _first_at: float | None

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._synced = settings.durability == "fsync"
        self._commit_bytes = settings.memory_bytes // 8
        # A quarter of the memory is for changes: those that wait for a commit, that a commit is writing, that
        # are copied into the log, and that wait to be applied to the file.
        self._changes_bytes = settings.memory_bytes // 4
        self.wake_fd, self._wake_end = os.pipe()
        os.set_blocking(self.wake_fd, False)
        try:
            self.store = self._open(None)
        except BaseException:
            self._close_pipe()
            raise
        events.opened(self.store)
        self.failure: ShardkeepError | None = None
        self.counters = Counters()
        self._thread: threading.Thread | None = None
        self._thread_failure: BaseException | None = None
        self._is_thread_done = False
        self._is_commit = False
        self._applied_at = time.monotonic()
        self._retry_at = 0.0
        self._lock: FileLock | None = None
        self._reset()

    # -- requests ------------------------------------------------------------------------------------------

    def mark_changed(self, entry: ClientEntry) -> None:
        """Make the newest batch of a client part of the next commit."""
        self._changed[entry.id] = entry
        if self._first_at is None:
            self._first_at = time.monotonic()

    def count(self, rows: int, size: int) -> None:
        """Count rows that were stored."""
        self.counters.rows += rows
        self.counters.bytes += size
        self.counters.queued_bytes += size
        self._uncommitted_bytes += size

    def request_commit(self, *, waits: bool = True) -> None:
        """Request a commit, at once if a client waits for it."""
        self._is_awaited = self._is_awaited or waits
        if self._requested_at is None:
            self._requested_at = time.monotonic()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` when everything so far is durable."""
        self._callbacks.append(callback)
        self._is_awaited = True

    def durable_sequence(self, entry: ClientEntry) -> int:
        """Return the sequence number up to which all batches of a client are durable."""
        is_pending = entry.id in self._changed or entry.id in self._committing
        return self._durable.get(entry.id, 0 if is_pending else entry.sequence)

    @property
    def excess_bytes(self) -> int:
        """Memory of changes beyond their quarter; 0 if no commit would reduce it."""
        if self.failure is not None or not self.is_busy:
            return 0
        return max(self.store.held_bytes - self._changes_bytes, 0)

    # -- work ----------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something is not durable yet."""
        return self._thread is not None or bool(self._changed) or bool(self._callbacks)

    def idle_s(self) -> float:
        """Return how long there is nothing to do."""
        now = time.monotonic()
        if self.failure is not None:
            return max(self._retry_at - now, 0.01)
        if self._thread is not None:
            return 1.0
        if self._is_awaited or self._requested_at is not None:
            return 0.0
        due = [1.0]
        if self._first_at is not None:
            due.append(self._first_at + _COMMIT_EVERY_S - now)
        if self._has_unapplied:
            due.append(self._applied_at + _APPLY_EVERY_S - now)
        return max(min(due), 0.0)

    def drain_wake_fd(self) -> None:
        """Read what the thread wrote."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)

    def work(self, *, is_draining: bool, more: bool = False) -> dict[bytes, int]:
        """Begin or end what is due; return the clients with new durable batches, and their sequence numbers.

        Parameters
        ----------
        is_draining : bool
            Whether to commit without waiting for more rows.
        more : bool
            Whether more rows are there already: they join a commit that no client waits for.

        Raises
        ------
        DurabilityError
            Call `fail` with it.
        """
        if self.failure is not None:
            self._retry()
            return {}
        durable: dict[bytes, int] = {}
        if self._thread is not None:
            if not self._is_thread_done:
                return durable
            durable |= self._end()
        now = time.monotonic()
        if self._is_commit_due(now, is_draining=is_draining, more=more):
            durable |= self._begin()
        if self._thread is None and self._has_unapplied and self._is_apply_due(now):
            self._applied_at = now
            self._run(self._apply, is_commit=False)
            if self._thread is None:
                self._end()
        return durable

    def _is_commit_due(self, now: float, *, is_draining: bool, more: bool) -> bool:
        size = self._uncommitted_bytes
        requested, first = self._requested_at, self._first_at
        return (
            self._is_awaited
            or size >= self._commit_bytes
            or (
                requested is not None
                and (not more or size >= self._commit_bytes // 2 or now >= requested + _REQUESTED_WITHIN_S)
            )
            or (is_draining and bool(self._changed or self._callbacks))
            or (first is not None and now >= first + _COMMIT_EVERY_S)
            or self.store.changed_bytes > self._changes_bytes // 4
        )

    def fail(self, error: ShardkeepError) -> None:
        """Drop everything since the last commit, and open the file again later."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._thread_failure = None
        self.failure = _without_frames(error)
        self._retry_at = time.monotonic() + _RETRY_S
        self._lock = self._lock or self.store.abandon()
        self._reset()

    def close(self) -> dict[str, Any]:
        """Store everything, close the file, and return the final report."""
        try:
            if self._thread is not None:
                self._thread.join()
                self._thread = None
            if self.failure is not None:
                if self._lock is not None:
                    self._lock.release()
                raise self.failure
            report = {
                "path": shown(self._settings.path),
                "rows": self.store.rows,
                "commits": self.counters.commits,
            }
            if self._thread_failure is None and self._is_commit and self._committing:
                self.store.live.end_commit()
            self.store.close()
            return report
        finally:
            self._close_pipe()

    # -- steps ---------------------------------------------------------------------------------------------

    def _open(self, lock: FileLock | None) -> Store:
        settings = self._settings
        return Store(settings.path, synced=self._synced, lock=lock, memory_bytes=settings.memory_bytes)

    def _begin(self) -> dict[bytes, int]:
        commit = self.store.begin_commit()
        self._committing = {key: one.sequence for key, one in self._changed.items()}
        self._committing_callbacks, self._callbacks = self._callbacks, []
        self._changed = {}
        self._clear_requests()
        self._run(lambda: self.store.live.write_commit(commit), is_commit=True)
        return self._end() if self._thread is None else {}

    def _run(self, job: Callable[[], Any], *, is_commit: bool) -> None:
        self._is_commit = is_commit
        self._thread_failure = None
        self._is_thread_done = False
        if not self._synced:
            job()
            return

        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._thread_failure = _without_frames(error)
            # Set before the wake-up: the loop may read the byte before this thread has ended.
            self._is_thread_done = True
            os.write(self._wake_end, b".")

        self._thread = threading.Thread(target=run, name="shardkeep-commit", daemon=True)
        self._thread.start()

    def _end(self) -> dict[bytes, int]:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._thread_failure is not None:
            raise self._thread_failure
        if not self._is_commit:
            return {}
        self._is_commit = False
        self.store.live.end_commit()
        self.counters.queued_bytes = self._uncommitted_bytes
        self.counters.commits += 1
        self.counters.last_commit = time.monotonic()
        self._has_unapplied = True
        durable, self._committing = self._committing, {}
        self._durable |= durable
        callbacks, self._committing_callbacks = self._committing_callbacks, []
        for callback in callbacks:
            callback()
        return durable

    @property
    def _has_many_unapplied(self) -> bool:
        return self.store.live.unapplied_bytes > self._changes_bytes // 4

    def _is_apply_due(self, now: float) -> bool:
        is_urgent = self.store.live.log_bytes > _LONGEST_LOG_BYTES or self._has_many_unapplied
        return now >= self._applied_at + (0.05 if is_urgent else _APPLY_EVERY_S)

    def _apply(self) -> None:
        if self.store.apply():
            self._has_unapplied = False
        elif self._has_many_unapplied:
            self.store.live.apply_rows()

    def _retry(self) -> None:
        now = time.monotonic()
        if now < self._retry_at or self._lock is None:
            return
        self._retry_at = now + _RETRY_S
        try:
            self.store = self._open(self._lock)
        except Exception:  # a disk without room, or a machine without memory, may cause any error
            return
        self._lock = None
        self.failure = None
        self._events.opened(self.store)

    def _reset(self) -> None:
        self._changed, self._committing, self._durable = {}, {}, {}
        self._callbacks, self._committing_callbacks = [], []
        self._has_unapplied = False
        self.counters.queued_bytes = 0
        self._clear_requests()

    def _clear_requests(self) -> None:
        self._is_awaited, self._requested_at = False, None
        self._first_at, self._uncommitted_bytes = None, 0

    def _close_pipe(self) -> None:
        os.close(self.wake_fd)
        os.close(self._wake_end)


def _without_frames(error: _Error) -> _Error:
    """Return an error without its tracebacks and those of its causes.

    A traceback refers to frames, and so to rows in shared memory. A kept one would keep these mappings, which
    cannot be closed while a view of them exists.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]
    return error
