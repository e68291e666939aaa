"""`Tray`: what the calls of a client lay down, and its link's thread picks up.

Calls may be interrupted at any instruction: Python runs a signal handler, which may raise, or call
the client again, between any two steps of the main thread, never in another one. So

- whatever takes several steps that belong together is done by the link's thread. A call adds rows by
  one step (`Sheet.fill` is raised, or a list is extended); before it nothing was added, after it all;
- every step is taken within `Steps.do`, or with `busy` set as it does. A handler that finds the tray
  busy is refused, as it would overwrite the row that is being written;
- nothing waits with the lock held, so a handler that comes while a call waits may do what it likes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from shardkeep.collector.client.pen import Pen, Rows, Sheet
from shardkeep.collector.client.steps import Steps
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import ClientSlots
from shardkeep.errors import ShardkeepError

__all__ = ["Request", "Tray"]


class Request:
    """A dataset that is declared.

    Attributes
    ----------
    schema : Schema
    pen : Pen or None
        For its rows; None until the collector has said what they look like.
    error : ShardkeepError or None
        Why there is no such dataset.
    """

    __slots__ = ("error", "pen", "schema")

    def __init__(self, schema: Schema, pen: Pen | None = None) -> None:
        self.schema = schema
        self.pen = pen
        self.error: ShardkeepError | None = None


class Tray(Steps):
    """The part of a link that calls and thread share.

    Parameters
    ----------
    rank : int
        For messages.
    linger_s : float
        How long rows may wait for more before they are sent.
    wake : callable
        Has the thread look.
    pens : dict of str to Pen
        The datasets that the client knows.

    Attributes
    ----------
    attention : bool
        The next call has something to look at first: `trouble`, `ended` or a full disk.
    dirty : dict of str to Pen
        Those with rows on their sheet.
    full : list of Sheet or Rows
        Handed over, in order.
    requests : deque of Request
        Datasets to be declared.
    unflushed : (str, bool) or None
        A dataset that was declared since everything was last asked to become durable, and whether its rows
        have keys.
    tickets : int
        How often somebody asked for everything so far to become durable.
    durable_ticket : int
        The newest one of which that is true.
    trouble : deque of ShardkeepError
        What the next call has to raise.
    ended : ShardkeepError or None
        What every call has to raise.
    slots : ClientSlots or None
    retry : bool
        Somebody wants to know whether there is room on the spill disk now.
    """

    def __init__(self, rank: int, linger_s: float, wake: Callable[[], None], pens: dict[str, Pen]) -> None:
        super().__init__(rank)
        self.attention = False
        self.pens = pens
        self.dirty: dict[str, Pen] = {}
        self.full: list[Sheet | Rows] = []
        self.requests: deque[Request] = deque()
        self.unflushed: tuple[str, bool] | None = None
        self.tickets = self.durable_ticket = 0
        self.trouble: deque[ShardkeepError] = deque()
        self.ended: ShardkeepError | None = None
        self.slots: ClientSlots | None = None
        self.retry = False
        self.linger_at: float | None = None
        self.wake = wake
        self._linger_s = linger_s
        self._waiters: list[Any] = []

    # -- rows, within `do` ---------------------------------------------------------------------------------

    def mark(self, pen: Pen) -> None:
        """Rows will be on its sheet."""
        self.dirty[pen.schema.name] = pen
        if self.linger_at is None:
            self.linger_at = time.monotonic() + self._linger_s
            self.wake()

    def hand_over(self, sheet: Sheet) -> None:
        """Let the thread have a sheet; no row may be added to it."""
        sheet.limit = sheet.fill
        sheet.pen.has_many = sheet.pen.has_many or sheet.fill > 0
        # It may have been handed over by a call that was interrupted after that.
        if sheet.fill and not any(one is sheet for one in self.full):
            self.full.append(sheet)
        self.wake()

    @property
    def full_bytes(self) -> int:
        """Bytes of what was handed over."""
        return sum(one.size for one in self.full)

    def new_ticket(self) -> int:
        """Ask for everything so far to become durable."""
        self.tickets += 1
        self.wake()
        return self.tickets

    # -- waiting -------------------------------------------------------------------------------------------

    def new_waiter(self) -> Any:
        """Return a lock that can be acquired when something has changed."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def tell(self) -> None:
        """Something has changed."""
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            one.release()
