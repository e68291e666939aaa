"""The state that the calls of a client share with the thread of its `Sender`, and the rules for its use.

Python runs a signal handler between any two instructions of the main thread, never in another thread. The
handler may raise, or call the client again. Therefore:

1. Steps that belong together run in `ReentrancyGuard.run`, or hold its lock with `is_busy` set in the same
   way (`Client.append` does, to save a call). Another thread waits for their end. A signal handler that
   interrupts them is refused with a `LockError`: the steps can only continue after it returns.
2. A call adds rows in a single step: it raises `ChunkBuffer.rows` or extends `SenderState.submitted`. An
   exception before that step adds nothing, an exception after it everything. Work of several steps, such as
   making batches, is left to the thread, where no handler runs.
3. Nothing waits while it holds the lock. A call waits for a new lock (`new_waiter`), which the thread
   releases with `notify`; so a signal handler may use a client whose call waits.
4. Only the thread changes the outbox and the attributes about the connection; a call takes only slots. A
   call that acts on several of these attributes reads them in the guard.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shardkeep.collector.client.buffers import ChunkBuffer, DatasetBuffer, Payload
from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import LockError, ShardkeepError, one_line

__all__ = ["Declaration", "ReentrancyGuard", "SenderState"]

_T = TypeVar("_T")
_LINGER_S = 0.05
# Chunks of a client that spills may wait in memory until the thread has written them to disk.
_MOST_SPILLING_CHUNKS = 8


class ReentrancyGuard:
    """A lock that refuses, instead of blocking, a signal handler in the thread that holds it.

    Attributes
    ----------
    lock : RLock
    is_busy : bool
        Whether a thread is between two steps that belong together.
    """

    def __init__(self, rank: int) -> None:
        self.lock = threading.RLock()
        self.is_busy = False
        self.rank = rank

    def run(self, work: Callable[..., _T], *values: object) -> _T:
        """Call `work` with the lock held; `LockError` in a signal handler that interrupts another call."""
        # No Python function is called between the lock and `try`, so no handler runs there.
        with self.lock:
            if self.is_busy:
                raise self.reentrancy_error()
            self.is_busy = True
            try:
                return work(*values)
            finally:
                self.is_busy = False

    def is_interrupted(self) -> bool:
        """Whether this is a signal handler that interrupts another call of its thread."""
        with self.lock:
            return self.is_busy

    def reentrancy_error(self) -> LockError:
        """Return the error of a call from a signal handler that interrupts another call."""
        message = f"the client of rank {self.rank} is in the middle of another call, and cannot run this one"
        return LockError(f"{message}: set a flag in the signal handler, and act on it between two calls")


@dataclass(slots=True, eq=False)
class Declaration:
    """A dataset that a client declares.

    Attributes
    ----------
    schema : Schema
    dataset : DatasetBuffer or None
        The buffer for its rows; None until the collector has answered.
    error : ShardkeepError or None
        Why the collector refused the dataset.
    """

    schema: Schema
    dataset: DatasetBuffer | None = None
    error: ShardkeepError | None = None


class SenderState(ReentrancyGuard):
    """The state of one client and its sender.

    Attributes
    ----------
    datasets : dict of str to DatasetBuffer
        The datasets that the client knows.
    has_notice : bool
        Whether the next call must check `errors`, `closed_error` and the spill disk before it adds rows.
    dirty : dict of str to DatasetBuffer
        Datasets with rows that are not submitted.
    linger_at : float or None
        When rows that are not submitted are sent all the same.
    submitted : list of ChunkBuffer or Payload
        What the thread makes the next batches of, in order.
    declarations : deque of Declaration
        Datasets that the thread has to declare.
    unflushed_declaration : (str, bool) or None
        The last dataset declared since the last flush, and whether its rows have keys.
    flush_tickets, durable_ticket : int
        The number of flushes so far, and the last one that is complete.
    errors : deque of ShardkeepError
        Errors about earlier rows; each is raised by one call.
    closed_error : ShardkeepError or None
        The error that every call raises, once nothing can be sent any more.
    retries_spill : bool
        Whether a call waits for another attempt to write to the spill disk.
    is_ready : bool
        Whether the collector has welcomed this client on the current connection.
    silence : str or None
        Why the collector does not answer.
    largest_bytes : int
        The longest message that the collector accepts; 0 if that is not known yet.
    stopping : str or None
        Why the collector is about to end.
    failure : ShardkeepError or None
        Why the thread has to end.
    is_loss_reported : bool
        Whether the loss of rows was reported, or is raised by `Client.close`.
    """

    def __init__(self, rank: int, timeout_s: float, outbox: Outbox, connection: Connection) -> None:
        super().__init__(rank)
        self.timeout_s = timeout_s
        self.outbox = outbox
        # The thread sends the batches of a killed client before a call may have declared their datasets.
        left = {} if outbox.spill is None else outbox.spill.schemas
        self.datasets = {name: DatasetBuffer(schema) for name, schema in left.items()}
        self.has_notice = False
        self.dirty: dict[str, DatasetBuffer] = {}
        self.linger_at: float | None = None
        self.submitted: list[ChunkBuffer | Payload] = []
        self.declarations: deque[Declaration] = deque()
        self.unflushed_declaration: tuple[str, bool] | None = None
        self.flush_tickets = self.durable_ticket = 0
        self.errors: deque[ShardkeepError] = deque()
        self.closed_error: ShardkeepError | None = None
        self.retries_spill = False
        self.is_ready = False
        self.silence: str | None = None
        self.largest_bytes = 0
        self.stopping: str | None = None
        self.failure: ShardkeepError | None = None
        self.is_loss_reported = False
        self.wake = connection.wake
        self._connection = connection
        self._waiters: list[Any] = []

    @property
    def address(self) -> str:
        """Address of the collector, or where the client searches for it."""
        return self._connection.address

    # -- rows, in the guard --------------------------------------------------------------------------------

    def mark_dirty(self, dataset: DatasetBuffer) -> None:
        """Note that rows are about to be added to a dataset."""
        self.dirty[dataset.schema.name] = dataset
        if self.linger_at is None:
            self.linger_at = time.monotonic() + _LINGER_S
            self.wake()

    def submit(self, dataset: DatasetBuffer) -> None:
        """Pass the chunk of a dataset to the thread; no row may be added to it."""
        chunk = dataset.chunk
        chunk.limit = chunk.rows
        dataset.uses_slots = dataset.uses_slots or chunk.rows > 0
        # A call that was interrupted after this step may have submitted it already.
        if chunk.rows and not any(one is chunk for one in self.submitted):
            self.submitted.append(chunk)
        self.wake()

    def request_flush(self) -> int:
        """Ask for everything so far to become durable; return the ticket of this request."""
        self.flush_tickets += 1
        self.wake()
        return self.flush_tickets

    # -- room ----------------------------------------------------------------------------------------------

    @property
    def submitted_bytes(self) -> int:
        """The size of what is submitted."""
        return sum(one.size_bytes for one in self.submitted)

    def has_room(self) -> bool:
        """Whether more rows may be submitted."""
        if self.outbox.spill is not None:
            return len(self.submitted) < _MOST_SPILLING_CHUNKS and self.outbox.spill_failure is None
        return self.outbox.bytes + self.submitted_bytes < self.outbox.most_bytes

    def has_slots(self) -> bool:
        """Whether a slot is free, or none will be: buffers of other datasets keep theirs."""
        slots = self.outbox.slots
        if slots is None or slots.has_free:
            return True
        return not self.outbox.uses_slots and all(one.slot is None for one in self.submitted)

    def undelivered(self) -> dict[str, int]:
        """Return the number of rows of each dataset, and the values, that would be lost with this process."""
        lost = self.outbox.undelivered()
        for one in (*self.submitted, *(dataset.chunk for dataset in list(self.dirty.values()))):
            if one.rows or (isinstance(one, Payload) and one.is_value):
                lost[one.name] = lost.get(one.name, 0) + one.rows
        return lost

    def report_losses(self) -> None:
        """Write one line to stderr and warn (`ResourceWarning`), once, if rows or errors were not reported.

        For the end, when no later call can raise an error.
        """
        lost, parts = self.undelivered(), [str(one) for one in self.errors]
        is_reported, self.is_loss_reported = self.is_loss_reported, True
        if is_reported or not (lost or parts):
            return
        if lost:
            total = sum(lost.values())
            what = ", ".join(
                f"{rows:,} of {name!r}" if rows else f"value {name!r}" for name, rows in lost.items()
            )
            why = self.failure or self.silence or "not in time"
            parts.append(
                f"{total:,} rows may be lost ({what}): {self.address} has not acknowledged them ({why})"
            )
        message = one_line(f"client of rank {self.rank}: {'; '.join(parts)}")
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"shardkeep: {message}\n")
            sys.stderr.flush()
        # Where warnings are errors, no caller is left to receive this one.
        with contextlib.suppress(ResourceWarning):
            warnings.warn(message, ResourceWarning, stacklevel=2)

    # -- waiting -------------------------------------------------------------------------------------------

    def new_waiter(self) -> Any:
        """Return a lock that can be acquired after the next `notify`."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def notify(self) -> None:
        """Wake all calls that wait for a change."""
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            one.release()

    # -- for the thread ------------------------------------------------------------------------------------

    def close(self, error: ShardkeepError) -> None:
        """Make every later call raise `error`."""
        self.closed_error = self.closed_error or error
        self.has_notice = True
        self.notify()

    def fail(self, error: ShardkeepError) -> None:
        """End the thread, and make every later call raise `error`."""
        self.failure = self.failure or error
        self.is_ready = False
        self.close(error)

    def disconnect(self, reason: str) -> None:
        """Note that the connection is lost."""
        self.is_ready = False
        self.silence = self.silence or reason
        self.notify()
