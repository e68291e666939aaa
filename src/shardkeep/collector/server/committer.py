"""`Committer`: when the collector commits, and what waits for it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.kept_errors import without_frames
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.errors import ShardkeepError

__all__ = ["Committer"]

_COMMIT_EVERY_S = 1.0
# What nobody waits for, while more rows come.
_WANTED_WITHIN_S = 0.02
_APPLY_EVERY_S = 1.0
_LONGEST_LOG_BYTES = 16 << 20
_RETRY_S = 1.0


class Committer:
    """The store, and the thread that syncs it.

    A commit happens when somebody waits for one (`hurry`), when `commit_bytes` of rows came since the
    last, or a second after the first of them. One that clients only want, to have room again, waits until
    no more rows are there, for 20 ms at most: it takes as long as 2 MB of rows. With fsync it is written
    by a thread of its own, while more rows are received; all who asked meanwhile share the next one.

    Parameters
    ----------
    settings : Settings
    events : Events

    Attributes
    ----------
    failure : ShardkeepError or None
        Why nothing can be stored now. The file is then tried again every second.
    """

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._synced = settings.durability == "fsync"
        self._commit_bytes = settings.memory_bytes // 8
        # One part of the changes waits for a commit, one is written by it, one is copied into the log, one
        # waits to be brought into the file.
        self._change_bytes = settings.memory_bytes // 16
        self.wakes, self._wake = os.pipe()
        os.set_blocking(self.wakes, False)
        try:
            self.store = self._open(None)
        except BaseException:
            os.close(self.wakes)
            os.close(self._wake)
            raise
        events.opened(self.store)
        self.failure: ShardkeepError | None = None
        self.rows = self.bytes = self.commits = 0
        self.last_commit: float | None = None
        self._durable: dict[bytes, int] = {}
        self._touched: dict[bytes, ClientEntry] = {}
        self._committing: dict[bytes, int] = {}
        self._answers: list[Callable[[], None]] = []
        self._answering: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._thread_failure: BaseException | None = None
        self._thread_done = False
        self._is_commit = False
        self._hurry = False
        self._wanted_at: float | None = None
        self._uncommitted_bytes = self._committing_bytes = 0
        self._first_at: float | None = None
        self._applied_at = time.monotonic()
        self._to_apply = False
        self._retry_at = 0.0
        self._lock: Any = None

    # -- what came -----------------------------------------------------------------------------------------

    def note(self, entry: ClientEntry) -> None:
        """A batch of this client was taken."""
        self._touched[entry.id] = entry
        if self._first_at is None:
            self._first_at = time.monotonic()

    def count(self, rows: int, size: int) -> None:
        """Rows were taken."""
        self.rows += rows
        self.bytes += size
        self._uncommitted_bytes += size

    def hurry(self, *, waits: bool = True) -> None:
        """Somebody waits for the next commit, or would like to have one soon."""
        self._hurry = self._hurry or waits
        if self._wanted_at is None:
            self._wanted_at = time.monotonic()

    def answer_after_commit(self, answer: Callable[[], None]) -> None:
        """Call `answer` when everything so far is durable."""
        self._answers.append(answer)
        self._hurry = True

    def durable_of(self, entry: ClientEntry) -> int:
        """Return up to which batch of a client everything is durable."""
        return self._durable.get(entry.id, entry.sequence if entry.id not in self._pending else 0)

    @property
    def _pending(self) -> set[bytes]:
        return set(self._touched) | set(self._committing)

    @property
    def queued_bytes(self) -> int:
        """Bytes of rows that came and are not durable yet."""
        return self._uncommitted_bytes + self._committing_bytes

    @property
    def excess_bytes(self) -> int:
        """Memory of changes beyond the quarter that there is for them; 0 when nothing will become of less."""
        if self.failure is not None or not self.is_busy:
            return 0
        return max(self.store.held_bytes - self._settings.memory_bytes // 4, 0)

    # -- work ----------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something is not durable yet."""
        return self._thread is not None or bool(self._touched) or bool(self._answers)

    def wait_s(self) -> float:
        """Return how long nothing will have to be done."""
        if self.failure is not None:
            return max(self._retry_at - time.monotonic(), 0.01)
        if self._thread is not None:
            return 1.0
        if self._hurry or self._wanted_at is not None:
            return 0.0
        due = [1.0]
        now = time.monotonic()
        if self._first_at is not None:
            due.append(self._first_at + _COMMIT_EVERY_S - now)
        if self._to_apply:
            due.append(self._applied_at + _APPLY_EVERY_S - now)
        return max(min(due), 0.0)

    def wake_up(self) -> None:
        """Read away what the thread wrote."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wakes, 4096)

    def work(self, *, hurry: bool, more: bool = False) -> dict[bytes, int]:
        """Begin or end what is due; return up to which batch of whom everything has become durable.

        Parameters
        ----------
        hurry : bool
            Whether there is no use in waiting for more rows.
        more : bool
            Whether more rows are there already: what nobody waits for is committed together with them.

        Raises
        ------
        DurabilityError
            Call `fail` with it.
        """
        if self.failure is not None:
            self._retry()
            return {}
        done: dict[bytes, int] = {}
        if self._thread is not None:
            if not self._thread_done:
                return done
            done |= self._end()
        now = time.monotonic()
        due = self._hurry or self._uncommitted_bytes >= self._commit_bytes
        if self._wanted_at is not None:
            due = due or not more or self._uncommitted_bytes >= self._commit_bytes // 2
            due = due or now >= self._wanted_at + _WANTED_WITHIN_S
        due = due or (hurry and bool(self._touched or self._answers))
        due = due or (self._first_at is not None and now >= self._first_at + _COMMIT_EVERY_S)
        due = due or self.store.changed_bytes > self._change_bytes
        if due:
            done |= self._begin()
        if self._thread is None and self._to_apply and self._apply_is_due(now):
            self._applied_at = now
            self._run(self._apply, is_commit=False)
            done |= self._end() if self._thread is None else {}
        return done

    def fail(self, error: ShardkeepError) -> None:
        """Give up everything since the last commit, and try the file again later."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._thread_failure = None
        self.failure = without_frames(error)
        self._retry_at = time.monotonic() + _RETRY_S
        self._lock = self._lock or self.store.abandon()
        self._reset()

    def close(self) -> dict[str, Any]:
        """Store everything, close the file, and return what there is to report."""
        try:
            if self._thread is not None:
                self._thread.join()
                self._thread = None
            if self.failure is not None:
                if self._lock is not None:
                    self._lock.release()
                raise self.failure
            report = {"path": self._settings.path, "rows": self.store.rows, "commits": self.commits}
            if self._thread_failure is None and self._is_commit and self._committing:
                self.store.live.end_commit()
            self.store.close()
            return report
        finally:
            os.close(self.wakes)
            os.close(self._wake)

    # -- inside --------------------------------------------------------------------------------------------

    def _open(self, lock: Any) -> Store:
        settings = self._settings
        return Store(settings.path, synced=self._synced, lock=lock, memory_bytes=settings.memory_bytes)

    def _begin(self) -> dict[bytes, int]:
        commit = self.store.begin_commit()
        self._committing = {key: one.sequence for key, one in self._touched.items()}
        self._answering, self._answers = self._answers, []
        self._touched = {}
        self._committing_bytes += self._uncommitted_bytes
        self._forget_what_is_due()
        self._run(lambda: self.store.live.write_commit(commit), is_commit=True)
        return self._end() if self._thread is None else {}

    def _run(self, job: Callable[[], Any], *, is_commit: bool) -> None:
        self._is_commit = is_commit
        self._thread_failure = None
        self._thread_done = False
        if not self._synced:
            job()
            return

        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._thread_failure = without_frames(error)
            # Told before the wake-up: the thread itself may still be alive when that is heard.
            self._thread_done = True
            os.write(self._wake, b".")

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
        self._committing_bytes = 0
        self.commits += 1
        self.last_commit = time.monotonic()
        self._to_apply = True
        done, self._committing = self._committing, {}
        self._durable |= done
        for answer in self._answering:
            answer()
        self._answering = []
        return done

    def _apply_is_due(self, now: float) -> bool:
        if (
            self.store.live.log_bytes > _LONGEST_LOG_BYTES
            or self.store.live.unapplied_bytes > self._change_bytes
        ):
            return now >= self._applied_at + 0.05
        return now >= self._applied_at + _APPLY_EVERY_S

    def _apply(self) -> None:
        if self.store.apply():
            self._to_apply = False
        elif self.store.live.unapplied_bytes > self._change_bytes:
            self.store.live.apply_rows()

    def _retry(self) -> None:
        now = time.monotonic()
        if now < self._retry_at or self._lock is None:
            return
        self._retry_at = now + _RETRY_S
        try:
            self.store = self._open(self._lock)
        except Exception:  # whatever a disk without room, or a machine without memory, makes of it
            return
        self._lock = None
        self.failure = None
        self._events.opened(self.store)

    def _reset(self) -> None:
        self._touched, self._committing = {}, {}
        self._answers, self._answering = [], []
        self._committing_bytes = 0
        self._forget_what_is_due()
        self._to_apply = False
        self._durable = {}

    def _forget_what_is_due(self) -> None:
        self._hurry, self._wanted_at = False, None
        self._first_at, self._uncommitted_bytes = None, 0
